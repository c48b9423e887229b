"""One scenario played in a copy of the checkout.

Takes: a run request for the copy. Gives: `Played`: what came, and how it differs from what the scenario expects.
May touch: the copy; the run folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.event import ValidatorRan
from stepflow.domain.figures import count
from stepflow.domain.rehearsal import Rehearsed
from stepflow.errors import DefinitionError, InputError
from stepflow.model.scenario import Expect
from stepflow.model.scenario_file import parse_scenario, place_of, read_scenario
from stepflow.model.scripted import ScriptedModel
from stepflow.report.watch import TerminalLog
from stepflow.run.clock import RehearsalClock
from stepflow.run.drive import drive_run
from stepflow.run.ending import outcome_of
from stepflow.run.expected import came_of, differences, read_files
from stepflow.run.prepare import prepare_run

if TYPE_CHECKING:
    from stepflow.domain.event import Entry
    from stepflow.run.cancel import Cancellation
    from stepflow.run.prepare import Prepared
    from stepflow.run.request import RunRequest


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A scenario that is to be played."""

    agent: str
    name: str

    @property
    def file(self) -> str:
        """Where it stands, relative to the repository."""
        return f".agent/{self.agent}/scenarios/{self.name}.yaml"


@dataclass(frozen=True, kw_only=True)
class Played:
    """`expect` is the scenario's, None where it has none or cannot be read; `came` answers each of its keys."""

    rehearsed: Rehearsed
    expect: Expect | None
    came: Expect


def play_scenario(request: RunRequest, listed: Listed, cancellation: Cancellation) -> Played:
    """Play it through. What keeps it from beginning is an ending too, which a scenario may expect."""
    clock = RehearsalClock()
    begun = clock.now()
    expect: Expect | None = None
    text = ""
    try:
        # Read here, once: after the run it is a file that tools may have changed.
        text = read_scenario(listed.file, root=request.root)
        expect = parse_scenario(text, name=listed.file).expect
        ended = _driven(prepare_run(request, now=begun), expect, clock, cancellation)
    except (InputError, DefinitionError) as error:
        told = str(error).replace(f"{request.root}/", "")
        ended = _Ended(came=Expect(outcome=outcome_of(error)), reason=request.redactor(told))
    rehearsed = Rehearsed(
        agent=listed.agent,
        name=listed.name,
        file=listed.file,
        line=place_of(text, "expect"),
        outcome=ended.came.outcome or outcome_of(InputError("")),
        reason=ended.reason,
        iterations=len(ended.came.steps or ()),
        seconds=clock.now() - begun,
        differences=differences(expect, ended.came),
        notes=ended.notes,
        story=ended.story,
        run_folder=ended.run_folder,
    )
    return Played(rehearsed=rehearsed, expect=expect, came=ended.came)


@dataclass(frozen=True, kw_only=True)
class _Ended:
    came: Expect
    reason: str
    notes: tuple[str, ...] = ()
    story: tuple[str, ...] = ()
    run_folder: str = ""


@dataclass(kw_only=True)
class _Listener:
    """Keeps of a run what its report does not have: the log, and each validator's result in full."""

    story: list[str] = field(default_factory=list)
    ran: list[ValidatorRan] = field(default_factory=list)
    _log: TerminalLog = field(default_factory=TerminalLog)

    def __call__(self, entry: Entry) -> None:
        """Follow one entry."""
        self.story.extend(self._log.render(entry))
        if isinstance(entry.event, ValidatorRan):
            self.ran.append(entry.event)


def _driven(prepared: Prepared, expect: Expect | None, clock: RehearsalClock, cancellation: Cancellation) -> _Ended:
    request, listener = prepared.request, _Listener()
    report = drive_run(prepared, clock=clock, cancellation=cancellation, listeners=(listener,)).report
    found = read_files(request.root, (expect.files if expect else None) or ())
    files = {path: None if text is None else request.redactor(text) for path, text in found.items()}
    return _Ended(
        came=came_of(report, listener.ran, files),
        reason=report.reason,
        notes=_leftover(prepared),
        story=tuple(listener.story),
        run_folder=report.host_run_folder or report.run_folder,
    )


def _leftover(prepared: Prepared) -> tuple[str, ...]:
    left = prepared.model.leftover if isinstance(prepared.model, ScriptedModel) else 0
    return (f"{count(left, 'turn')} of the scenario {'was' if left == 1 else 'were'} not played",) if left else ()
