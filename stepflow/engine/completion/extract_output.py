"""The output of a validator, made ready for reading (prompts.md §10).

Takes: a command's result, the repository root and a way to ask for the current branch.
Gives: `Output`: both streams without colour codes, lines, paths relative to the root. May touch: nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stepflow.domain.json import JsonValue, compact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.command import CommandResult

CurrentBranch = Callable[[], str | None]

#: Terminal control: colours and cursor (CSI), titles and links (OSC), and the short forms.
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Tools write no longer lines about one finding; output is untrusted and must not slow the patterns down.
LONGEST_LINE = 1_000


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a validator's command printed. `raw` is the result as it was, `root` the repository root as the command
    saw it."""

    raw: CommandResult
    stdout: str
    stderr: str
    root: str
    current_branch: CurrentBranch

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of both streams, stdout first, each cut to a sane length."""
        return (*lines_of(self.stdout), *lines_of(self.stderr))

    def relative(self, path: str) -> str:
        """A path as people write it in this repository; one outside of it stays absolute."""
        plain = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
        plain = posixpath.normpath(plain)
        inside = self.root.rstrip("/") + "/"
        return plain.removeprefix(inside) if self.root else plain


def read_output(result: CommandResult, *, root: str, current_branch: CurrentBranch) -> Output:
    """The result's streams without terminal control."""
    return Output(
        raw=result,
        stdout=CONTROL.sub("", result.stdout),
        stderr=CONTROL.sub("", result.stderr),
        root=root,
        current_branch=current_branch,
    )


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of one stream."""
    return tuple(line[:LONGEST_LINE].rstrip("\r") for line in text.split("\n"))


def first_line(text: str) -> str | None:
    """The first line that is not blank."""
    return next((line.strip() for line in lines_of(text) if line.strip()), None)


def without_doubles(values: Iterable[JsonValue]) -> list[JsonValue]:
    """The values in the order found, each once."""
    found: dict[str, JsonValue] = {}
    for value in values:
        found.setdefault(compact(value), value)
    return list(found.values())
