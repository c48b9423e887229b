"""What makes a text JSON again, where it is plain what its author meant.

Takes: a text that is no JSON, and the line and column at which reading it stopped. Gives: one edit, or nothing.
May touch: nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stepflow.definition.suggest import reword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.definition.suggest import Ideas

_COMMENT = re.compile(r"[ \t]*(?://[^\n]*|\#[^\n]*|/\*.*?\*/)", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "TRUE": "true", "FALSE": "false"}
_QUOTED = re.compile(r"'([^'\"\\\n]*)'")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*(?=\s*:)")
_YAML = re.compile(r"\s*(---|#|[A-Za-z_][\w-]*:(\s|$))")

MOST_UNCLOSED = 3

#: Offsets, what stands there, what must stand there.
_Edit = tuple[int, int, str]


def mend(text: str, line: int, column: int) -> Ideas:
    """The first edit after which the text can be read further than before."""
    at = _offset(text, line) + column - 1
    for start, end, new in _edits(text, at):
        reached = _reached(text[:start] + new + text[end:])
        if reached is None or reached > max(at, start + len(new)):
            return reword(text[start:end], new, (start, end))
    return ()


def looks_like_yaml(text: str) -> bool:
    """True for a text that begins as YAML does and JSON never."""
    return bool(_YAML.match(text))


def _offset(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


def _reached(text: str) -> int | None:
    """Where reading stops; None when the whole text is JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as exc:
        return exc.pos
    except (RecursionError, ValueError):
        return -1
    return None


def _edits(text: str, at: int) -> Iterator[_Edit]:
    """What may have been meant at an offset, the surest first."""
    here = text[at : at + 1]
    before = len(text[:at].rstrip())
    if comment := _COMMENT.match(text, at):
        yield *_whole_line(text, *comment.span()), ""
    if text[before - 1 : before] == "," and here in ("}", "]", ""):
        yield before - 1, before, ""
    if here == "," and text[at + 1 :].lstrip()[:1] in ("}", "]"):  # Python 3.13 stops at the comma itself
        yield at, at + 1, ""
    if here == "\t":
        yield at, at + 1, "\\t"
    if here == "\\":
        yield at, at + 1, "\\\\"
    if quoted := _QUOTED.match(text, at):
        yield *quoted.span(), f'"{quoted[1]}"'
    for word, meant in _WORDS.items():
        if text.startswith(word, at):
            yield at, at + len(word), meant
    if name := _NAME.match(text, at):
        yield *name.span(), f'"{name[0]}"'
    if here in ('"', "{", "["):
        yield before, before, ","
    if here in ("}", "]") and not text[at:].strip("}] \t\r\n"):
        yield before, len(text.rstrip()), ""
    if not text[at:].strip() and (missing := _unclosed(text)):
        yield len(text.rstrip()), len(text.rstrip()), missing


def _whole_line(text: str, start: int, end: int) -> tuple[int, int]:
    """A comment with its blanks, and with its line break when nothing else is on its line."""
    begin = len(text[:start].rstrip(" \t"))
    alone = begin == 0 or text[begin - 1] == "\n"
    return (begin, end + 1) if alone and text[end : end + 1] == "\n" else (begin, end)


def _unclosed(text: str) -> str:
    """The brackets that are open at the end."""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    open_: list[str] = []
    for sign in re.findall(r"[\[\]{}]", plain):
        if sign in "[{":
            open_.append("]" if sign == "[" else "}")
        elif not open_ or open_.pop() != sign:
            return ""
    # More than these is a file that was cut off, and nobody knows where.
    return "".join(reversed(open_)) if len(open_) <= MOST_UNCLOSED else ""
