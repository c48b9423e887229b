"""Proves a change: runs its tests with and without the change, and without parts of it; and comments on its pull
request."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from stepflow.boundary.effect_writer import EffectWriter
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.output_filter import filter_text
from stepflow.boundary.settings import Plan
from stepflow.domain.event import Noted
from stepflow.domain.json import escape_unseen
from stepflow.domain.proof import Proof, ProofSettings
from stepflow.domain.run import Issue
from stepflow.domain.words import Network
from stepflow.engine.proof import prove_change
from stepflow.errors import InputError
from stepflow.journal import MemoryJournal
from stepflow.ports import Clock
from stepflow.report.proof import proof_json
from stepflow.run.clock import Cancellation, Deadline, SystemClock
from stepflow.run.finish import UNPREPARED_SECONDS, open_writer
from stepflow.run.proof import Trials, describe_trial, fill_command, in_shell, read_change
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.start.inputs import BoundaryMode
from stepflow.run.workspace import (
    demand_nothing_in_reach,
    demand_repository,
    install,
    open_toolbox,
    open_workspace,
    options_at_root,
    outside_of,
)
from stepflow.sandbox.change import ChangeRepository, read_range
from stepflow.sandbox.workspace import make_empty_workspace, temporary_folder

_NETWORKS = {Network.FULL: "open", Network.ALLOW: "open to the listed hosts alone", Network.NONE: "closed"}


def prove(
    request: RunRequest,
    cancellation: Cancellation,
    *,
    commits: str,
    command: str,
    settings: ProofSettings,
    note: Callable[[str], None],
) -> Proof:
    """Run the trials of `commits`: `BASE..HEAD`, or empty for what is checked out beyond the main branch. `note` is
    called before each. Raises `InputError` for commits or a repository that cannot be used."""
    if not command.strip():
        raise InputError("There is no command to run.", hint="Give one: --command 'pytest -q {tests}'.")
    demand_repository(request.root)
    # A change may be somebody else's, and what runs of it need not see what else lies in a checkout.
    request = replace(request, only_installed=True)
    cancellation.hold()
    with temporary_folder(request.root) as folder:
        with cancellation.obeyed():
            repository = ChangeRepository(folder / "change", request.root)
            base, head = read_range(request.root, commits)
            note(f"the change {base[:12]}..{head[:12]}, with the network {_NETWORKS[request.inputs.network.reach]}")
            files = request.copied_files
            for line in filter(None, (files.announce(folder, "for each trial"), files.describe_withheld())):
                note(line)
            change = read_change(repository, base, head, settings)
            clock = SystemClock()
            deadline = Deadline(clock=clock, at=clock.now() + request.inputs.limits.minutes * 60)
            install(request, MemoryJournal(clock), deadline)
            _test_sandbox(request, cancellation, note)
        trials = Trials(
            repository=repository,
            request=request,
            commands=(in_shell(fill_command(command, change.tests), request.inputs.limits.minutes * 60),),
            cancellation=cancellation,
            ends=clock.now() + deadline.seconds_left(0),
            note=lambda tree: note(describe_trial(tree, change)),
        )
        return prove_change(change, trials.run, settings)


def _test_sandbox(request: RunRequest, cancellation: Cancellation, note: Callable[[str], None]) -> None:
    """Raise `IsolationError` for a sandbox with a hole before anything of the change runs in one."""
    journal = MemoryJournal(SystemClock())
    with open_workspace(request) as workspace:
        copied = workspace.request
        make_empty_workspace(copied.checkout, copied.root)
        with open_toolbox(copied.root, options_at_root(copied), cancellation) as toolbox:
            demand_nothing_in_reach(toolbox, outside_of(copied), request.inputs.isolation, journal)
    for entry in journal.entries:
        if isinstance(entry.event, Noted):
            note(entry.event.message)


def write_proof(request: RunRequest, proof: Proof) -> Path:
    """Write the proof as JSON into the run folder."""
    request.folder.mkdir(parents=True, exist_ok=True)
    path = request.folder / "proof.json"
    path.write_text(request.redactor(escape_unseen(json.dumps(proof_json(proof), indent=2))) + "\n", encoding="utf-8")
    return path


#: No agent can have this name.
_AUTHOR = "mode.prove"


def proof_comment_problem(request: RunRequest) -> str:
    """Return why no comment can be written here; empty if it can."""
    if request.inputs.boundary is not BoundaryMode.GITHUB:
        return "`boundary: dry-run` writes nothing."
    if request.inputs.github_token is None:
        return "It needs the input `github-token`."
    return ""


def write_proof_comment(request: RunRequest, number: int, text: str, clock: Clock) -> str:
    """Post the comment on the pull request, or update the one of an earlier job, after all trials are over. Returns its
    URL. Raises `BoundaryError` where GitHub does not allow it, and `InputError` for a wrong address."""
    plan = Plan(
        run_id=request.run_id,
        agent=_AUTHOR,
        settings=boundary_settings(request),
        redactor=request.redactor,
        issue=Issue(number=number),
    )
    policy = RetryPolicy.of(clock, clock.now() + UNPREPARED_SECONDS, lambda _: None)
    with closing(open_writer(request, policy)) as writer:
        effects = EffectWriter(plan, writer, None)
        return effects.write_comment(filter_text(text, plan.output_filter), effects.own_comment(), commit="").url
