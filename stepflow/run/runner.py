"""The Python API: run an agent definition from a program."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Protocol

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.effect import Effect, EffectStatus, Receipt, describe_effect
from stepflow.domain.event import EffectApplied, EffectPlanned, Entry, FlowEnded
from stepflow.domain.json import JsonValue
from stepflow.domain.reports.report import AgentResult
from stepflow.domain.run import Issue, Limits, RunFacts
from stepflow.domain.secrets import login_of
from stepflow.domain.text import count
from stepflow.domain.words import Isolation, Outcome, Provider
from stepflow.engine.prompt.sanitize import sanitize
from stepflow.errors import RunCancelled
from stepflow.model.scenario import ScriptedModel
from stepflow.ports import Clock, Commands, Model, Schemas, Tools
from stepflow.report.collect import ReportFacts
from stepflow.run.clock import Cancellation, RehearsalClock, SystemClock
from stepflow.run.ending import Ending, collect_run, report_error
from stepflow.run.execute import drive_run
from stepflow.run.finish import Run
from stepflow.run.prepare import LoadedSchemas, Prepared, run_arguments
from stepflow.run.readiness import check_readiness
from stepflow.run.request import RunRequest, narrow_network
from stepflow.run.start.input_maps import ModelInput
from stepflow.run.start.inputs import BoundaryMode, Inputs
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import Workspace, bring_back, open_workspace
from stepflow.sandbox.workspace import GIT, given_back, remove_folder, temporary_folder

#: The caller brings its own model and boundary, so the inputs ask for neither.
INPUTS = Inputs(
    model=ModelInput(provider=Provider.SCRIPTED),
    boundary=BoundaryMode.DRY_RUN,
    isolation=Isolation.BEST_EFFORT,
)


class Boundary(Protocol):
    """Changes the outside world after a completed flow. It is called once per run, and only after that outcome."""

    def plan(self, agent: AgentDefinition, facts: RunFacts, result: FlowEnded) -> Sequence[Effect]:
        """Return the effects that the closing answer asks for; pure."""
        ...

    def apply(self, effects: Sequence[Effect]) -> Iterable[Receipt]:
        """Write the effects in order and yield a receipt as soon as each is done. A receipt of a failed effect, or a
        `BoundaryError`, fails the run."""
        ...


@dataclass(frozen=True, eq=False)
class StepFlowRunner:
    """Runs one agent, as often as wanted and also concurrently. Runs share nothing but the parts given here.

    Without `tools` and `commands`, every run has a sandbox: a process that sees no secret of this one, with all the
    isolation that this machine offers, in a copy of the folder. If only one of them is given, the sandbox replaces the
    other one and works in the folder itself, so that both see the same files.
    """

    definition: AgentDefinition
    _: KW_ONLY
    model: Model
    #: Run what the model calls.
    tools: Tools | None = None
    #: Without it, nothing outside changes and the recorded plan is empty.
    boundary: Boundary | None = None
    #: Run the validators and command steps.
    commands: Commands | None = None
    #: Replaces the agent's own limits.
    limits: Limits | None = None
    #: Called with every entry of the journal as it happens.
    log: Callable[[Entry], None] | None = None
    schemas: Schemas | None = None
    clock: Clock | None = None

    def run(
        self,
        args: Mapping[str, JsonValue] | None = None,
        *,
        cwd: str | PathLike[str] | None = None,
        variables: Mapping[str, JsonValue] | None = None,
        context_text: str = "",
        input_text: str | None = None,
    ) -> AgentResult:
        """Run the agent on the folder `cwd` (default: the current one) and return the result, whatever happened. SIGINT
        (Ctrl-C) and SIGTERM end the run with the outcome `cancelled`.

        Without the caller's own `tools` and `commands`, the agent works in a copy of the folder, and only its commits
        come back: after a completed run, the branch that is checked out in `cwd` moves to them before the `boundary` is
        called. If it cannot move, and after any other outcome, the commits are on a separate branch, which the log
        names.

        `args` are values for the agent's parameters; `args["issue"]` is the number of the issue. `variables` are more
        `{uv-…}` for the prompts, and `input_text` fills `{input_text}`. `context_text`, such as the issue's text, is
        shown to every step as data, without anything that GitHub's page would hide from people.
        """
        agent, values, root = self.definition, dict(args or {}), Path(cwd or ".").resolve()
        clock = self.clock or (RehearsalClock() if isinstance(self.model, ScriptedModel) else SystemClock())
        request, cancellation = self._request(root, _number(values.get("issue"))), Cancellation()
        known = ReportFacts(run_id=request.run_id, issue=request.trigger.issue_number, problems=agent.problems)
        cancellation.hold()
        # Python delivers signals to the main thread only; they do not end a run in another one.
        on_main = threading.current_thread() is threading.main_thread()
        try:
            with (
                cancellation.listening() if on_main else nullcontext(),
                self._open(narrow_network(request, agent)) as (opened, workspace),
            ):
                prepared = replace(
                    self._prepare(opened, values, context_text), variables=dict(variables or {}), input_text=input_text
                )
                if workspace:
                    workspace.fill(prepared, cancellation)

                def finish(run: Run, result: FlowEnded) -> Ending:
                    if workspace:
                        _bring_work_back(workspace, run, result)
                    return self._finish(replace(run, facts=replace(run.facts, root=str(root))), result)

                listeners = (self.log,) if self.log else ()
                report = drive_run(
                    prepared, clock=clock, cancellation=cancellation, listeners=listeners, finish=finish
                ).report
        except (RunCancelled, Exception) as error:  # noqa: BLE001 - a program gets a result, whatever happened
            report = report_error(error, known)
        # The folder is gone.
        return AgentResult.of(replace(report, run_folder=""))

    def _request(self, root: Path, issue: int | None) -> RunRequest:
        return RunRequest(
            run_id=secrets.token_hex(6),
            inputs=INPUTS,
            trigger=Trigger(agent=self.definition.name, issue_number=issue),
            root=root,
            folder=root,
            environment=dict(os.environ),
            login=login_of(os.environ),
        )

    def _prepare(self, request: RunRequest, values: Mapping[str, JsonValue], context_text: str) -> Prepared:
        agent, limits = self.definition, self.limits or self.definition.verdict.limits
        args, _ = run_arguments(agent, values, request.trigger.issue_number)
        number = _number(args.get("issue"))
        return Prepared(
            request=request,
            agent=agent,
            args=args,
            issue=None if number is None else Issue(number=number),
            model=self.model,
            limits=replace(limits, iterations=agent.cap(limits.iterations)),
            context=sanitize(context_text.strip(), "context_text"),
            schemas=self.schemas or LoadedSchemas(),
            tools=self.tools,
            commands=self.commands,
        )

    @contextmanager
    def _open(self, request: RunRequest) -> Iterator[tuple[RunRequest, Workspace | None]]:
        """Give the request a run folder and open its workspace. If the caller brings its own tools or commands, there
        is no workspace: they know only the folder, so everything works there."""
        with ExitStack() as places:
            request = replace(request, folder=places.enter_context(temporary_folder(request.root)))
            # The program may start many runs and be the first process of a container, so do not leave files behind.
            places.callback(remove_folder, request.folder)
            if self.tools is None and self.commands is None:
                request = replace(request, in_place=os.path.lexists(request.root / GIT))
                if request.in_place:
                    check_readiness(request, self.definition)
                workspace = places.enter_context(open_workspace(request))
                places.callback(remove_folder, workspace.request.root.parent)
                yield workspace.request, workspace
            else:
                if self.tools is None or self.commands is None:
                    places.enter_context(given_back(request.root))
                yield request, None

    def _finish(self, run: Run, result: FlowEnded) -> Ending:
        """Plan and apply the effects of a completed flow, and record both. Without a boundary the plan is empty."""
        boundary, ending = self.boundary, Ending(outcome=result.outcome, stage=result.stage, reason=result.reason)
        if result.outcome is not Outcome.COMPLETED:
            return ending
        effects = tuple(boundary.plan(self.definition, run.facts, result)) if boundary else ()
        for effect in effects:
            run.journal.append(EffectPlanned(kind=effect.kind, detail=describe_effect(effect)))
        run.note("debug", f"[Boundary] planned {count(len(effects), 'effect')}")
        for receipt in boundary.apply(effects) if boundary else ():
            run.journal.append(EffectApplied(**vars(receipt)))
            if receipt.status is EffectStatus.FAILED:
                run.note("error", f"[Boundary] failed: {receipt.kind}")
                reason = f"{receipt.kind} failed: {receipt.detail}"
                return Ending(outcome=Outcome.BOUNDARY_FAILED, reason=reason)
        if boundary:
            run.note("info", "[Boundary] applied")
        return ending


def _bring_work_back(workspace: Workspace, run: Run, result: FlowEnded) -> None:
    """Move the caller's branch to the commits of a complete run, or keep them on a separate branch and log its name."""
    before = workspace.before if result.outcome is Outcome.COMPLETED else None
    branch, moved = bring_back(run.request, collect_run(run.prepared), before)
    if branch and not moved:
        run.note("warning", f"[Work] the commits of this run are on the branch {branch}")


def _number(value: JsonValue) -> int | None:
    """Convert an issue's number, which may be given as a string."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isascii() and text.isdigit() else None
