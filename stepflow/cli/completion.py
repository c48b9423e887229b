"""`stepflow completion SHELL`: what makes a shell complete stepflow's commands, flags and agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argcomplete.shell_integration import shellcode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `completion`."""
    parser.epilog = 'For bash, put this line into ~/.bashrc: eval "$(stepflow completion bash)".'
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that is to run what is printed")


def execute(arguments: argparse.Namespace) -> int:
    """Print it."""
    print(shellcode(["stepflow"], shell=arguments.shell).strip())
    return 0
