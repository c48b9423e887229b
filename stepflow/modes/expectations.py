"""Compares a run with what its scenario expects, or updates the scenario with the actual result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

import yaml

from stepflow.definition.folder import FileRefused, Why, read_below
from stepflow.domain.event import ValidatorRan
from stepflow.domain.reports.report import Mismatch, Row, RunReport
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario, yaml_text
from stepflow.run.scenarios import NOT_PLAYED, parse_scenario, read_node, read_scenario_text, validator_results

EXPECT = "expect"
#: The keys for a scenario without `expect`.
USUAL = ("outcome", "steps", "validators", "effects")
#: The limit for reading a file, in bytes.
MOST_BYTES = 1024 * 1024
#: Shown if one side has no value.
NOTHING = "–"
NO_FILE = "no such file"
LINE_BREAK_AT_END = "⏎"
CONTEXT = 2


def came_of(report: RunReport, ran: Iterable[ValidatorRan], files: Mapping[str, str | None]) -> Expect:
    """Return everything that `expect` can contain, with the actual values of this run."""
    return Expect(
        outcome=report.outcome,
        steps=tuple(line.step_id for line in report.history),
        effects=tuple(effect.kind for effect in report.effects),
        validators=validator_results(ran),
        files=dict(files),
    )


def read_files(root: Path, paths: Iterable[str]) -> dict[str, str | None]:
    """Read the named files as text, with None for a missing file. Do not follow links, because tools may have created
    them."""
    return {path: _file_text(root, path) for path in paths}


def differences(expect: Expect | None, came: Expect) -> tuple[Mismatch, ...]:
    """Return every key of `expect` with another actual value. Without `expect`, the run only has to complete."""
    given = expect or Expect(outcome=Outcome.COMPLETED)
    different = (
        *_outcome(given.outcome, came.outcome),
        *_sequence("steps", given.steps, came.steps),
        *_validators(given.validators, came.validators or {}),
        *_sequence("effects", given.effects, came.effects),
        *(each for path in given.files or {} for each in _file(path, given, came)),
    )
    return tuple(different)


def _outcome(expected: Outcome | None, came: Outcome | None) -> Iterator[Mismatch]:
    if expected is None and came not in NOT_PLAYED:
        return
    if expected is not came:
        yield Mismatch(what="outcome", rows=(Row(where="", expected=expected or "another end", came=came or NOTHING),))


def _sequence(what: str, expected: Sequence[str] | None, came: Sequence[str] | None) -> Iterator[Mismatch]:
    if expected is not None and list(expected) != list(came or ()):
        yield Mismatch(what=what, rows=tuple(_aligned(expected, came or ())))


def _aligned(expected: Sequence[str], came: Sequence[str]) -> Iterator[Row]:
    """Yield both lists side by side. `where` is the number in the actual list, or in the expected list if there is no
    actual item."""
    for _, left, left_end, right, right_end in SequenceMatcher(a=expected, b=came, autojunk=False).get_opcodes():
        numbers = zip_longest(range(left, left_end), range(right, right_end))
        for at, to in numbers:
            number = at if to is None else to
            yield Row(
                where="" if number is None else str(number + 1),
                expected=NOTHING if at is None else expected[at],
                came=NOTHING if to is None else came[to],
            )


def _validators(expected: Mapping[str, Sequence[str]] | None, came: Mapping[str, Sequence[str]]) -> Iterator[Mismatch]:
    if expected is None or {name: tuple(words) for name, words in expected.items()} == came:
        return
    names = dict.fromkeys((*expected, *came))
    rows = (Row(where=name, expected=_words(expected.get(name)), came=_words(came.get(name))) for name in names)
    yield Mismatch(what="validators", rows=tuple(rows))


def _words(words: Sequence[str] | None) -> str:
    return ", ".join(words) if words else NOTHING


def _file(path: str, given: Expect, came: Expect) -> Iterator[Mismatch]:
    expected, came_text = (given.files or {})[path], (came.files or {}).get(path)
    if expected == came_text:
        return
    if expected is None or came_text is None:
        rows: tuple[Row, ...] = (Row(where="", expected=_there(expected), came=_there(came_text)),)
    else:
        rows = tuple(_near([*_aligned(_lines(expected), _lines(came_text))]))
    yield Mismatch(what=f"file {path}", rows=rows)


def _there(text: str | None) -> str:
    return NO_FILE if text is None else f"a file of {len(text)} characters"


def _lines(text: str) -> list[str]:
    """Return the lines. A final line break, which would be invisible, becomes a line of its own."""
    lines = text.replace("\r", "␍").split("\n")
    return [*lines[:-1], lines[-1] or LINE_BREAK_AT_END] if text else []


def _near(rows: list[Row]) -> Iterator[Row]:
    """Return the rows that differ, with a few rows around each."""
    wanted = {at + by for at, row in enumerate(rows) if not row.same for by in range(-CONTEXT, CONTEXT + 1)}
    return (row for at, row in enumerate(rows) if at in wanted)


def update_expect(text: str, came: Expect, *, name: str = "scenario") -> str:
    """Return the text with the actual values in `expect`: for the existing keys, or for all the usual ones.

    Raise `InputError` if the values cannot be inserted because of the way in which the text is written.
    """
    before = parse_scenario(text, name=name)
    expect = before.expect or Expect()
    keys = [key for key in Expect.model_fields if key in expect.model_fields_set] or USUAL
    files = {path: (came.files or {}).get(path) for path in expect.files or {}}
    values = came.model_copy(update={"files": files}).model_dump(mode="json", include=set(keys))
    start, end = _place_of_expect(text)
    block = yaml_text({EXPECT: {key: values[key] for key in keys}})
    if start == len(text):
        block = f"\n{block}" if text.endswith("\n") else f"\n\n{block}"
    edited = text[:start] + block.replace("\n", "\r\n" if "\r\n" in text else "\n") + text[end:]
    after = before.model_copy(update={EXPECT: Expect.model_validate_json(json.dumps(values))})
    read = read_scenario_text(edited)
    if not isinstance(read, Scenario) or read.model_dump(exclude_unset=True) != after.model_dump(exclude_unset=True):
        raise InputError(
            f"{name}: `expect` is written in a form that cannot be changed by its place.",
            hint="Write its keys on separate lines, without anchors, or change it by hand.",
        )
    return edited


def _place_of_expect(text: str) -> tuple[int, int]:
    """Return where the lines of `expect` begin and end in the text of a scenario. If there is no `expect`, both are the
    end of the text."""
    root = read_node(text)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    for key, value in pairs:
        if key.value == EXPECT:
            last_word = len(text[: _end(value)].rstrip())
            return key.start_mark.index, text.find("\n", last_word) + 1 or len(text)
    return len(text), len(text)


def _end(node: yaml.Node) -> int:
    """Return where the last word of the node ends. The end of a block itself comes after any comments that follow
    it."""
    children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and children:
        return _end(children[-1])
    return int(node.end_mark.index)


def _file_text(root: Path, path: str) -> str | None:
    try:
        return read_below(root, path, limit=MOST_BYTES).decode("utf-8", "replace")
    except FileRefused as refused:
        return None if refused.why is Why.MISSING else f"({_REFUSED.get(refused.why, refused.message)})"


_REFUSED = {
    Why.LINK: "a symbolic link",
    Why.IRREGULAR: "no regular file",
    Why.LARGE: f"more than {MOST_BYTES} bytes",
}
