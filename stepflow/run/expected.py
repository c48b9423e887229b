"""What a scenario expects, held against what came (cli.md "Scenario files")."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING

from stepflow.definition.safe_files import FileRefused, Why, read_below
from stepflow.domain.report import Difference, Row
from stepflow.domain.words import FailureAction, Outcome
from stepflow.model.scenario import Expect
from stepflow.run.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepflow.domain.event import ValidatorRan
    from stepflow.domain.report import RunReport
    from stepflow.model.scenario import ValidatorWord

#: Stands where one side has nothing.
NOTHING = "–"
NO_FILE = "no such file"
LINE_BREAK_AT_END = "⏎"
#: A run that ends like this was not rehearsed at all; a scenario that means it says so.
NOT_PLAYED = frozenset({Outcome.MODEL_FAILED, Outcome.INTERNAL_ERROR, Outcome.INVALID_DEFINITION})
#: Whoever plays these again runs out of turns.
UNFINISHED = NOT_PLAYED | {Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.BUDGET_EXHAUSTED}
_USUAL_TURNS = Inputs.model_fields["max_turns_per_step"].default
MOST_BYTES = 1024 * 1024
CONTEXT = 2


def came_of(report: RunReport, ran: Iterable[ValidatorRan], files: Mapping[str, str | None]) -> Expect:
    """Everything that `expect` can say, as it was in this run."""
    return Expect(
        outcome=report.outcome,
        steps=tuple(line.step_id for line in report.history),
        effects=tuple(effect.kind for effect in report.effects),
        validators=validators_of(ran),
        files=dict(files),
    )


def expect_of_recording(report: RunReport, ran: Iterable[ValidatorRan], inputs: Inputs) -> Expect | None:
    """What a recorded run will come to when it is played again, where nothing outside decides anything.

    None where its turns do not lead to an end. Effects are left out: they depend on the label that started the run.
    """
    outcome = _played_again(report, inputs)
    if outcome is None:
        return None
    steps = tuple(line.step_id for line in report.history)
    return Expect(outcome=outcome, steps=steps, validators=validators_of(ran))


def validators_of(ran: Iterable[ValidatorRan]) -> dict[str, tuple[ValidatorWord, ...]]:
    """Each validator's results in order."""
    found: dict[str, tuple[ValidatorWord, ...]] = {}
    for each in ran:
        found[each.name] = (*found.get(each.name, ()), _word(each))
    return found


def differences(expect: Expect | None, came: Expect) -> tuple[Difference, ...]:
    """Every key of `expect` that is not as it came. Without `expect` the run only has to complete."""
    given = expect or Expect(outcome=Outcome.COMPLETED)
    found = (
        *_outcome(given.outcome, came.outcome),
        *_sequence("steps", given.steps, came.steps),
        *_validators(given.validators, came.validators or {}),
        *_sequence("effects", given.effects, came.effects),
        *(each for path in given.files or {} for each in _file(path, given, came)),
    )
    return tuple(found)


def read_files(root: Path, paths: Iterable[str]) -> dict[str, str | None]:
    """The named files as text; None for one that is not there. No link is followed: tools may have made it."""
    return {path: _read(root, path) for path in paths}


def _played_again(report: RunReport, inputs: Inputs) -> Outcome | None:
    match report.outcome:
        case Outcome.BOUNDARY_FAILED:
            return Outcome.COMPLETED
        case Outcome.REFUSED if report.effects:
            # The plan was fine, the writing was not.
            return Outcome.COMPLETED
        case Outcome.REFUSED:
            return Outcome.REFUSED if report.history else None
        case Outcome.LIMIT_REACHED:
            own = inputs.max_iterations or inputs.max_visits_per_step or inputs.max_turns_per_step != _USUAL_TURNS
            return None if own else Outcome.LIMIT_REACHED
        case outcome:
            return None if outcome in UNFINISHED else outcome


def _word(ran: ValidatorRan) -> ValidatorWord:
    if ran.passed:
        return "pass"
    if ran.action is FailureAction.SKIP:
        return "skipped"
    return "fail" if ran.recoverable else "unrecoverable"


def _outcome(expected: Outcome | None, came: Outcome | None) -> Iterator[Difference]:
    if expected is None and came not in NOT_PLAYED:
        return
    if expected is not came:
        yield Difference(
            what="outcome", rows=(Row(place="", expected=expected or "another end", came=came or NOTHING),)
        )


def _sequence(what: str, expected: Sequence[str] | None, came: Sequence[str] | None) -> Iterator[Difference]:
    if expected is not None and list(expected) != list(came or ()):
        yield Difference(what=what, rows=tuple(_aligned(expected, came or ())))


def _aligned(expected: Sequence[str], came: Sequence[str]) -> Iterator[Row]:
    """Both lists side by side; `place` is the number in what came, or in what was expected where nothing came."""
    for _, left, left_end, right, right_end in SequenceMatcher(a=expected, b=came, autojunk=False).get_opcodes():
        numbers = zip_longest(range(left, left_end), range(right, right_end))
        for at, to in numbers:
            number = at if to is None else to
            yield Row(
                place="" if number is None else str(number + 1),
                expected=NOTHING if at is None else expected[at],
                came=NOTHING if to is None else came[to],
            )


def _validators(
    expected: Mapping[str, Sequence[str]] | None, came: Mapping[str, Sequence[str]]
) -> Iterator[Difference]:
    if expected is None or {name: tuple(words) for name, words in expected.items()} == came:
        return
    names = dict.fromkeys((*expected, *came))
    rows = (Row(place=name, expected=_words(expected.get(name)), came=_words(came.get(name))) for name in names)
    yield Difference(what="validators", rows=tuple(rows))


def _words(words: Sequence[str] | None) -> str:
    return ", ".join(words) if words else NOTHING


def _file(path: str, given: Expect, came: Expect) -> Iterator[Difference]:
    expected, found = (given.files or {})[path], (came.files or {}).get(path)
    if expected == found:
        return
    if expected is None or found is None:
        rows: tuple[Row, ...] = (Row(place="", expected=_there(expected), came=_there(found)),)
    else:
        rows = tuple(_near([*_aligned(_lines(expected), _lines(found))]))
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


def _read(root: Path, path: str) -> str | None:
    try:
        return read_below(root, path, limit=MOST_BYTES).decode("utf-8", "replace")
    except FileRefused as refused:
        return None if refused.why is Why.MISSING else f"({_REFUSED.get(refused.why, refused.message)})"


_REFUSED = {
    Why.LINK: "a symbolic link",
    Why.IRREGULAR: "no regular file",
    Why.LARGE: f"more than {MOST_BYTES} bytes",
}
