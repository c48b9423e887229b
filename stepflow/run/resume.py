"""Whether a run goes on with an earlier one, and with what (action.md "Resume")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.event import AnswerLost, IterationStarted, RunResumed, StrategyChosen
from stepflow.domain.run import name_in
from stepflow.domain.state import fold
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.errors import InputError
from stepflow.journal.reader import iter_journal
from stepflow.journal.replay import safe_point
from stepflow.journal.snapshots import SnapshotStore
from stepflow.model.scripted import played_out
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.run.head import find_git_folders
from stepflow.run.recorded import (
    JOURNAL,
    PreviousRun,
    known_heads,
    look_into,
    receipts_of,
    recorded_answers,
    recorded_turns,
    scenario_position,
    snapshots_of_run,
    was_at_work,
)
from stepflow.run.snapshots import FOLDER

if TYPE_CHECKING:
    from stepflow.domain.conversation import ModelTurn
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import Receipt
    from stepflow.domain.event import Event, RunStarted
    from stepflow.domain.json import JsonObject
    from stepflow.domain.report import RunReport
    from stepflow.domain.state import RunState
    from stepflow.model.scenario import Scenario
    from stepflow.ports import CustomVerdict
    from stepflow.run.inputs import Inputs
    from stepflow.run.recorded import RunSnapshots
    from stepflow.run.request import RunRequest

AUTO, NEVER = "auto", "never"


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """The run begins anew. `aside` is the id of an earlier run whose folder must be moved first, None without one;
    `notice` says why nothing goes on."""

    aside: str | None = None
    notice: str = ""


@dataclass(frozen=True, kw_only=True)
class ResumedRun:
    """An earlier run that goes on: all its events, of which `safe` stand as they are."""

    events: tuple[Event, ...]
    started: RunStarted

    @cached_property
    def safe(self) -> int:
        """How many events stand as they are."""
        return safe_point(self.events)

    @cached_property
    def state(self) -> RunState:
        """The state that the flow goes on from. Turns that are played again are counted then; an answer that was lost
        is not asked for again, and paid all the same."""
        lost = (event for event in self.played if isinstance(event, AnswerLost))
        return fold(lost, fold(self.events[: self.safe]))

    @property
    def played(self) -> tuple[Event, ...]:
        """What is played again."""
        return self.events[self.safe :]

    def to_play(self, structured_output: StructuredOutput) -> tuple[Event, ...]:
        """The same without moves to another strategy where one is given now: the run then makes none."""
        if structured_output is StructuredOutput.AUTO:
            return self.played
        return tuple(event for event in self.played if not isinstance(event, StrategyChosen))

    @cached_property
    def snapshots(self) -> RunSnapshots:
        """The run's snapshots."""
        return snapshots_of_run(self.events)

    @cached_property
    def iteration(self) -> int:
        """The last iteration that began."""
        return fold(self.events).iteration

    @property
    def resumed(self) -> RunResumed:
        """The event that says so."""
        begun = next((event for event in self.played if isinstance(event, IterationStarted)), None)
        return RunResumed(
            events=len(self.events),
            from_seq=self.safe,
            iteration=self.iteration,
            step_id=begun.step_id if begun else "",
            attempts=dict(self.state.attempts),
            snapshot=self.snapshots.latest,
        )

    def receipts(self, iterations: int) -> tuple[Receipt, ...]:
        """What the boundary has written already, after a flow that has had so many iterations: none of it counts when
        the flow has gone on."""
        return receipts_of(self.events) if iterations == self.iteration else ()

    def position(self, scenario: Scenario) -> dict[str, int]:
        """Where a scripted model goes on."""

        queues = {queue: played_out(turns) for queue, turns in scenario.queues().items()}
        return scenario_position(self.events, queues)

    def turns(self) -> tuple[tuple[str, ModelTurn], ...]:
        """Every turn of the model, with the step that asked, as a recording keeps them."""
        return recorded_turns(self.events)

    def feed(self, verdict: CustomVerdict) -> None:
        """Tell the agent's own verdict what it has been told before."""
        for resumed_run in recorded_answers(self.events[: self.safe]):
            verdict.is_finished(resumed_run.iteration, resumed_run.texts, resumed_run.answer)

    def request(self, request: RunRequest) -> RunRequest:
        """The request under the run's own id, about the issue as it was shown. Who asks now, and what for, stays."""
        trigger, inputs = request.trigger, request.inputs
        label = self.started.started_by.label
        starts = label is not None and any(
            name_in(label, pattern) in ("", self.started.agent) for pattern in inputs.trigger_labels
        )
        return replace(
            request,
            run_id=self.started.run_id,
            trigger=replace(
                trigger,
                issue=self.started.subject if self.started.started_by.from_github else None,
                label=trigger.label or (label if starts else None),
                default_branch=trigger.default_branch or self.started.base_branch,
            ),
        )


def chosen_folder(inputs: Inputs, default: Path) -> Path:
    """The run folder: that of the run which `resume` names, else `run-folder`, else the default."""
    given = Path(inputs.run_folder).resolve() if inputs.run_folder else None
    if not is_explicit(inputs):
        return given or default
    resumed = Path(inputs.resume).resolve()
    if given not in (None, resumed):
        raise InputError(
            f"The input resume names the run folder {resumed}, and run-folder another one: {given}.",
            hint="A run goes on in its own folder: leave out run-folder, or set `resume: auto`.",
        )
    return resumed


def is_explicit(inputs: Inputs) -> bool:
    """Whether one certain run shall go on."""
    return inputs.resume not in (AUTO, NEVER)


def find_previous_run(
    request: RunRequest, agent: AgentDefinition, args: JsonObject, issue: int | None
) -> ResumedRun | NewRun:
    """The run that goes on, if one does. A folder that does not fit is an `InputError` only where it was named."""
    previous_run = look_into(request.folder)
    explicit = is_explicit(request.inputs)
    if previous_run is None:
        if explicit:
            raise InputError(
                f"There is no run to resume in {request.folder}: it holds no journal.jsonl.",
                hint="Name the run folder of an earlier run in the input resume.",
            )
        return NewRun()
    reason = _never(request) or previous_run.problem or _mismatch(previous_run, request, agent, args, issue)
    if not reason:
        return ResumedRun(events=previous_run.events, started=previous_run.started)
    if explicit:
        raise InputError(
            f"The run in {request.folder} cannot go on: {reason}.",
            hint="Start a new run without the input resume.",
        )
    notice = f"A new run begins; the earlier one in the run folder does not go on: {reason}."
    return NewRun(aside=previous_run.run_id, notice=notice)


def completed_report(request: RunRequest) -> RunReport | None:
    """The report of the run that shall go on, if it is complete: then nothing is left to do."""
    previous_run = look_into(request.folder) if is_explicit(request.inputs) else None
    if previous_run is None or previous_run.ended is None or previous_run.ended.outcome is not Outcome.COMPLETED:
        return None
    # Loaded here: no other run needs a report before it has ended.

    facts = ReportFacts(run_folder=str(request.folder), host_run_folder=request.host_folder)
    return collect_report(iter_journal(request.folder / JOURNAL), facts=facts)


def _never(request: RunRequest) -> str:
    return "the input resume is `never`" if request.inputs.resume == NEVER else ""


def _mismatch(
    previous_run: PreviousRun, request: RunRequest, agent: AgentDefinition, args: JsonObject, issue: int | None
) -> str:
    """What of the run is not what is asked for now; empty when all fits."""
    started = previous_run.started
    pairs = {
        "another agent": (started.agent, agent.name),
        "another version of the agent": (started.definition_digest, agent.digest),
        "another repository": (started.repository, request.repository),
        "another issue": (started.issue, issue),
        "other run arguments": (started.args, args),
    }
    if differing := [name for name, (then, now) in pairs.items() if then != now]:
        return f"it is of {', '.join(differing)}"
    if fold(previous_run.events[: safe_point(previous_run.events)]).step_id not in agent.steps:
        return "it stands at a step that the agent does not have"
    # A copy is made at the commit where the run began.
    if not request.source and not _stands_there(previous_run, request.root):
        return "it began at another commit than the one checked out"
    return _lost_snapshot(snapshots_of_run(previous_run.events), SnapshotStore(request.folder / FOLDER))


def _lost_snapshot(snapshots: RunSnapshots, store: SnapshotStore) -> str:
    """Why the working tree cannot be put back; empty when it can, as far as can be told before."""
    if not snapshots.is_whole:
        return "the last snapshot of its working tree failed"
    try:
        for name in {snapshots.start, snapshots.latest} - {""}:
            store.resolve(name)
    except InputError as error:
        return error.message.rstrip(".")
    return ""


def _stands_there(previous_run: PreviousRun, root: Path) -> bool:
    """Whether the checkout is at the commit where the run began, or has been there and is where its own steps have led
    it. The commits are judged against the base, and pushed with all that lies below it: a folder's word is not enough.
    """
    git = find_git_folders(root)
    base, head = previous_run.started.base_commit, git.head()
    if head == base:
        return True
    return git.stood_on(base) and (head in known_heads(previous_run.events) or was_at_work(previous_run.events))
