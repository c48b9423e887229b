"""The questions of `stepflow init` at a terminal.

Takes: what the command line gave already, the checks that were found. Gives: name, template and commands.
May touch: the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.prompt import Confirm, Prompt
from rich.text import Text

from stepflow.cli.agent_template import TEMPLATES
from stepflow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from stepflow.cli.find_checks import FoundCheck

DEFAULT_NAME = "fixer"


def ask(
    console: Console,
    *,
    name: str | None,
    commands: Sequence[str] | None,
    found: Sequence[FoundCheck],
    check: Callable[[str], None],
) -> tuple[str, str, list[str]]:
    """What was not given. `check` raises `InputError` for a name that cannot be used, which is asked for again."""
    name = name or _name(console, check)
    for template, told in TEMPLATES.items():
        console.print(f"  {template:<8} {told}")
    template = Prompt.ask("Template", console=console, choices=list(TEMPLATES), default="issue")
    if commands is None:
        commands = [] if template == "review" else [*_commands(console, found)]
    return name, template, list(commands)


def _name(console: Console, check: Callable[[str], None]) -> str:
    while True:
        name = Prompt.ask("Name of the agent", console=console, default=DEFAULT_NAME).strip()
        try:
            check(name)
        except InputError as error:
            console.print(Text(str(error), style="red"))
        else:
            return name


def _commands(console: Console, found: Sequence[FoundCheck]) -> Iterator[str]:
    console.print("What must pass before an agent's work counts as done? A clean tree always does.")
    for each in found:
        where = each.source if each.installed else f"{each.source}; not installed here"
        if Confirm.ask(f"{each.command} ({where})", console=console, default=each.installed):
            yield each.command
    while command := Prompt.ask(
        "Another command (empty: none)", console=console, default="", show_default=False
    ).strip():
        yield command
