"""One run, from its first event to its report."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version

from stepflow.boundary.settings import KEPT_IN_BUNDLE
from stepflow.domain import event as events
from stepflow.domain.agent.definition import AgentDefinition, guidance_files
from stepflow.domain.checkout import CommandResult, TreeState
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.domain.effect import ApprovalAnswered, EffectKind, EffectStatus
from stepflow.domain.event import FlowEnded
from stepflow.domain.flow import RunState, advance, fold
from stepflow.domain.reports.report import AgentResult
from stepflow.domain.run import ImagesRead, RunFacts, StartedBy
from stepflow.domain.words import BaseChecks, Outcome, Progress, Provider, Stage, StructuredOutput
from stepflow.engine.judge import require_passing, run_on_base
from stepflow.engine.loop import run_flow
from stepflow.errors import InputError, RunCancelled, StepflowError
from stepflow.journal import Fanout, JournalFile
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.scenario import RecordingModel
from stepflow.ports import Clock, Commands, Journal, Model, Ports, Tools
from stepflow.run.checks import checks_by_commands, checks_in_trees
from stepflow.run.clock import Cancellation, InterruptibleModel, TimelyCommands, TimelyTools
from stepflow.run.closing import ClosingRules, try_suggestions
from stepflow.run.ending import Ending, ending_of, is_bug, make_folder, remove_reports, write_reports
from stepflow.run.finish import Run, collect_work, finish_run, report_run_failure
from stepflow.run.issue import removal_event
from stepflow.run.prepare import Prepared, describe_connections
from stepflow.run.progress import ProgressComment
from stepflow.run.recorded import JOURNAL, RunSnapshots
from stepflow.run.request import toolbox_options
from stepflow.run.resume import move_aside
from stepflow.run.snapshots import Snapshots, Snapshotter, SnapshottingPorts
from stepflow.run.workspace import (
    demand_nothing_in_reach,
    hosts_recorded,
    install,
    open_toolbox,
    open_tools,
    outside_of,
    set_up,
    setup_command,
)
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.check_tree import CheckTrees
from stepflow.sandbox.copying import describe_too_large
from stepflow.sandbox.isolation import ToolboxOptions

#: Paths that a message names, and their length in characters.
MOST_NAMED = 5
NAMES_LENGTH = 100


def run_stages(run: Run) -> Ending:
    """Run the flow in the sandbox; once the sandbox is closed and all of its processes have ended, write to GitHub. If
    the caller brings its own tools and commands, there is no sandbox."""
    resumed_run, prepared = run.resumed_run, run.prepared
    if resumed_run:
        run.journal.append(resumed_run.resumed)
    with run.cancellation.obeyed():
        install(run.request, run.journal, run.deadline)
    if prepared.tools and prepared.commands:
        result = _work_outside(run, prepared.tools, prepared.commands)
    else:
        run, result = _work_in_sandbox(run)
    run.cancellation.check()
    result = replace(result, validated=result.validated and not run.work.closing.untracked)
    if result.outcome is Outcome.COMPLETED and run.work.problem:
        result = replace(result, outcome=Outcome.REFUSED, stage=Stage.COMPLETION, reason=run.work.problem)
    if run.finish:
        return run.finish(run, result)
    done = resumed_run.receipts(result.iterations) if resumed_run else ()
    return finish_run(replace(run, done=done, tried=try_suggestions(run, result)), result)


def _work_outside(run: Run, tools: Tools, commands: Commands) -> FlowEnded:
    """Run the flow with the caller's tools and commands, whose isolation is the caller's concern."""
    started = _start_event(run, {})
    run.journal.append(started)
    if removal := removal_event(run.prepared.context):
        run.journal.append(removal)
    result = run_flow(run.prepared.agent, run.facts, _make_ports(run, tools, commands), fold([started]))
    tools.end_step()
    return result


def _work_in_sandbox(run: Run) -> tuple[Run, FlowEnded]:
    """Run the flow in the sandbox; returns the run with its collected work, and the result."""
    request, resumed_run = run.request, run.resumed_run
    with (
        open_toolbox(request.root, toolbox_options(request), run.cancellation) as toolbox,
        hosts_recorded(toolbox, run.journal) as recording,
        open_tools(
            toolbox, run.prepared.agent.mcp_servers, run.cancellation, deadline=run.deadline, request=request
        ) as tools,
        ExitStack() as opened,
    ):
        tree = toolbox.tree()
        base_commit = resumed_run.started.base_commit if resumed_run else tree.commit
        run = replace(run, facts=replace(run.facts, base_commit=base_commit), journal=recording)
        state = _begin(run, toolbox)
        if not resumed_run:
            _warn_of_uncommitted("Before the run", tree, recording)
            if request.demand_clean and tree.uncommitted:
                raise InputError(
                    f"The checkout has uncommitted changes: {', '.join(_first_names(tree.uncommitted))}.",
                    hint="Commit or stash them, leave out --in-place so that the run works without them, or add "
                    "--allow-dirty.",
                )
        ports = _set_up(run, toolbox, tools, tree, opened)
        state = _check_base(run, state, ports)
        iteration = resumed_run.flow.iteration if resumed_run else ()
        result = run_flow(run.prepared.agent, run.facts, ports, state, iteration)
        work = collect_work(run, toolbox, result.closing)
    return replace(run, work=work), result


def _begin(run: Run, toolbox: Toolbox) -> RunState:
    """Record that the run begins, with the notices that belong to its start, and test the sandbox. Returns the state
    from which the flow continues."""
    prepared, journal = run.prepared, run.journal
    if run.resumed_run:
        state, before = run.resumed_run.state, run.resumed_run.started.isolation
        for layer, holds in toolbox.isolation.items():
            # The run may have started on another machine.
            if before.get(layer) != holds:
                now = f"after the run was resumed: {holds}"
                journal.append(events.LayerReported(layer=layer, state=now, is_warning=False))
        if reply := run.request.trigger.reply:
            actor = run.request.trigger.actor or "somebody at a terminal"
            answered = ApprovalAnswered(step_id=state.step_id, actor=actor, digest=reply.digest, reason=reply.reason)
            journal.append(answered)
            state = advance(state, answered)
    else:
        started = _start_event(run, toolbox.isolation)
        state = fold([started])
        journal.append(started)
        if prepared.images:
            journal.append(ImagesRead(images=list(prepared.images)))
    if removal := removal_event(prepared.context):
        journal.append(removal)
    for line in describe_connections(run.request, prepared.agent):
        run.note("info", f"[Network] {line}")
    for message in (*prepared.notes, *(f"[Isolation] {warning}" for warning in toolbox.warnings)):
        run.note("warning", message)
    demand_nothing_in_reach(toolbox, outside_of(run.request), run.request.inputs.isolation, journal)
    return state


def _warn_of_uncommitted(when: str, tree: TreeState, journal: Journal) -> None:
    """Warn of uncommitted files that the agent did not make, since a check for a clean tree will fail on them."""
    if tree.uncommitted:
        names = _first_names(tree.uncommitted)
        more = f" and {left_out} more" if (left_out := len(tree.uncommitted) - len(names)) else ""
        advice = "A check for a clean tree will fail: commit them, or name them in .gitignore and commit that."
        message = f"[Checkout] {when}, these files are not committed: {', '.join(names)}{more}. {advice}"
        journal.append(events.Noted(level="warning", message=message))


def _first_names(names: Sequence[str]) -> Sequence[str]:
    """Return as many names as fit into a line of the log together with the advice; at least one."""
    fitting = (end for end in range(min(MOST_NAMED, len(names)), 1, -1) if len(", ".join(names[:end])) <= NAMES_LENGTH)
    return names[: next(fitting, 1)]


def _set_up(run: Run, toolbox: Toolbox, tools: Tools, tree: TreeState, opened: ExitStack) -> Ports:
    """Set up the workspace, which is still this `tree`, and take its first snapshots; a resumed run restores its last
    one. Returns the flow's ports. What is `opened` is closed at the end of the run."""
    request, resumed_run, base_commit = run.request, run.resumed_run, run.facts.base_commit
    recorded = resumed_run.snapshots if resumed_run else RunSnapshots()
    snapshots = Snapshots(toolbox, request.folder, base=base_commit, secrets=request.secrets(), redact=request.redactor)
    # A caller's run cannot be resumed.
    snapshotter = None if run.finish else Snapshotter(snapshots, run.journal)
    # Whether the workspace is still the tree of the run's start, as in a new job that resumes the run of another.
    is_start = resumed_run is not None and tree.commit == base_commit and not tree.uncommitted
    if snapshotter:
        snapshotter.before_setup(recorded, is_start=is_start)
    commands = TimelyCommands(commands=toolbox, deadline=run.deadline, redact=request.redactor)
    set_up(commands, request, run.journal)
    if request.inputs.setup and not resumed_run:
        _warn_of_uncommitted("After setup", toolbox.tree(), run.journal)
    # Checks stand on the tree from before any tool ran.
    trees = _open_check_trees(run, toolbox, opened)
    if snapshotter:
        snapshotter.after_setup(recorded)
    ports = _make_ports(run, tools, toolbox, toolbox=toolbox, trees=trees)
    return _with_snapshots(ports, snapshotter) if snapshotter else ports


def _open_check_trees(run: Run, toolbox: Toolbox, opened: ExitStack) -> CheckTrees | None:
    """Let the checks run in a tree of their own if the agent has any, the caller does not run them, and there is a
    commit: from a folder without one nothing can be pushed. None otherwise."""
    prepared, request, base = run.prepared, run.request, run.facts.base_commit
    if prepared.commands or not (prepared.agent.validators and base):
        return None
    trees = CheckTrees(
        toolbox,
        request.base_repository,
        base=base,
        setup=_setup_of_checks(run),
        setup_reads=prepared.agent.setup_reads,
        keep=prepared.agent.keep_for_checks,
        waiting=run.cancellation.waiting,
        note=lambda message: run.note("info", message),
    )
    opened.enter_context(trees)
    if trees.too_large:
        run.note("warning", f"[Checks] {describe_too_large(trees.too_large)}")
    return trees


def _setup_of_checks(run: Run) -> Callable[[Commands], CommandResult] | None:
    """Return what runs `setup` once more by other commands, within the run's time; None without any."""
    command, redact = setup_command(run.request), run.request.redactor
    if command is None:
        return None
    return lambda commands: TimelyCommands(commands=commands, deadline=run.deadline, redact=redact).run_command(command)


def _make_ports(
    run: Run, tools: Tools, commands: Commands, *, toolbox: Toolbox | None = None, trees: CheckTrees | None = None
) -> Ports:
    """Make the flow's ports. Tools and commands of the caller take precedence over the sandbox's."""
    prepared, deadline = run.prepared, run.deadline
    commands = TimelyCommands(commands=prepared.commands or commands, deadline=deadline, redact=run.request.redactor)
    return Ports(
        model=InterruptibleModel(prepared.model, run.cancellation, meanwhile=trees.prepare if trees else lambda: None),
        tools=TimelyTools(
            tools=prepared.tools or tools, deadline=deadline, default_timeout=ToolboxOptions.bash_timeout
        ),
        commands=commands,
        checks=checks_in_trees(trees, run) if trees else checks_by_commands(commands),
        schemas=prepared.schemas,
        journal=run.journal,
        clock=deadline.clock,
        boundary_rules=ClosingRules(run, toolbox) if toolbox and not run.finish else None,
        cache=open_cache(prepared.model, toolbox, run.cancellation) if toolbox else None,
    )


def _with_snapshots(ports: Ports, snapshotter: Snapshotter) -> Ports:
    snapshotting = SnapshottingPorts(ports=ports, snapshotter=snapshotter)
    return replace(ports, journal=snapshotting, tools=snapshotting, commands=snapshotting)


def _check_base(run: Run, state: RunState, ports: Ports) -> RunState:
    """Run the validators before the first call of the model, and return the state with their results. A resumed run
    only runs those without a result.

    Raises `InputError` for a validator that cannot run, and `BaseCheckError` for one that fails with
    `base-checks: require`.
    """
    mode = run.request.inputs.base_checks
    if run.finish or mode is BaseChecks.SKIP or state.iteration:
        return state

    def record(check: events.BaseChecked) -> None:
        nonlocal state
        run.journal.append(check)
        state = advance(state, check)

    run_on_base(run.prepared.agent, ports.checks, record, known=state.base_checks)
    if mode is BaseChecks.REQUIRE:
        require_passing(state.base_checks.values())
    return state


def facts_of(prepared: Prepared) -> RunFacts:
    """Return the facts of the run that are known before the workspace is looked at."""
    request, agent, inputs = prepared.request, prepared.agent, prepared.request.inputs
    structured_output = inputs.structured_output
    if structured_output is StructuredOutput.AUTO and inputs.model.provider is Provider.SCRIPTED:
        # A scripted model follows its scenario, so there is nothing to find out.
        structured_output = StructuredOutput.NATIVE
    return RunFacts(
        run_id=request.run_id,
        root=str(request.root),
        limits=prepared.limits,
        nonce=prepared.resumed_run.started.nonce if prepared.resumed_run else secrets.token_hex(12),
        model=inputs.model.name,
        repository=request.repository,
        issue=prepared.issue,
        args=prepared.args,
        context_text=prepared.context.text,
        images=prepared.images,
        base_branch=request.base_branch(agent),
        default_branch=request.trigger.default_branch,
        working_directory=inputs.working_directory,
        structured_output=structured_output,
        approvals_given=request.approvals_given,
        follow_up=request.follow_up,
        reviewed=request.reviewed,
        variables=prepared.variables,
        input_text=prepared.input_text,
    )


def _start_event(run: Run, isolation: Mapping[str, str]) -> events.RunStarted:
    request, trigger = run.request, run.request.trigger
    return replace(
        run_started(run.prepared.agent, run.facts, isolation),
        options={} if run.finish else request.inputs.options(),
        repository_id=request.repository_id,
        source=str(request.source or ""),
        in_place=request.in_place,
        stepflow_version=version("stepflow"),
        started_by=StartedBy(
            actor=trigger.actor,
            actor_is_bot=trigger.actor_is_bot,
            label=trigger.label,
            default_branch=trigger.default_branch,
            private=trigger.private,
            from_github=trigger.issue is not None,
        ),
    )


def drive_run(
    prepared: Prepared,
    *,
    clock: Clock,
    cancellation: Cancellation,
    listeners: Sequence[Callable[[events.Entry], None]] = (),
    finish: Callable[[Run, FlowEnded], Ending] | None = None,
) -> AgentResult:
    """Run the stages, record every event, and return the result, whatever happened. `finish` replaces the end of the
    run for a program that runs an agent itself."""
    # Signals only interrupt inside the stages, so that the code around them always finishes.
    cancellation.hold()
    request, notice = prepared.request, _make_room(prepared)
    with prepared.resources, JournalFile(request.folder / JOURNAL, clock, redact=request.redactor) as file:
        _demand_unchanged(prepared, file)
        remove_reports(request.folder)
        tracker = StageTracker()
        if request.inputs.progress is Progress.COMMENT:
            listeners = (*listeners, ProgressComment(prepared, lambda event: _try_to_record(journal, event)))
        journal = Fanout(file, tracker, *listeners)
        if request.inputs.policy:
            journal.append(events.Noted(level="info", message=f"[Policy] {request.inputs.policy}"))
        if notice:
            journal.append(events.Noted(level="info", message=f"[Run] {notice}"))
        run = Run(
            prepared=prepared,
            facts=facts_of(prepared),
            journal=journal,
            clock=clock,
            cancellation=cancellation,
            finish=finish,
        )
        ending = guard_run(lambda: run_stages(run), journal, tracker)
        if ending.unreported:
            # It happened before anything could be planned or collected.
            guard_run(lambda: report_run_failure(run, ending), journal, tracker)
        is_recorded = _try_to_record(journal, ending.event)

    def say(event: events.Event) -> None:
        """Pass the listeners an event that can no longer be recorded, with the number 0."""
        for listener in listeners:
            listener(events.Entry(seq=0, time=clock.now(), event=event))

    if not is_recorded:
        say(ending.event)
    return write_reports(prepared, ending, say=say)


class StageTracker:
    """Tracks the stage of a run, and where its commits are."""

    stage = Stage.BEFORE
    in_bundle = False

    def __call__(self, entry: events.Entry) -> None:
        """Follow one entry."""
        match entry.event:
            case events.IterationStarted() | events.RunResumed():
                self.stage = Stage.FLOW
            case events.FlowEnded(outcome=Outcome.COMPLETED):
                self.stage = Stage.COMPLETION
            case events.WorkCollected(commits=commits):
                self.in_bundle = commits > 0
            case events.EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.APPLIED):
                self.in_bundle = False
            case _:
                pass

    def explain(self, problem: str) -> str:
        """Return the reason, and say where the commits are if they were not pushed."""
        return f"{problem.removesuffix('.')}. {KEPT_IN_BUNDLE}." if self.in_bundle else problem


def guard_run(work: Callable[[], Ending], journal: Journal, tracker: StageTracker) -> Ending:
    """Do the work, and turn any exception into an outcome with a reason."""
    try:
        return work()
    except (RunCancelled, Exception) as error:  # noqa: BLE001 - one of the two places where a bug becomes an outcome
        if is_bug(error):
            noted = events.Noted(level="error", message="internal error", data={"traceback": traceback.format_exc()})
            _try_to_record(journal, noted)
        ending = ending_of(error, tracker.stage)
        return replace(ending, reason=tracker.explain(ending.reason))


def _make_room(prepared: Prepared) -> str:
    """Make the run folder with its parents. An earlier run that is not resumed is moved aside, and a notice about it is
    returned; otherwise the notice is empty."""
    notice, folder, previous = "", prepared.request.folder, prepared.previous
    if previous and previous.problem:
        notice = f"{previous.notice} It is kept in {move_aside(folder, previous.run_id)}."
    make_folder(folder)
    return notice


def _demand_unchanged(prepared: Prepared, file: JournalFile) -> None:
    """Raise `InputError` if another process has written to the journal before this one locked it."""
    if prepared.resumed_run is None or file.seq == len(prepared.resumed_run.events):
        return
    raise InputError(
        f"Another process has just resumed the run in {prepared.request.folder}.",
        hint="Start this one again when the other has ended.",
    )


def _try_to_record(journal: Journal, event: events.Event) -> bool:
    """Record one of the last events and return whether that worked: an unwritable journal must not keep a run from
    ending."""
    try:
        journal.append(event)
    except StepflowError:
        return False
    return True


def run_started(agent: AgentDefinition, facts: RunFacts, isolation: Mapping[str, str]) -> events.RunStarted:
    """Return the first event of a run."""
    return events.RunStarted(
        run_id=facts.run_id,
        agent=agent.name,
        dialect=agent.dialect,
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_for(facts.follow_up.kind if facts.follow_up else None),
        max_iterations=facts.limits.iterations,
        repository=facts.repository,
        issue=facts.issue.number if facts.issue else None,
        base_commit=facts.base_commit,
        isolation=dict(isolation),
        args=facts.args,
        subject=facts.issue,
        context_text=facts.context_text,
        nonce=facts.nonce,
        base_branch=facts.base_branch,
        root=facts.root,
        follow_up=facts.follow_up,
        reviewed=facts.reviewed,
        guidance=guidance_files(agent.all_guidance),
    )


@dataclass(frozen=True, kw_only=True)
class ServiceCache:
    """Implements the port `PromptCache`: keeps the service's prompt cache alive while the sandbox works."""

    model: AnthropicModel
    toolbox: Toolbox
    cancellation: Cancellation

    def while_waiting(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `look` now and then while something runs in the sandbox."""
        return self.toolbox.while_waiting(look)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Renew the cache once; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            return self.model.renew(request, number)


def open_cache(model: Model, toolbox: Toolbox, cancellation: Cancellation) -> ServiceCache | None:
    """Return the prompt cache of a model; None if it has none, like a scripted model."""
    inner = model.model if isinstance(model, RecordingModel) else model
    if isinstance(inner, AnthropicModel):
        return ServiceCache(model=inner, toolbox=toolbox, cancellation=cancellation)
    return None
