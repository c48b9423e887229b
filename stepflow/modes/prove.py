"""Proves a change: runs its tests in workspaces of their own, with and without the change, and without parts of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.proof import ChangeTrees, Proof
from stepflow.engine.proof import MOST_HUNKS, TEST_FILES, is_same_code, is_test, prove_change, runnable_tests
from stepflow.errors import InputError
from stepflow.journal.file import MemoryJournal
from stepflow.run.clock import Cancellation, Deadline, SystemClock
from stepflow.run.request import RunRequest, toolbox_options
from stepflow.run.workspace import (
    MaskingCommands,
    demand_repository,
    install,
    open_toolbox,
    options_at_root,
    request_in_copy,
    set_up,
)
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.change import ChangeRepository, read_range
from stepflow.sandbox.workspace import GIT, make_workspace, start_branch, temporary_folder, write_repository

#: Where the changed test files go in a command.
PLACEHOLDER = "{tests}"
_BRANCH = "trial"


@dataclass(frozen=True, kw_only=True)
class ProofRequest:
    """What to prove, and by which command."""

    #: `BASE..HEAD`; empty for what is checked out beyond the main branch.
    commits: str
    command: str
    #: Globs of the test files.
    tests: Sequence[str] = TEST_FILES
    most_hunks: int = MOST_HUNKS


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
            change = repository.read(
                base,
                head,
                is_test=lambda path: is_test(path, asked.tests),
                is_same_code=is_same_code,
            )
            clock = SystemClock()
            deadline = Deadline(clock=clock, at=clock.now() + request.inputs.timeout_minutes * 60)
            install(request, MemoryJournal(clock), deadline)
        names = " ".join(shlex.quote(path) for path in runnable_tests(change.tests))
        trials = _Trials(repository, request, asked.command.replace(PLACEHOLDER, names), cancellation)

        def try_tree(tree: str) -> CommandResult:
            note(_describe(tree, change))
            return trials.run(tree)

        return prove_change(change, try_tree, most_hunks=asked.most_hunks)


def _describe(tree: str, change: ChangeTrees) -> str:
    known = {change.after: "with the change", change.before: "without the change"}
    if tree in known:
        return known[tree]
    hunk = next((hunk for hunk in change.hunks if hunk.tree == tree), None)
    return f"without {hunk.place}" if hunk else "with the change, and the tests of the base"


@dataclass(frozen=True)
class _Trials:
    """Runs the command on trees, each in a workspace of its own, so that no trial can change another one's result."""

    repository: ChangeRepository
    request: RunRequest
    command: str
    cancellation: Cancellation

    def run(self, tree: str) -> CommandResult:
        """Run it on this tree, whose repository has one commit and no history."""
        request = self.request
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
                set_up(toolbox, copied, MemoryJournal(SystemClock()))
                commands = MaskingCommands(commands=toolbox, redact=request.redactor)
                timeout = request.inputs.timeout_minutes * 60
                return commands.run_command(CommandRequest(argv=("sh", "-c", self.command), timeout=timeout))
