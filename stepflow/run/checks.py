"""Where the checks of a run are run: in the tree of its closings, or by the caller's commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stepflow.domain.checkout import TreeState
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.ports import CheckTree, Commands, Model
from stepflow.run.clock import TimelyCommands
from stepflow.run.finish import Run
from stepflow.run.proof import ProvingCommands
from stepflow.sandbox.check_tree import CheckedFiles, CheckTrees


@dataclass(frozen=True, kw_only=True)
class RunChecks:
    """Implements the port `Checks` for a run in the sandbox."""

    trees: CheckTrees
    run: Run

    @contextmanager
    def opened(self) -> Iterator[CheckTree]:
        """Let the checks see the files of the workspace as they are now."""
        with self.trees.opened() as files:
            proving = ProvingCommands(
                commands=files, run=self.run, repository=self.trees.repository, head=files.closing.commit
            )
            commands = TimelyCommands(commands=proving, deadline=self.run.deadline, redact=self.run.request.redactor)
            yield CheckedFiles(closing=files.closing, run=commands.run_command)


@dataclass(frozen=True, kw_only=True)
class PreparingModel:
    """Implements the port `Model`. While it answers, the tree of the next checks is prepared."""

    model: Model
    trees: CheckTrees

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Ask once."""
        self.trees.prepare()
        return self.model.ask(request)


@dataclass(frozen=True, kw_only=True)
class CommandChecks:
    """Implements the port `Checks` by commands that run somewhere else, whose files are the caller's concern."""

    commands: Commands

    @contextmanager
    def opened(self) -> Iterator[CheckTree]:
        """Let the checks run as any other command."""
        yield CheckedFiles(closing=TreeState(), run=self.commands.run_command)
