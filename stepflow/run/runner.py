"""The Python API: an agent definition run from a program (flow.md §12).

Takes: a loaded agent, a model, and whatever part the caller wants to replace. Gives: `AgentResult`, always.
May touch: nothing itself; without parts of the caller it starts a toolbox in the repository for each run.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.definition.arguments import check_arguments
from stepflow.domain.event import Noted, RunFinished, RunStarted
from stepflow.domain.problem import Severity
from stepflow.domain.report import AgentResult
from stepflow.domain.run import Issue, Limits, RunFacts
from stepflow.domain.state import fold
from stepflow.domain.words import CHECK_DIALECT_LIMIT, Dialect, Outcome
from stepflow.engine.loop import run_flow
from stepflow.engine.prompt.intake.visible import take_in
from stepflow.errors import DefinitionError
from stepflow.journal.memory import Fanout, MemoryJournal
from stepflow.model.scripted import ScriptedModel
from stepflow.ports import Ports
from stepflow.report.collect import collect_report
from stepflow.report.ending import ReportFacts
from stepflow.report.log import log_entries
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.context import removal_event
from stepflow.run.drive import Place, guarded
from stepflow.run.ending import Ending
from stepflow.run.outside import finish_outside
from stepflow.run.own_verdict import open_verdict
from stepflow.run.parts import LoadedSchemas
from stepflow.run.workers import open_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Entry, TextRemoved
    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.ports import Clock, Commands, Journal, Model, Schemas, Tools
    from stepflow.report.log import LogEntry
    from stepflow.run.outside import Boundary
    from stepflow.run.workers import Workers


class StepFlowRunner:
    """Runs one agent. It may run several times, also at once; runs share nothing but the parts that were given.

    `tools` and `commands` run what the model and the validators ask for. Where one of them is None, every run starts a
    toolbox in its repository: a process that sees no secret, with all the isolation that this machine offers.
    Without a `boundary` nothing outside changes and an empty plan is recorded. `limits` replaces the agent's own limit
    of iterations. `log` is told every log entry as it happens.
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
        self._limits = _limits(definition, limits)
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
        """Run the agent in the repository `cwd` (default: the current folder) and give the result, whatever happened.

        `args` are values for the agent's parameters; `args["issue"]` is the number of the issue. `variables` are more
        `{uv-…}` for the prompts, `context_text` is shown to every step as data (the issue's text, say; what people
        would not see of it on GitHub's page is taken out), `input_text` fills `{input_text}`.
        """
        run_id, root, given = secrets.token_hex(6), str(Path(cwd or ".").resolve()), dict(args or {})
        memory, place = MemoryJournal(self._clock), Place()
        journal = Fanout(memory, place, self._tell)
        told = take_in(context_text.strip(), "context_text")

        def played() -> Ending:
            checked = self._checked(given)
            facts = RunFacts(
                run_id=run_id,
                root=root,
                limits=self._limits,
                nonce=secrets.token_hex(12),
                issue=_issue(checked),
                args=checked,
                variables=dict(variables or {}),
                context_text=told.text,
                input_text=input_text,
            )
            return self._played(facts, removal_event(told), journal)

        ending = guarded(played, journal, place)
        success = ending.outcome is Outcome.COMPLETED
        journal.append(RunFinished(outcome=ending.outcome, reason=ending.reason, success=success))
        facts = ReportFacts(run_id=run_id, issue=_number(given.get("issue")), problems=self._agent.problems)
        return AgentResult.of(collect_report(memory.entries, self._agent, facts=facts))

    def _tell(self, entry: Entry) -> None:
        if self._log:
            for logged in log_entries(entry):
                self._log(logged)

    def _checked(self, given: Mapping[str, JsonValue]) -> JsonObject:
        checked, problems = check_arguments(self._agent, given, issue=_number(given.get("issue")))
        if any(problem.severity is Severity.ERROR for problem in problems):
            raise DefinitionError(f'The run arguments do not fit agent "{self._agent.name}".', problems=problems)
        return checked

    def _played(self, facts: RunFacts, removal: TextRemoved | None, journal: Journal) -> Ending:
        with open_workers(self._agent, Path(facts.root), self._tools, self._commands) as workers:
            facts = replace(facts, base_commit=workers.base_commit)
            started = _started(self._agent, facts, workers)
            journal.append(started)
            if removal:
                journal.append(removal)
            for warning in workers.warnings:
                journal.append(Noted(level="warning", message=f"[Isolation] {warning}"))
            ports = Ports(
                model=self._model,
                tools=workers.tools,
                commands=workers.commands,
                guards=workers.guards,
                schemas=self._schemas,
                journal=journal,
                clock=self._clock,
                verdict=open_verdict(self._agent, facts.args),
            )
            result = run_flow(self._agent, facts, ports, fold([started]))
            workers.tools.end_step()
        if result.outcome is not Outcome.COMPLETED:
            return Ending(outcome=result.outcome, reason=result.reason)
        return finish_outside(self._boundary, self._agent, facts, result, journal)


def _limits(agent: AgentDefinition, limits: Limits | None) -> Limits:
    limits = limits or Limits(iterations=agent.verdict.max_iterations)
    most = CHECK_DIALECT_LIMIT if agent.dialect is Dialect.CHECK else limits.iterations
    return replace(limits, iterations=min(limits.iterations, most))


def _number(value: JsonValue) -> int | None:
    """An issue's number, also where it was given as text."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isascii() and text.isdigit() else None


def _issue(args: JsonObject) -> Issue | None:
    number = _number(args.get("issue"))
    return None if number is None else Issue(number=number)


def _started(agent: AgentDefinition, facts: RunFacts, workers: Workers) -> RunStarted:
    return RunStarted(
        run_id=facts.run_id,
        agent=agent.name,
        dialect=agent.dialect,
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_step,
        max_iterations=facts.limits.iterations,
        issue=facts.issue.number if facts.issue else None,
        base_commit=facts.base_commit,
        isolation=dict(workers.isolation),
        args=facts.args,
        subject=facts.issue,
        context_text=facts.context_text,
        nonce=facts.nonce,
        root=facts.root,
    )
