"""Decides whether the run's commits may leave the sandbox, and makes commit messages that the engine answers for."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from stepflow.boundary.output_filter import OutputFilter, defuse, visible, without_directives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MOST_FILES = 300
MOST_BYTES = 8 * 1024 * 1024
MOST_NAMED = 20
SUBMODULE, SYMLINK = "160000", "120000"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One path that differs from the base in one commit. `mode` and `oid` are the new ones, `mode_before` and `before`
    those in the base; `size` is 0 for a removed file; `target` is what a symlink points to."""

    path: str
    mode: str
    oid: str
    before: str = ""
    mode_before: str = ""
    size: int = 0
    target: str | None = None


def judge_changes(changes: Sequence[Change], protected: Sequence[str]) -> str | None:
    """Why these changes may not leave. Every commit counts, also what a later one takes back."""
    if guarded := [change for change in changes if is_among(change.path, protected)]:
        return f"protected path: {_named(guarded)}"
    if submodules := [change for change in changes if change.mode == SUBMODULE]:
        return f"submodule or nested repository: {_named(submodules)}"
    if links := [change for change in changes if change.mode == SYMLINK and _leaves(change)]:
        return f"symlink that leaves the tree: {_named(links)}"
    if (files := len({change.path for change in changes})) > MOST_FILES:
        return f"{files} changed files, and at most {MOST_FILES} may be pushed"
    size = sum({change.oid: change.size for change in changes}.values())
    if size > MOST_BYTES:
        return (
            f"{size / 1024 / 1024:.1f} MiB of changed files, and at most {MOST_BYTES // 1024 // 1024} MiB may be pushed"
        )
    return None


def is_among(path: str, globs: Sequence[str]) -> bool:
    """Whether one of these globs fits the path."""
    return any(_pattern(glob).fullmatch(fold(path)) for glob in globs)


def fold(path: str) -> str:
    """A path as the most forgiving file systems see it: without case and composition, as HFS+ without characters that
    cannot be seen, and as NTFS without dots and blanks at the end of a name or a stream behind a colon."""
    seen = "".join(letter for letter in path if unicodedata.category(letter) != "Cf")
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", seen).casefold())
    return "/".join(_plain_name(name) for name in plain.split("/"))


def _plain_name(name: str) -> str:
    return name if set(name) <= {"."} else name.partition(":")[0].rstrip(". ")


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """A glob as git writes them: without a slash it fits a name at any depth, `**` crosses folders, and what fits a
    folder fits everything in it."""
    glob = fold(glob).removesuffix("/")
    anchored = glob.removeprefix("/") if "/" in glob else f"**/{glob}"
    folder = anchored.removesuffix("/**")
    parts = [_part(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", folder)]
    return re.compile(f"{''.join(parts)}(?:/.*)?", re.DOTALL)


def _part(part: str) -> str:
    return {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))


def _leaves(change: Change) -> bool:
    """True unless the target goes up first, no further than the root, and then only down, and not into `.git`."""
    target = (change.target or "").split("/")
    ups = next((number for number, part in enumerate(target) if part not in ("..", ".")), len(target))
    down = target[ups:]
    depth = change.path.count("/")
    climbs = sum(part == ".." for part in target[:ups])
    return not change.target or target[0] == "" or climbs > depth or ".." in down or ".git" in map(fold, down)


def _named(changes: Sequence[Change]) -> str:
    return name_some([printable(change.path) for change in changes])


def name_some(names: Sequence[str]) -> str:
    """The first of these names, each once, and how many more there are."""
    once = list(dict.fromkeys(names))
    return ", ".join(once[:MOST_NAMED]) + (f" and {len(once) - MOST_NAMED} more" if len(once) > MOST_NAMED else "")


def printable(path: str) -> str:
    """A path for a message."""
    return path.encode("unicode_escape").decode()


LONGEST_MESSAGE = 10_000
NO_SUBJECT = "Work of the agent"
#: Lines that claim who wrote, saw or approved something, or that steer CI, wherever they stand.
_CLAIM = re.compile(r"(?:[A-Za-z-]+-by|skip-checks|change-id|stepflow-[a-z]+)[ \t]*:", re.IGNORECASE)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*[ \t]*:[ \t]|[ \t]+\S|\(cherry picked from commit ")


def clean_message(message: str, trailers: Mapping[str, str], output_filter: OutputFilter) -> str:
    """The model's message without claims, trailers, closing keywords, CI directives and secrets; then our trailers."""
    text = without_directives(output_filter.mask(visible(message)[:LONGEST_MESSAGE]))
    lines = [line.rstrip() for line in text.split("\n") if not _CLAIM.match(line.strip())]
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    while len(paragraphs) > 1 and _is_trailer_block(paragraphs[-1]):
        paragraphs.pop()
    body = defuse("\n\n".join(paragraphs).strip()) or NO_SUBJECT
    ours = "\n".join(f"{key}: {value}" for key, value in trailers.items())
    return f"{body}\n\n{ours}\n"


def read_trailers(message: str) -> dict[str, str]:
    """The lines `Key: value` that a commit's message ends with."""
    lines = message.strip().rpartition("\n\n")[2].splitlines()
    return {key: value.strip() for key, colon, value in (line.partition(": ") for line in lines) if colon}


def _is_trailer_block(paragraph: str) -> bool:
    lines = paragraph.split("\n")
    return all(_TRAILER.match(line) for line in lines) and not lines[0][:1].isspace()
