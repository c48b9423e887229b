"""`stepflow completion SHELL`: the script that completes commands, flags and agents in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argcomplete.shell_integration import shellcode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `completion`."""
    parser.epilog = 'For bash, add this line to ~/.bashrc: eval "$(stepflow completion bash)"'
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print the script for")


def execute(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(shellcode(["stepflow"], shell=arguments.shell).strip())
    return 0
