"""Runs the trials of a proof: the tests of a change, on versions of the files that each have a workspace and a sandbox
of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.proof import TrialLimits
from stepflow.engine.proof import runnable_tests
from stepflow.journal.file import MemoryJournal
from stepflow.run.clock import Cancellation, SystemClock
from stepflow.run.request import RunRequest, toolbox_options
from stepflow.run.workspace import MaskingCommands, open_toolbox, options_at_root, request_in_copy, set_up
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.workspace import GIT, make_workspace, start_branch, temporary_folder, write_repository

#: Where the changed test files go in a command.
PLACEHOLDER = "{tests}"
_BRANCH = "trial"


def fill_command(command: str, tests: Sequence[str]) -> str:
    """Return the command with the test files of the change, as far as a test runner can be given their names."""
    return command.replace(PLACEHOLDER, shlex.join(runnable_tests(tests)))


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Runs a shell command on trees of a change, so that no trial can change another one's result. Signals must be held
    and stay so."""

    repository: ChangeRepository
    request: RunRequest
    command: str
    #: Seconds that the command may take.
    timeout: float
    cancellation: Cancellation
    #: Called with each tree before it is tried.
    note: Callable[[str], None] = lambda _: None

    def run(self, trees: Sequence[str], limits: TrialLimits) -> Sequence[CommandResult | None]:
        """Return a result for each tree, in their order; None where there was no time left. Its seconds are those of
        the whole trial, as they count for `limits.together`."""
        clock = SystemClock()
        end = clock.now() + limits.together
        results: list[CommandResult | None] = []
        for tree in trees:
            left = end - clock.now()
            results.append(self._try(tree, min(self.timeout, limits.each), left) if left > 0 else None)
        return results

    def _try(self, tree: str, timeout: float, left: float) -> CommandResult | None:
        """Run the command on this tree, in a repository that has one commit and no history."""
        self.note(tree)
        request, clock = self.request, SystemClock()
        begun = clock.now()
        with temporary_folder(request.root) as place:
            copy = place / "checkout"
            with self.cancellation.obeyed():
                commit = self.repository.stand_at(tree)
                make_workspace(request.root, copy, without=request.login_files, with_history=False)
                write_repository(self.repository.folder, copy / GIT)
                copied = request_in_copy(request, copy)
                with Toolbox.start(copy, options=options_at_root(copied)) as toolbox:
                    start_branch(toolbox, _BRANCH, commit)
            with open_toolbox(copy, toolbox_options(copied), self.cancellation) as toolbox:
                set_up(toolbox, copied, MemoryJournal(clock))
                left -= clock.now() - begun
                if left <= 0:
                    return None
                commands = MaskingCommands(commands=toolbox, redact=request.redactor)
                argv = ("sh", "-c", self.command)
                result = commands.run_command(CommandRequest(argv=argv, timeout=min(timeout, left)))
                if result.timed_out and left < timeout:
                    return None
                return replace(result, seconds=clock.now() - begun)
