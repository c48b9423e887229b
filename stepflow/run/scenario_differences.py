"""What a scenario expects, held against what came."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING

from stepflow.domain.report import Difference, Row
from stepflow.domain.words import Outcome
from stepflow.model.scenario import Expect
from stepflow.run.scenarios import NOT_PLAYED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Stands where one side has nothing.
NOTHING = "–"
NO_FILE = "no such file"
LINE_BREAK_AT_END = "⏎"
CONTEXT = 2


def differences(expect: Expect | None, came: Expect) -> tuple[Difference, ...]:
    """Every key of `expect` that is not as it came. Without `expect` the run only has to complete."""
    given = expect or Expect(outcome=Outcome.COMPLETED)
    different = (
        *_outcome(given.outcome, came.outcome),
        *_sequence("steps", given.steps, came.steps),
        *_validators(given.validators, came.validators or {}),
        *_sequence("effects", given.effects, came.effects),
        *(each for path in given.files or {} for each in _file(path, given, came)),
    )
    return tuple(different)


def _outcome(expected: Outcome | None, came: Outcome | None) -> Iterator[Difference]:
    if expected is None and came not in NOT_PLAYED:
        return
    if expected is not came:
        yield Difference(
            what="outcome", rows=(Row(where="", expected=expected or "another end", came=came or NOTHING),)
        )


def _sequence(what: str, expected: Sequence[str] | None, came: Sequence[str] | None) -> Iterator[Difference]:
    if expected is not None and list(expected) != list(came or ()):
        yield Difference(what=what, rows=tuple(_aligned(expected, came or ())))


def _aligned(expected: Sequence[str], came: Sequence[str]) -> Iterator[Row]:
    """Both lists side by side; `where` is the number in what came, or in what was expected where nothing came."""
    for _, left, left_end, right, right_end in SequenceMatcher(a=expected, b=came, autojunk=False).get_opcodes():
        numbers = zip_longest(range(left, left_end), range(right, right_end))
        for at, to in numbers:
            number = at if to is None else to
            yield Row(
                where="" if number is None else str(number + 1),
                expected=NOTHING if at is None else expected[at],
                came=NOTHING if to is None else came[to],
            )


def _validators(
    expected: Mapping[str, Sequence[str]] | None, came: Mapping[str, Sequence[str]]
) -> Iterator[Difference]:
    if expected is None or {name: tuple(words) for name, words in expected.items()} == came:
        return
    names = dict.fromkeys((*expected, *came))
    rows = (Row(where=name, expected=_words(expected.get(name)), came=_words(came.get(name))) for name in names)
    yield Difference(what="validators", rows=tuple(rows))


def _words(words: Sequence[str] | None) -> str:
    return ", ".join(words) if words else NOTHING


def _file(path: str, given: Expect, came: Expect) -> Iterator[Difference]:
    expected, came_text = (given.files or {})[path], (came.files or {}).get(path)
    if expected == came_text:
        return
    if expected is None or came_text is None:
        rows: tuple[Row, ...] = (Row(where="", expected=_there(expected), came=_there(came_text)),)
    else:
        rows = tuple(_near([*_aligned(_lines(expected), _lines(came_text))]))
    yield Difference(what=f"file {path}", rows=rows)


def _there(text: str | None) -> str:
    return NO_FILE if text is None else f"a file of {len(text)} characters"


def _lines(text: str) -> list[str]:
    """The lines; a last line break, which nobody would see, is a line of its own."""
    lines = text.replace("\r", "␍").split("\n")
    return [*lines[:-1], lines[-1] or LINE_BREAK_AT_END] if text else []


def _near(rows: list[Row]) -> Iterator[Row]:
    """The rows that differ and a few around each."""
    wanted = {at + by for at, row in enumerate(rows) if not row.same for by in range(-CONTEXT, CONTEXT + 1)}
    return (row for at, row in enumerate(rows) if at in wanted)
