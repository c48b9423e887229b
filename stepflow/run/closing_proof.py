"""Proves the change of a run when it closes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.event import Noted
from stepflow.domain.proof import ChangeTrees, Proof, ProofSettings, ProofVerdict
from stepflow.engine.proof import prove_change
from stepflow.errors import BoundaryError, InputError
from stepflow.ports import Commands
from stepflow.report.proof import correction
from stepflow.run.clock import COMPLETION_GRACE, SystemClock
from stepflow.run.finish import Run, stream_commits
from stepflow.run.proof import Trials, describe_trial, fill_command, read_change
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.workspace import temporary_folder


@dataclass(frozen=True, kw_only=True)
class ProvingCommands:
    """Implements the port `Commands`: requests for a proof run on versions of the run's change, all others in the
    workspace."""

    commands: Commands
    run: Run
    #: None for a caller's run, whose commands run elsewhere.
    toolbox: Toolbox | None

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process, or the trials of a proof."""
        if request.proof is None:
            return self.commands.run_command(request)
        clock = SystemClock()
        begun = clock.now()
        try:
            proof = self._prove(request, request.proof)
        except (InputError, BoundaryError) as error:
            return CommandResult(exit_code=1, error=str(error))
        is_tried = proof.verdict is not ProofVerdict.NOT_TRIED
        return CommandResult(
            exit_code=0 if proof.satisfies(request.proof.hunks) else 1,
            started=is_tried,
            stdout=correction(proof) if is_tried else "",
            error="" if is_tried else proof.reason,
            seconds=clock.now() - begun,
            proof=proof,
        )

    def _prove(self, asked: CommandRequest, settings: ProofSettings) -> Proof:
        original = self.run.request.original
        if self.toolbox is None or original is None:
            return Proof(
                verdict=ProofVerdict.NOT_TRIED, reason="A proof needs a workspace and a sandbox made by stepflow."
            )
        with temporary_folder(original.root) as folder:
            repository = ChangeRepository(folder / "change", self.run.request.base_repository)
            change = self._read_change(repository, self.toolbox, folder / "bundle", settings)
            *_, script = asked.argv
            trials = Trials(
                repository=repository,
                request=original,
                command=fill_command(script, change.tests),
                timeout=asked.timeout,
                cancellation=self.run.cancellation,
                ends=SystemClock().now() + self.run.deadline.seconds_left(COMPLETION_GRACE),
                note=lambda tree: self._note(describe_trial(tree, change)),
            )
            return prove_change(change, trials.run, most_hunks=settings.most_hunks)

    def _note(self, version: str) -> None:
        self.run.journal.append(Noted(level="info", message=f"[Proof] {version}"))

    def _read_change(
        self, repository: ChangeRepository, toolbox: Toolbox, bundle: Path, settings: ProofSettings
    ) -> ChangeTrees:
        """Take the commits up to HEAD out of the workspace. The change of a follow-up is all of its pull request."""
        base = head = self.run.facts.base_commit
        with bundle.open("w+b", buffering=0) as file:
            if stream_commits(toolbox, file, base):
                head = repository.fetch(bundle)
        if follow_up := self.run.request.follow_up:
            branch = f"refs/remotes/origin/{follow_up.base}"
            base = ask_git(self.run.request.base_repository, "merge-base", branch, base, may_fail=True) or base
        return read_change(repository, base, head, settings)
