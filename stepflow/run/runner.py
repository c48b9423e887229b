"""The Python API: an agent definition run from a program (flow.md §12)."""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stepflow.domain.checkout import Closing, GuardDiagnostics
from stepflow.domain.effect import EffectStatus, describe_effect
from stepflow.domain.event import EffectApplied, EffectPlanned, Noted, RunFinished
from stepflow.domain.figures import count
from stepflow.domain.report import AgentResult
from stepflow.domain.run import Issue, RunFacts
from stepflow.domain.state import fold
from stepflow.domain.words import Isolation, Outcome
from stepflow.engine.loop import run_flow
from stepflow.engine.prompt.intake.sanitize import sanitize
from stepflow.journal.writer import Fanout, MemoryJournal
from stepflow.model.scripted import ScriptedModel
from stepflow.ports import Ports
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.log import log_entries
from stepflow.run.clock import (
    Cancellation,
    Deadline,
    InterruptibleClock,
    InterruptibleModel,
    RehearsalClock,
    SystemClock,
    TimelyCommands,
    TimelyTools,
)
from stepflow.run.ending import Ending
from stepflow.run.execute import PhaseTracker, guarded, validators_of
from stepflow.run.parts import LoadedSchemas, open_cache, open_verdict, run_started
from stepflow.run.prepare import run_arguments
from stepflow.run.sandbox import demand_nothing_in_reach, open_toolbox, open_tools
from stepflow.run.subject.issue import removal_event
from stepflow.sandbox.options import ToolboxOptions
from stepflow.sandbox.selftest import Outside
from stepflow.sandbox.workspace import given_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import AgentDefinition, Validator
    from stepflow.domain.effect import Effect, Receipt
    from stepflow.domain.event import Entry, TextRemoved
    from stepflow.domain.json import JsonValue
    from stepflow.domain.run import Limits
    from stepflow.ports import Clock, Commands, Guards, Journal, Model, Schemas, Tools
    from stepflow.report.log import LogEntry
    from stepflow.sandbox.box import Toolbox


SANDBOX = ToolboxOptions(isolation=Isolation.BEST_EFFORT)


class NoGuards:
    """For commands of the caller: what stands behind them is the caller's to look at."""

    def closing(self) -> Closing:
        """Not known."""
        return Closing()

    def look_again(self, _validator: Validator, *, passed: bool) -> GuardDiagnostics:
        """Nothing was found."""
        return GuardDiagnostics()


class Boundary(Protocol):
    """What changes the outside after a completed flow; called once per run, never after any other outcome."""

    def plan(self, agent: AgentDefinition, facts: RunFacts, result: FlowResult) -> Sequence[Effect]:
        """The effects that the closing answer asks for; pure."""
        ...

    def apply(self, effects: Sequence[Effect]) -> Iterable[Receipt]:
        """Write the effects in order, and give a receipt as soon as each is through. A receipt of a failed effect, or
        a `BoundaryError`, fails the run."""
        ...


def finish_outside(
    boundary: Boundary | None, agent: AgentDefinition, facts: RunFacts, result: FlowResult, journal: Journal
) -> Ending:
    """Plan, write down, apply. Without a boundary the plan is empty (flow.md §12)."""
    effects = tuple(boundary.plan(agent, facts, result)) if boundary else ()
    for effect in effects:
        journal.append(EffectPlanned(kind=effect.kind, detail=describe_effect(effect)))
    _note(journal, "info", f"planned {count(len(effects), 'effect')}")
    for receipt in boundary.apply(effects) if boundary else ():
        journal.append(EffectApplied(**vars(receipt)))
        if receipt.status is EffectStatus.FAILED:
            _note(journal, "error", f"failed: {receipt.kind}")
            reason = f"Completion loop: {receipt.kind} failed: {receipt.detail}"
            return Ending(outcome=Outcome.BOUNDARY_FAILED, reason=reason)
    if boundary:
        _note(journal, "info", "applied")
    return Ending(outcome=result.outcome, reason=result.reason)


def _note(journal: Journal, level: str, message: str) -> None:
    journal.append(Noted(level=level, message=f"[Boundary] {message}"))


class StepFlowRunner:
    """Runs one agent. It may run several times, also at once; runs share nothing but the parts that were given.

    `tools` and `commands` run what the model and the validators ask for. Where one of them is None, every run starts a
    toolbox in its folder: a process that sees no secret of this one's, with all the isolation that this machine offers.
    Without a `boundary` nothing outside changes and an empty plan is recorded. `limits` replaces the agent's own limit
    of iterations. `log` is called with every log entry as it happens.
    """

    def __init__(
        self,
        definition: AgentDefinition,
        *,
        model: Model,
        tools: Tools | None = None,
        boundary: Boundary | None = None,
        commands: Commands | None = None,
        limits: Limits | None = None,
        log: Callable[[LogEntry], None] | None = None,
        schemas: Schemas | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._agent = definition
        self._model = model
        self._tools = tools
        self._commands = commands
        self._boundary = boundary
        own = limits or definition.verdict.limits
        self._limits = replace(own, iterations=definition.cap(own.iterations))
        self._log = log
        self._schemas = schemas or LoadedSchemas()
        # Nobody waits for a scripted model to be less busy.
        self._clock = clock or (RehearsalClock() if isinstance(model, ScriptedModel) else SystemClock())

    def run(
        self,
        args: Mapping[str, JsonValue] | None = None,
        *,
        cwd: str | PathLike[str] | None = None,
        variables: Mapping[str, JsonValue] | None = None,
        context_text: str = "",
        input_text: str | None = None,
    ) -> AgentResult:
        """Run the agent in the folder `cwd` (default: the current one) and give the result, whatever happened. It works
        in the folder itself, and its tools can read all that is there: give it a clone of its own, without a login.
        SIGINT (Ctrl-C) and SIGTERM end the run with the outcome `cancelled`.

        `args` are values for the agent's parameters; `args["issue"]` is the number of the issue. `variables` are more
        `{uv-…}` for the prompts, `context_text` is shown to every step as data (the issue's text, say; what people
        would not see of it on GitHub's page is taken out), `input_text` fills `{input_text}`.
        """
        run_id, root, given = secrets.token_hex(6), str(Path(cwd or ".").resolve()), dict(args or {})
        memory, phase = MemoryJournal(self._clock), PhaseTracker()
        journal = Fanout(memory, phase, self._log_entry)
        context = sanitize(context_text.strip(), "context_text")

        cancellation = Cancellation()
        cancellation.hold()

        def played() -> Ending:
            checked, _ = run_arguments(self._agent, given, _number(given.get("issue")))
            number = _number(checked.get("issue"))
            facts = RunFacts(
                run_id=run_id,
                root=root,
                limits=self._limits,
                nonce=secrets.token_hex(12),
                issue=None if number is None else Issue(number=number),
                args=checked,
                variables=dict(variables or {}),
                context_text=context.text,
                input_text=input_text,
            )
            return self._played(facts, removal_event(context), journal, cancellation)

        # Python gives signals to the main thread alone; a run in another one goes on.
        on_main = threading.current_thread() is threading.main_thread()
        with cancellation.listening() if on_main else nullcontext():
            ending = guarded(played, journal, phase)
        success = ending.outcome is Outcome.COMPLETED
        journal.append(RunFinished(outcome=ending.outcome, reason=ending.reason, success=success))
        facts = ReportFacts(
            run_id=run_id, issue=_number(given.get("issue")), problems=self._agent.problems, code=ending.code
        )
        return AgentResult.of(collect_report(memory.entries, self._agent, facts=facts))

    def _log_entry(self, entry: Entry) -> None:
        if self._log:
            for logged in log_entries(entry):
                self._log(logged)

    @contextmanager
    def _opened(
        self, root: Path, cancellation: Cancellation, deadline: Deadline
    ) -> Iterator[tuple[Tools, Commands, Toolbox | None]]:
        """The caller's parts; for each that is None, a toolbox in the folder that lives as long as the block."""
        if self._tools is not None and self._commands is not None:
            yield self._tools, self._commands, None
            return

        with (
            given_back(root),
            open_toolbox(root, SANDBOX, cancellation) as toolbox,
            open_tools(toolbox, self._agent.mcp_servers, cancellation, deadline=deadline) as tools,
        ):
            yield self._tools or tools, self._commands or toolbox, toolbox

    def _played(
        self, facts: RunFacts, removal: TextRemoved | None, journal: Journal, cancellation: Cancellation
    ) -> Ending:
        clock = InterruptibleClock(self._clock, cancellation)
        deadline = Deadline(clock=clock, at=facts.limits.deadline)
        with self._opened(Path(facts.root), cancellation, deadline) as (tools, commands, toolbox):
            guards: Guards = NoGuards()
            if toolbox:
                facts = replace(facts, base_commit=toolbox.tree().commit)
                guards = guards if self._commands else toolbox.guards(validators_of(self._agent))
            started = run_started(self._agent, facts, toolbox.isolation if toolbox else {})
            journal.append(started)
            if removal:
                journal.append(removal)
            if toolbox:
                for warning in toolbox.warnings:
                    journal.append(Noted(level="warning", message=f"[Isolation] {warning}"))
                demand_nothing_in_reach(toolbox, Outside(environment=os.environ), SANDBOX.isolation, journal)
            ports = Ports(
                model=InterruptibleModel(self._model, cancellation),
                tools=TimelyTools(tools=tools, deadline=deadline, usual=SANDBOX.bash_timeout),
                commands=TimelyCommands(commands=commands, deadline=deadline),
                guards=guards,
                schemas=self._schemas,
                journal=journal,
                clock=clock,
                verdict=open_verdict(self._agent, facts.args),
                cache=open_cache(self._model, toolbox, cancellation) if toolbox else None,
            )
            result = run_flow(self._agent, facts, ports, fold([started]))
            tools.end_step()
        cancellation.check()
        if result.outcome is not Outcome.COMPLETED:
            return Ending(outcome=result.outcome, reason=result.reason)
        return finish_outside(self._boundary, self._agent, facts, result, journal)


def _number(value: JsonValue) -> int | None:
    """An issue's number, also where it was given as text."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isascii() and text.isdigit() else None
