"""What came of playing an agent's scenarios (cli.md `stepflow rehearse`).

Takes: nothing. Gives: `Rehearsal`: each scenario with what was expected and did not come.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.domain.words import Outcome


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a comparison. `place` says where: an iteration, a validator, a line of a file."""

    place: str
    expected: str
    came: str

    @property
    def same(self) -> bool:
        """True for a row that only shows what stands around a difference."""
        return self.expected == self.came


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`what` was compared: a key of `expect`, with the file's name for one of `files`."""

    what: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One scenario. `file` is relative to the repository, `line` where its `expect` stands; `reason` is the run's.

    `updated`: the differences were written into the file as what is expected from now on; `refusal` says why they were
    not although that was asked for. `story` is the run's log; `run_folder` is empty for a run that could not begin.
    """

    agent: str
    name: str
    file: str
    line: int
    outcome: Outcome
    reason: str
    iterations: int = 0
    seconds: float = 0.0
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    updated: bool = False
    refusal: str = ""
    story: tuple[str, ...] = ()
    run_folder: str = ""

    @property
    def passed(self) -> bool:
        """What came is what is expected, if only since now."""
        return self.updated or not self.differences


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Every scenario in the order of playing, and the agents that have none."""

    scenarios: tuple[Rehearsed, ...]
    unrehearsed: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Rehearsed, ...]:
        """The scenarios that differ."""
        return tuple(each for each in self.scenarios if not each.passed)

    @property
    def outcome(self) -> Outcome:
        """A scenario is a check of the agent: where one differs, validation failed."""
        return Outcome.VALIDATION_FAILED if self.failed else Outcome.COMPLETED
