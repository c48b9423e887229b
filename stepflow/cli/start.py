"""The first thing that a command does which holds a secret: nobody else may look into its process.

Takes: parsed flags. Gives: nothing; a process that was given a secret on its command line starts anew without it.
May touch: this process.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from stepflow.cli.options import SECRETS
from stepflow.sandbox.own_process import close_process

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def close_doors(arguments: argparse.Namespace) -> None:
    """Close /proc to others. Everybody can read a command line, so a secret in it moves to the environment."""
    close_process()
    given = {variable: getattr(arguments, name.replace("-", "_"), None) for name, variable in SECRETS.items()}
    moved = {variable: value for variable, value in given.items() if value}
    if moved:
        words = without_secrets(sys.orig_argv)
        os.execve(sys.executable, words, {**os.environ, **moved})  # noqa: S606 - this very program, with its own words


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words of a command line without the flags of secrets and their values; argparse takes shortened flags too."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        flag, has_value, _ = word.partition("=")
        if len(flag) > len("--") and any(f"--{name}".startswith(flag) for name in SECRETS):
            if not has_value:
                next(left, None)
        else:
            kept.append(word)
    return kept
