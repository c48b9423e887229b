"""The stages of a run: toolbox and flow, then the boundary.

Takes: a prepared run, a journal, a clock. Gives: `Ending`.
May touch: nothing itself; it starts the toolbox, hands the flow its ports, and opens the boundary when all is done.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.event import LayerTold, Noted, RunStarted
from stepflow.domain.run import RunFacts, StartedBy
from stepflow.domain.state import fold
from stepflow.engine.loop import run_flow
from stepflow.journal.replay import Replay
from stepflow.ports import Ports
from stepflow.run.addresses import told_ways
from stepflow.run.context import removal_event
from stepflow.run.deadline import Deadline, TimelyCommands, TimelyTools
from stepflow.run.interruptible import InterruptibleClock, InterruptibleModel
from stepflow.run.keeping import Keeper, KeptCommands, KeptTools
from stepflow.run.parts import LoadedSchemas, structured_output_of, toolbox_options
from stepflow.run.recorded import Kept
from stepflow.run.sandbox import open_sandbox
from stepflow.run.selftest import demand_nothing_in_reach
from stepflow.run.set_up import install, set_up
from stepflow.run.snapshots import Snapshots
from stepflow.run.work import collect_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepflow.domain.checkout import TreeState
    from stepflow.domain.definition import AgentDefinition, Validator
    from stepflow.ports import Clock, Journal
    from stepflow.run.cancel import Cancellation
    from stepflow.run.ending import Ending
    from stepflow.run.prepare import Prepared
    from stepflow.run.sandbox import Sandbox
    from stepflow.sandbox.box import Toolbox

#: Paths that a message names, and their length in characters.
MOST_NAMED = 5
NAMES_LENGTH = 100


def run_stages(prepared: Prepared, journal: Journal, clock: Clock, cancellation: Cancellation) -> Ending:
    """Work and check inside the toolbox; when it is closed and every process in it dead, write to GitHub."""
    request, past = prepared.request, prepared.past
    if past:
        journal.append(past.resumed)
    with cancellation.obeyed():
        install(request, journal, Deadline(clock=clock, at=prepared.limits.deadline))
    with open_sandbox(request, toolbox_options(request), cancellation, warn=_credentials_noted(journal)) as sandbox:
        toolbox = sandbox.toolbox
        tree = toolbox.tree()
        facts = facts_of(prepared, base_commit=past.started.base_commit if past else tree.commit)
        state = past.state if past else fold([_started(prepared, facts, sandbox)])
        _begin(prepared, facts, sandbox, journal)
        if not past:
            _tell_uncommitted("Before the run", tree, journal)
        ports = _ports(prepared, facts, toolbox, journal, InterruptibleClock(clock, cancellation))
        ports = replace(ports, model=InterruptibleModel(ports.model, cancellation))
        result = run_flow(prepared.agent, facts, ports, state)
        work = collect_work(prepared, facts, toolbox, journal, closing=result.closing)
    cancellation.check()
    # Loaded here: while the flow runs, and before the first model is asked, nothing needs the modules of the end.
    from stepflow.run.finish import Finish, finish_run  # noqa: PLC0415

    result = replace(result, validated=result.validated and not work.uncommitted)
    finish = Finish(
        prepared=prepared,
        facts=facts,
        work=work,
        journal=journal,
        cancellation=cancellation,
        clock=clock,
        done=past.receipts(result.iterations) if past else (),
    )
    return finish_run(finish, result)


def _begin(prepared: Prepared, facts: RunFacts, sandbox: Sandbox, journal: Journal) -> None:
    """Write down that the run begins, and what people should know of one that only begins: hidden text, notes, layers
    that do not hold. Then look whether the sandbox is closed."""
    past, toolbox = prepared.past, sandbox.toolbox
    if past is None:
        journal.append(_started(prepared, facts, sandbox))
    else:
        _tell_layers(past.started, sandbox, journal)
    if removal := removal_event(prepared.told):
        journal.append(removal)
    for line in told_ways(prepared.request):
        journal.append(Noted(level="info", message=f"[Network] {line}"))
    for message in (*prepared.notes, *(f"[Isolation] {warning}" for warning in toolbox.warnings)):
        journal.append(Noted(level="warning", message=message))
    demand_nothing_in_reach(toolbox, prepared.request, journal)


def _tell_layers(started: RunStarted, sandbox: Sandbox, journal: Journal) -> None:
    """What holds otherwise than it did when the run began, perhaps on another machine."""
    for layer, state in sandbox.isolation.items():
        if started.isolation.get(layer) != state:
            journal.append(LayerTold(layer=layer, told=f"after the run was resumed: {state}", is_warning=False))


def _tell_uncommitted(when: str, tree: TreeState, journal: Journal) -> None:
    """What a check for a clean tree will refuse although the agent did not do it."""
    if tree.uncommitted:
        shown = _few(tree.uncommitted)
        named, left_out = ", ".join(shown), len(tree.uncommitted) - len(shown)
        more = f" and {left_out} more" if left_out else ""
        advice = "A check for a clean tree will be red: commit them, or name them in .gitignore and commit that."
        message = f"[Checkout] {when} no commit holds {named}{more}. {advice}"
        journal.append(Noted(level="warning", message=message))


def _few(names: Sequence[str]) -> Sequence[str]:
    """As many of the names as leave room for the advice behind them in a line of the log; one at least."""
    room = (end for end in range(min(MOST_NAMED, len(names)), 1, -1) if len(", ".join(names[:end])) <= NAMES_LENGTH)
    return names[: next(room, 1)]


def _ports(prepared: Prepared, facts: RunFacts, toolbox: Toolbox, journal: Journal, clock: Clock) -> Ports:
    """The flow's ports, over a tree that is set up and kept; a run that goes on meets its past first."""
    past, request = prepared.past, prepared.request
    kept = past.kept if past else Kept()
    snapshots = Snapshots(toolbox, request.folder, base=facts.base_commit, secrets=request.secrets())
    keeper = Keeper(snapshots, journal, request.root)
    keeper.before_setup(kept, is_start=past is not None and _is_start(toolbox.tree(), facts))
    deadline = Deadline(clock=clock, at=facts.limits.deadline)
    commands = TimelyCommands(commands=toolbox, deadline=deadline)
    set_up(commands, request.inputs.setup, journal)
    if request.inputs.setup and not past:
        _tell_uncommitted("After setup", toolbox.tree(), journal)
    # What the guards remember is the tree before any tool has run, never what a tool made of it.
    guards = toolbox.guards(validators_of(prepared.agent))
    keeper.after_setup(kept)
    ports = Ports(
        model=prepared.model,
        tools=KeptTools(
            tools=TimelyTools(tools=toolbox, deadline=deadline, usual=toolbox.options.bash_timeout), keeper=keeper
        ),
        commands=KeptCommands(commands=commands, keeper=keeper),
        guards=guards,
        schemas=LoadedSchemas(),
        journal=journal,
        clock=clock,
        verdict=prepared.verdict,
    )
    return Replay(past.to_play(facts.structured_output), journal).over(ports) if past else ports


def _is_start(tree: TreeState, facts: RunFacts) -> bool:
    """Whether the checkout itself is the tree of the run's start, as in the job that goes on with another's run."""
    return tree.commit == facts.base_commit and not tree.uncommitted


def facts_of(prepared: Prepared, *, base_commit: str = "") -> RunFacts:
    """What the run is bound to; without a base commit as long as nobody has looked at the checkout."""
    request, agent, inputs = prepared.request, prepared.agent, prepared.request.inputs
    settings = agent.github.pull_request
    return RunFacts(
        run_id=request.run_id,
        root=str(request.root),
        limits=prepared.limits,
        nonce=prepared.past.started.nonce if prepared.past else secrets.token_hex(12),
        model=inputs.model,
        repository=request.repository,
        issue=prepared.issue,
        args=prepared.args,
        context_text=prepared.told.text,
        base_commit=base_commit,
        base_branch=inputs.base_branch or settings.base or request.trigger.default_branch,
        structured_output=structured_output_of(inputs),
    )


def _credentials_noted(journal: Journal) -> Callable[[str], None]:
    return lambda note: journal.append(LayerTold(layer="credentials", told=note, is_warning=True))


def _started(prepared: Prepared, facts: RunFacts, sandbox: Sandbox) -> RunStarted:
    agent, trigger = prepared.agent, prepared.request.trigger
    return RunStarted(
        run_id=facts.run_id,
        agent=agent.name,
        dialect=agent.dialect,
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_step,
        max_iterations=facts.limits.iterations,
        repository=facts.repository,
        issue=facts.issue.number if facts.issue else None,
        base_commit=facts.base_commit,
        isolation=dict(sandbox.isolation),
        options=prepared.request.inputs.options(),
        args=facts.args,
        subject=facts.issue,
        context_text=facts.context_text,
        nonce=facts.nonce,
        base_branch=facts.base_branch,
        started_by=StartedBy(
            actor=trigger.actor,
            actor_is_bot=trigger.actor_is_bot,
            label=trigger.label,
            default_branch=trigger.default_branch,
            private=trigger.private,
            from_github=trigger.issue is not None,
        ),
        root=facts.root,
    )


def validators_of(agent: AgentDefinition) -> tuple[Validator, ...]:
    """Every validator that a run of this agent may start."""
    entries = (step.validation for step in agent.steps.values() if step.validation)
    return tuple(condition.validator for entry in entries for condition in entry.conditions)
