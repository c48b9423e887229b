"""Find the JSON object in what a model wrote.

Takes: the last assistant text. Gives: the answer object, with the running step's id (flow.md §4.1, §4.3).
May touch: nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonObject

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)

#: A text with more openings than this is not searched further: each failed try costs a scan of the text.
MAX_OPENINGS = 1000


def find_object(text: str) -> JsonObject | None:
    """The first JSON object among: the whole text, the first fenced block, the first balanced `{…}` that parses."""
    candidates = (text.strip(), *_first_fence(text))
    for candidate in candidates:
        if (found := _parse_object(candidate)) is not None:
            return found
    return next(_balanced_objects(text), None)


def find_objects(text: str) -> tuple[JsonObject, ...]:
    """Every JSON object in a text that is not part of another one, fenced or bare, also in a list. For where there must
    be exactly one, and nothing is guessed."""
    return tuple(_balanced_objects(text, inner=False))


def correct_step_id(answer: JsonObject, step_id: str) -> tuple[JsonObject, str | None]:
    """The answer with the canonical `stepId`, and the wrong id that stood there, if one did."""
    got = answer.get("stepId")
    if not isinstance(got, str) or got == step_id:
        return answer, None
    return {**answer, "stepId": step_id}, got


def _first_fence(text: str) -> tuple[str, ...]:
    fence = FENCE.search(text)
    return (fence[2],) if fence else ()


def _parse_object(text: str) -> JsonObject | None:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _balanced_objects(text: str, *, inner: bool = True) -> Iterator[JsonObject]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = text.find("{")
    for _ in range(MAX_OPENINGS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, end = None, at + 1
        if isinstance(value, dict):
            yield value
        at = text.find("{", at + 1 if inner else end)


def _refuse_constant(word: str) -> None:
    # NaN and Infinity are no JSON, though Python's parser knows them.
    raise ValueError(word)
