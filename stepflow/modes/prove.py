"""Proves a change: runs its tests with and without the change, and without parts of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stepflow.domain.proof import Proof, ProofSettings
from stepflow.engine.proof import prove_change
from stepflow.errors import InputError
from stepflow.journal.file import MemoryJournal
from stepflow.report.proof import proof_json
from stepflow.run.clock import Cancellation, Deadline, SystemClock
from stepflow.run.proof import Trials, describe_trial, fill_command, read_change
from stepflow.run.request import RunRequest
from stepflow.run.workspace import demand_repository, install
from stepflow.sandbox.change import ChangeRepository, read_range
from stepflow.sandbox.workspace import temporary_folder


@dataclass(frozen=True, kw_only=True)
class ProofRequest:
    """What to prove, and by which command."""

    #: `BASE..HEAD`; empty for what is checked out beyond the main branch.
    commits: str
    command: str
    settings: ProofSettings = field(default_factory=ProofSettings)


def prove(
    request: RunRequest,
    asked: ProofRequest,
    cancellation: Cancellation,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> Proof:
    """Run the trials. `note` is called before each. Raises `InputError` for commits or a repository that cannot be
    used."""
    if not asked.command.strip():
        raise InputError("There is no command to run.", hint="Give one: --command 'pytest -q {tests}'.")
    demand_repository(request.root)
    cancellation.hold()
    with temporary_folder(request.root) as folder:
        with cancellation.obeyed():
            repository = ChangeRepository(folder / "change", request.root)
            base, head = read_range(request.root, asked.commits)
            note(f"the change {base[:12]}..{head[:12]}")
            change = read_change(repository, base, head, asked.settings)
            clock = SystemClock()
            deadline = Deadline(clock=clock, at=clock.now() + request.inputs.timeout_minutes * 60)
            install(request, MemoryJournal(clock), deadline)
        trials = Trials(
            repository=repository,
            request=request,
            command=fill_command(asked.command, change.tests),
            timeout=request.inputs.timeout_minutes * 60,
            cancellation=cancellation,
            ends=clock.now() + deadline.seconds_left(0),
            note=lambda tree: note(describe_trial(tree, change)),
        )
        return prove_change(change, trials.run, most_hunks=asked.settings.most_hunks)


def write_proof(request: RunRequest, proof: Proof) -> Path:
    """Write the proof as JSON into the run folder."""
    request.folder.mkdir(parents=True, exist_ok=True)
    path = request.folder / "proof.json"
    path.write_text(request.redactor(json.dumps(proof_json(proof), indent=2)) + "\n", encoding="utf-8")
    return path
