"""Decides whether the run's commits may leave the sandbox, and makes commit messages that the engine answers for."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from stepflow.boundary.output_filter import OutputFilter, defuse, visible, without_directives
from stepflow.domain.decision import Violation
from stepflow.domain.definition import DEFAULT_MOST_BYTES, DEFAULT_MOST_FILES, DEFAULT_PROTECTED_PATHS
from stepflow.domain.globs import path_expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


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


@dataclass(frozen=True, kw_only=True)
class CommitRules:
    """What commits must keep to. `by_api`: GitHub's API is to write them, which cannot carry everything."""

    protected_paths: tuple[str, ...] = DEFAULT_PROTECTED_PATHS
    allowed_secret_paths: tuple[str, ...] = ()
    most_files: int = DEFAULT_MOST_FILES
    most_bytes: int = DEFAULT_MOST_BYTES
    by_api: bool = False


COMMIT_LESS = "Commit less: large, generated, and binary files belong into .gitignore."


def rewrite_advice(base: str) -> str:
    """What corrects commits: a later commit that takes something back does not."""
    return (
        "Every commit counts, also what a later one takes back, so make the commits anew: "
        f"`git reset --soft {base[:12]}` undoes them and keeps the files."
    )


def judge_changes(changes: Sequence[Change], rules: CommitRules) -> Iterator[Violation]:
    """Why these changes may not leave. Every commit counts, also what a later one takes back."""
    if guarded := [change for change in changes if is_among(change.path, rules.protected_paths)]:
        yield Violation(
            message=f"protected path: {_named(guarded)}",
            advice="No commit of this run may change a protected path: leave it as it is.",
            hint="Make that change yourself, or narrow `protectedPaths` in agent.json.",
        )
    if submodules := [change for change in changes if change.mode == SUBMODULE]:
        yield Violation(
            message=f"submodule or nested repository: {_named(submodules)}",
            advice="Commit no submodule and no repository inside the repository: remove the `.git` of a folder whose "
            "files belong to the change, or leave the folder out.",
        )
    if links := [change for change in changes if change.mode == SYMLINK and _leaves(change)]:
        yield Violation(
            message=f"symlink that leaves the tree: {_named(links)}",
            advice="Let a symlink point to a place inside the repository by a relative path, or commit a file instead.",
        )
    if (files := len({change.path for change in changes})) > rules.most_files:
        yield Violation(
            message=f"{files} changed files, and at most {rules.most_files} may be pushed",
            advice="Commit fewer files: those that are generated or installed belong into .gitignore.",
            hint="Raise `pullRequest.maxFiles` in agent.json if the change has to be as large as that.",
        )
    sizes = {change.oid: change for change in changes}
    if (size := sum(change.size for change in sizes.values())) > rules.most_bytes:
        largest = max(changes, key=lambda change: change.size)
        yield Violation(
            message=f"{size:,} bytes of changed files, and at most {rules.most_bytes:,} may be pushed; the largest is "
            f"{printable(largest.path)}",
            advice=COMMIT_LESS,
            hint="Raise `pullRequest.maxBytes` in agent.json if the change has to be as large as that.",
        )


def is_among(path: str, globs: Sequence[str]) -> bool:
    """Whether one of these globs, as in `.gitignore`, fits the path."""
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
    return re.compile(path_expression(fold(glob)), re.DOTALL)


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
    text = without_directives(output_filter.mask(visible(message))[:LONGEST_MESSAGE])
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
