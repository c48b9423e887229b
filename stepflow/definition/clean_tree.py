"""Recognizes validators that ask git whether the work tree is clean (security.md case 14)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.domain.definition import ExitCode

if TYPE_CHECKING:
    from stepflow.domain.definition import SuccessRule

#: `git status` without paths and without options that leave something out, and nothing after it that filters.
_ASKS_FOR_ALL = re.compile(
    r"(?P<read>\$\(|`)? *\bgit +(?:--no-optional-locks +)?status"
    r"(?: +(?:--porcelain(?:=v?[12])?|--short|-s|-z|-b|--branch|--no-renames"
    r"|-u(?:all|normal)?|--untracked-files(?:=(?:all|normal))?))*"
    r" *(?:$|[\n)\"'`;&]|2?>)"
)


def clean_tree(command: str, success: SuccessRule) -> bool:
    """Whether the command's green can only mean that nothing differs from HEAD."""
    whole = _ASKS_FOR_ALL.search(command)
    # The exit code of `git status` says nothing about the tree; that of a command which reads its output may.
    return bool(whole and (whole["read"] or not isinstance(success, ExitCode)) and "|" not in command.replace("||", ""))
