"""The retry prompt after a red validator (prompts.md §9.1–9.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.json import JsonObject, JsonValue, as_text
from stepflow.domain.output_excerpt import excerpt
from stepflow.engine.prompt.template import fill_template, parse_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepflow.domain.decision import ValidatorFailure
    from stepflow.domain.definition import ValidationEntry
    from stepflow.engine.prompt.variables import Variables

#: Of a longer text an excerpt is shown.
LONGEST_TEXT = 20_000
MOST_DETAILS = 50
#: The generic text lists no more items of one parameter.
MOST_ITEMS = 100
GENERIC = "generic"


def _details(failure: ValidatorFailure) -> list[JsonValue]:
    said = "\n".join(line for line in failure.error.splitlines() if line.strip())
    return [*excerpt(said, LONGEST_TEXT, lines=MOST_DETAILS).splitlines()]


#: What a retry prompt knows of a failure, with how it is read.
_OF_FAILURE: dict[str, Callable[[ValidatorFailure], JsonValue]] = {
    "validator": lambda failure: failure.validator,
    "pattern": lambda failure: failure.pattern,
    "description": lambda failure: failure.description,
    "error": lambda failure: failure.error,
    "details": _details,
    "exitCode": lambda failure: failure.exit_code,
    "stdout": lambda failure: failure.stdout,
    "stderr": lambda failure: failure.stderr,
    "attempt": lambda failure: failure.attempt,
    "maxAttempts": lambda failure: failure.max_attempts,
    "attemptsLeft": lambda failure: failure.max_attempts - failure.attempt,
}
#: What a retry prompt may name beside what the validator extracts.
RETRY_VALUES = frozenset({*_OF_FAILURE, "stepId", "uv"})


@dataclass(frozen=True, kw_only=True)
class RetryText:
    """A retry prompt. `source` is its file, or `generic`."""

    text: str
    source: str


def render_retry(entry: ValidationEntry, failure: ValidatorFailure, step_id: str, variables: Variables) -> RetryText:
    """The most special retry prompt that there is for this failure; `step_id` is the closure step that said closing."""
    values = _values(failure, step_id, variables)
    own = {*RETRY_VALUES, *failure.values}
    texts = {name: _cut(text) for name, text in variables.texts.items() if name not in own}
    for source in (entry.retry_prompts.get(failure.pattern), entry.any_retry_prompt):
        template = parse_template(source.text, values) if source else None
        if source and template and not template.faults:  # the loader has reported them (SF516)
            return RetryText(text=fill_template(template, values, texts).text, source=source.file)
    return RetryText(text="\n\n".join(_generic(failure)), source=GENERIC)


def _values(failure: ValidatorFailure, step_id: str, variables: Variables) -> JsonObject:
    known = {name: read(failure) for name, read in _OF_FAILURE.items()}
    values: JsonObject = {**variables.scope, **known, "stepId": step_id, **failure.values}
    return {name: _shortened(value) for name, value in values.items()}


def _shortened(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _cut(value)
        case list():
            return [_shortened(item) for item in value]
        case dict():
            return {key: _shortened(item) for key, item in value.items()}
        case _:
            return value


def _cut(text: str) -> str:
    return excerpt(text, LONGEST_TEXT)[:LONGEST_TEXT]


def _generic(failure: ValidatorFailure) -> Iterator[str]:
    yield "## The closing check did not pass"
    yield f"Validator `{failure.validator}` failed: {failure.description}"
    if failure.error.strip():
        yield _fenced(_cut(failure.error.rstrip("\n")))
    listed = [_bullet(name, value) for name, value in failure.values.items() if value not in (None, "", [], {})]
    if listed:
        yield "What was found:\n\n" + "\n".join(listed)
    left = failure.max_attempts - failure.attempt
    yield f"This was attempt {failure.attempt} of {failure.max_attempts}; {left or 'none'} left."
    yield "Fix the cause, then close again."


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _bullet(name: str, value: JsonValue) -> str:
    if isinstance(value, list):
        items = [f"  - {_one_line(item)}" for item in value[:MOST_ITEMS]]
        more = [f"  - … and {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else []
        return "\n".join((f"- {name}:", *items, *more))
    if isinstance(value, str) and "\n" in value.strip():
        fenced = _fenced(_cut(value.strip("\n")))
        return f"- {name}:\n\n" + "\n".join(f"  {line}" for line in fenced.splitlines()) + "\n"
    return f"- {name}: {_one_line(value)}"


def _one_line(value: JsonValue) -> str:
    return _cut(" ".join(as_text(value).split()))
