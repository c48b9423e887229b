"""Where the checks of a run are run: in the tree of its closings, or by the caller's commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from stepflow.domain.checkout import TreeState
from stepflow.ports import Checks, CheckTree, Commands
from stepflow.run.clock import TimelyCommands
from stepflow.run.finish import Run
from stepflow.run.proof import ProvingCommands
from stepflow.sandbox.check_tree import CheckedFiles, CheckTrees


def checks_in_trees(trees: CheckTrees, run: Run) -> Checks:
    """Return the checks of a run in the sandbox, with the trials of its proofs."""

    @contextmanager
    def opened() -> Iterator[CheckTree]:
        with trees.opened() as files:
            proving = ProvingCommands(commands=files, run=run, repository=trees.repository, head=files.closing.commit)
            commands = TimelyCommands(commands=proving, deadline=run.deadline, redact=run.request.redactor)
            yield CheckedFiles(closing=files.closing, run=commands.run_command)

    return opened


def checks_by_commands(commands: Commands) -> Checks:
    """Return checks that run as any other command, on files that are the caller's concern."""
    return lambda: nullcontext(CheckedFiles(closing=TreeState(), run=commands.run_command))
