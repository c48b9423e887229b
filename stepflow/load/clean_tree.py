"""Recognises validators that ask git whether the work tree is clean (security.md case 14).

Takes: a validator's command, success rule and failure pattern. Gives: `CleanTree`.
May touch: nothing. This is the one place that decides it: such a validator gets a second look when it is green.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.domain.definition import ExitCode
from stepflow.domain.words import CleanTree

if TYPE_CHECKING:
    from stepflow.domain.definition import SuccessRule

#: The seeds' name for a tree that is not clean; a validator with it asks, whatever its command is.
DIRTY = "git-dirty"
_ASKS = re.compile(r"\bgit\b[^|;&\n]*?\bstatus\b")
#: `git status` without paths and without options that leave something out, and nothing after it that filters.
_ASKS_FOR_ALL = re.compile(
    r"(?P<read>\$\(|`)? *\bgit +(?:--no-optional-locks +)?status"
    r"(?: +(?:--porcelain(?:=v?[12])?|--short|-s|-z|-b|--branch|--no-renames"
    r"|-u(?:all|normal)?|--untracked-files(?:=(?:all|normal))?))*"
    r" *(?:$|[\n)\"'`;&]|2?>)"
)


def clean_tree(command: str, success: SuccessRule, pattern: str) -> CleanTree:
    """`WHOLE` when its green can only mean that nothing differs from HEAD, `PARTLY` when it may leave something out."""
    whole = _ASKS_FOR_ALL.search(command)
    # The exit code of `git status` says nothing about the tree; that of a command which reads its output may.
    if whole and (whole["read"] or not isinstance(success, ExitCode)) and "|" not in command.replace("||", ""):
        return CleanTree.WHOLE
    return CleanTree.PARTLY if pattern == DIRTY or _ASKS.search(command) else CleanTree.NONE
