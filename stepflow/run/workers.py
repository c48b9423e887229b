"""Who runs tools and validators for a run that a program started.

Takes: what the caller brings. Gives: the ports `Tools`, `Commands` and `Guards`, complete.
May touch: a toolbox and the checkout's credentials, where the caller brings no parts of its own.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.guard import Closing, GuardFindings
from stepflow.domain.words import Isolation
from stepflow.run.stages import validators_of
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.options import ToolboxOptions
from stepflow.sandbox.restore import credentials_away

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from stepflow.domain.definition import AgentDefinition, Validator
    from stepflow.ports import Commands, Guards, Tools


class UnguardedCommands:
    """For commands of the caller: what stands behind them is the caller's to look at."""

    def closing(self) -> Closing:
        """Not known."""
        return Closing()

    def look_again(self, _validator: Validator, *, passed: bool) -> GuardFindings:
        """Nothing was found."""
        return GuardFindings()


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The parts, and what is known of the checkout and of the sandbox's layers; empty for parts of the caller."""

    tools: Tools
    commands: Commands
    guards: Guards = field(default_factory=UnguardedCommands)
    base_commit: str = ""
    isolation: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@contextmanager
def open_workers(
    agent: AgentDefinition, root: Path, tools: Tools | None, commands: Commands | None
) -> Iterator[Workers]:
    """The caller's parts; for each that is None, a toolbox in the repository that lives as long as the block."""
    if tools is not None and commands is not None:
        yield Workers(tools=tools, commands=commands)
        return
    with ExitStack() as opened:
        away = opened.enter_context(credentials_away(root))
        box = opened.enter_context(
            Toolbox.start(root, options=ToolboxOptions(isolation=Isolation.BEST_EFFORT), restore=away)
        )
        yield Workers(
            tools=tools or box,
            commands=commands or box,
            guards=UnguardedCommands() if commands else box.guards(validators_of(agent)),
            base_commit=box.tree().commit,
            isolation={**box.isolation, "credentials": away.state},
            warnings=box.warnings,
        )
