"""The closed list of problem codes (registry.md §9.1), with the reason and the examples of each rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from stepflow.domain.problem import Example, LintRule, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Code:
    """One row of the table."""

    severity: Severity
    rule: str


_WORDS = {"E": Severity.ERROR, "W": Severity.WARNING, "N": Severity.NOTE}

_TABLE = """
SF101 E agent folder missing, or agent name not allowed
SF102 E agent.json, registry or system prompt missing or unreadable
SF104 E not UTF-8, too large, not JSON, repeated key
SF106 E wrong type, or value outside a closed set
SF107 E required key missing or empty
SF108 N unknown key, ignored
SF109 E unsafe path or address part
SF110 W old layout or old name, read as the new one
SF111 N key has no effect here
SF201 E agentId differs from name
SF202 W name differs from the folder
SF203 E unknown verdict type
SF204 E verdict config missing or invalid
SF205 E two layouts in one agent.json
SF206 E verdict does not fit the registry or is not allowed
SF207 E parameter declared wrongly
SF208 W parameter without description, required with a default, or named like a run variable
SF209 E run arguments do not fit the parameters
SF210 N tool name not known, ignored
SF301 E dialect cannot be told, or no steps
SF302 E both dialects in one registry
SF303 E no entry step for this verdict
SF304 E entry or mapping names a missing step or a section
SF305 E key differs from stepId or id
SF306 E gated step whose kind cannot be told
SF307 E flow step of a gated registry lacks gate, transitions or schema
SF308 W style of version or c3
SF310 W entryStepMapping key is no verdict type
SF311 E runner on a step that is no closure, or malformed
SF321 E intent unknown, or forbidden for the kind
SF323 E allowedIntents empty
SF324 E intentField missing or malformed
SF325 E intentSchemaRef missing, malformed, not found, or not on an enum
SF326 E enum differs from allowedIntents
SF327 E handoffFields collide, or two handoff variables get one name
SF328 E failFast false without allow-spec-violations
SF329 W failFast false accepted for this run
SF330 E jump allowed with neither targetField nor a rule
SF331 N targetField without jump, or fallbackIntent with failFast
SF341 E allowed intent without rule
SF342 W rule for an intent that is not allowed
SF343 E target does not exist or is a section
SF344 E null target on an intent other than closing
SF345 W next left to the initial to continuation default
SF346 W flow step not reachable from any entry
SF347 W handoff to a step that is no closure
SF348 W handoff allowed on an initial step
SF349 W next to itself
SF350 W entry or cycle from which no closure step is reachable
SF351 W next or jump rule straight to a closure
SF353 N closing target ignored
SF354 W condition is no declared handoff field, or no default target
SF401 E schema file missing, unreadable or not JSON
SF402 E outputSchemaRef malformed
SF403 E schema identifier or pointer not found
SF404 E pointer form, but no default schema file
SF405 E $ref form or place not allowed
SF406 E circular $ref
SF407 E not a valid schema, or too large
SF408 W unknown $schema
SF409 E root of an answer schema is not an object
SF501 E prompt file missing or empty and no usable fallback
SF502 N adaptation file missing, base file used
SF503 N prompt file missing or empty, fallback template used
SF504 W fallbackKey unknown
SF505 W used variable not in uvVariables
SF506 W declared variable not used
SF507 W variable that nothing can supply, or only an optional parameter without default
SF508 N front matter not valid YAML
SF509 E section placeholder names no section, or stands inside a section
SF510 W source step of an input missing, or it does not hand off that key
SF511 W usesStdin is true
SF513 N no retry prompt file for a pattern, generic text will be used
SF514 E path template malformed
SF601 E validator incomplete, or type not supported
SF602 E successWhen not understood, or bad pattern
SF603 E condition names an unknown validator
SF604 E unknown failure pattern
SF605 W unknown extractor, value will be null
SF606 W validation entry belongs to no closure step
SF607 E onFailure invalid
SF701 E check dialect: prompt reference missing or malformed
SF702 E check dialect: check missing, or without any outcome
SF703 E check dialect: next or fallback names a missing step
SF704 W check dialect: id is not s_ and 4 to 8 hex digits
SF705 E check dialect: iterations or maxRetries invalid
SF706 W check dialect: an outcome that can happen has no rule
SF707 W check dialect: no complete reachable from the entry
SF708 E check dialect: handoff key malformed or used twice
SF709 N check dialect: a key of a transition is never reached
"""


def _read_table() -> dict[str, Code]:
    rows = (line.split(" ", 2) for line in _TABLE.strip().splitlines())
    return {code: Code(severity=_WORDS[letter], rule=rule) for code, letter, rule in rows}


CODES: dict[str, Code] = _read_table()


_HEADING = re.compile(r"^## (SF[0-9]{3})\n", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^(?P<word>Wrong|Right)(?:, `(?P<file>[^`]+)`(?: at `(?P<pointer>[^`]+)`)?)?:\n\n"
    r"```(?P<language>\w+)\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


@cache
def rules() -> Mapping[str, LintRule]:
    """Every rule by its code, in the order of the table."""
    text = (files("stepflow.definition") / "rules.md").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return {code: _rule(code, texts.get(code, "")) for code in CODES}


def _rule(code: str, text: str) -> LintRule:
    examples = list(_EXAMPLE.finditer(text))
    why = text[: examples[0].start()] if examples else text
    # An example without a place stands where the one before it does.
    place: tuple[str, str] = ("", "")
    by_word: dict[str, list[Example]] = {"Wrong": [], "Right": []}
    for match in examples:
        place = (match["file"], match["pointer"] or "") if match["file"] else place
        file, pointer = place
        example = Example(file=file, pointer=pointer, language=match["language"], text=match["text"].rstrip("\n"))
        by_word[match["word"]].append(example)
    row = CODES[code]
    return LintRule(
        code=code,
        severity=row.severity,
        broken=row.rule,
        why=" ".join(why.split()),
        wrong=tuple(by_word["Wrong"]),
        right=tuple(by_word["Right"]),
    )
