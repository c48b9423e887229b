"""The workspace: its state, commands that run in it, its snapshots, what became of its files, and globs for paths."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TreeState:
    """HEAD's commit and tree, empty when there is none (`problem` says why).

    `uncommitted` are the paths that differ from HEAD or are not tracked, ignored files left out, at most 1000.
    """

    commit: str
    tree: str
    uncommitted: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class LineCounts:
    """How many lines of a file were added and removed; None for a file that git treats as binary."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, kw_only=True)
class DiffStat:
    """What commits changed: the first 1000 `files` by path; `count`, `added` and `removed` are of all files."""

    files: tuple[LineCounts, ...]
    count: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """A bundle that was streamed: how many commits it adds to the base, the last one and its tree, its size in bytes,
    and what changed since the base; `changes` is None where git could not compare."""

    commits: int
    commit: str
    tree: str
    size: int
    changes: DiffStat | None = None


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """Run `argv` in the working directory, without a shell of its own. `timeout` in seconds. One that `checks` meets
    HOME and TMPDIR as `setup` left them."""

    argv: tuple[str, ...]
    timeout: float
    checks: bool = False


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How a process ended. `exit_code` is −1 when it timed out or could not be started (`error` says which).

    The streams hold at most 1 MiB each, head and tail kept. `combined` has the lines of both in the order in which they
    were written; it is empty where that is not known. `seconds` is the process's duration. `restored` names what was
    not as `setup` left it before a command that checks.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    started: bool = True
    error: str = ""
    seconds: float = 0.0
    restored: tuple[str, ...] = ()
    combined: str = ""

    @property
    def output(self) -> str:
        """What people see of both streams."""
        streams = (stream for stream in (self.stdout, self.stderr) if stream)
        return self.combined or "\n".join(streams)


@dataclass(frozen=True, kw_only=True)
class BaseCheck:
    """A validator as it was before the first call of the model."""

    name: str
    command: str
    passed: bool
    exit_code: int
    seconds: float
    output_tail: str


@dataclass(frozen=True, kw_only=True)
class SnapshotInfo:
    """`name` is that of the snapshot before when nothing changed since, empty when there is none at all.

    `files` are the paths that changed, `bytes` what the store grew by. `left_out` says of paths why they are not in it.
    `problem` says why no snapshot could be taken, and `name` is then the last one that was.
    """

    name: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """What became of one file, as text for people. `added` and `removed` count all lines, also those that the text
    leaves out."""

    path: str
    text: str
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, kw_only=True)
class StepDiff:
    """What changed over a stretch of a run. `notes` say what is missing."""

    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotDiffs:
    """What has changed at a snapshot since its iteration began, and since the first one did."""

    step: StepDiff = StepDiff()
    run: StepDiff = StepDiff()


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The workspace at a closing, before the first validator: HEAD's commit and its tree, tracked paths that differ
    from it, and paths that no commit holds. `created` are such paths that the validators themselves made. `problem`
    says why none of that can be told. Empty where there is no repository.
    """

    commit: str = ""
    tree: str = ""
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class GuardDiagnostics:
    """`hidden` are lines of `git status --porcelain` for what was hidden from a validator that found the tree clean;
    `changed` are files that the validator depends on, with what became of them since the run began; `moved` are HEAD
    and tracked paths that are not what they were at the closing; `created` are untracked paths that are new since then;
    `problem` says why it cannot be told whether the validator saw everything; `notes` only matter to people.
    """

    hidden: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()


def excludes_branch(name: str, branch: str) -> bool:
    """Whether git cannot keep a branch of this name beside the other one, since one is a folder of the other."""
    return branch.startswith(f"{name}/") or name.startswith(f"{branch}/")


_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|[{},]|.", re.DOTALL)
_PARTS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_BRACES = {"{": "(?:", "}": ")"}
_SPECIAL_IN_CLASS = re.compile(r"[\\^\[\]&~|]")
_WILD = re.compile(r"[*?\[]")


def glob_expression(pattern: str, *, braces: bool = False) -> str:
    """`*`, `?`, `[…]`, and `**` over folders, as in a shell; with `braces` also `{a,b}`. Raises `ValueError` for braces
    that do not match."""
    parts: list[str] = []
    depth = 0
    for piece in _PIECE.findall(pattern):
        if braces:
            depth += {"{": 1, "}": -1}.get(piece, 0)
        if braces and piece in _BRACES:
            parts.append(_BRACES[piece])
        elif piece == "," and depth > 0:
            parts.append("|")
        else:
            parts.append(_part(piece))
    if depth != 0:
        raise ValueError("its braces do not match")
    return "".join(parts)


def _part(piece: str) -> str:
    if piece in _PARTS:
        return _PARTS[piece]
    if len(piece) == 1:
        return re.escape(piece)
    negated = piece[1] == "!"
    members = _SPECIAL_IN_CLASS.sub(r"\\\g<0>", piece[2 if negated else 1 : -1])
    return f"[^/{members}]" if negated else f"[{members}]"


def path_expression(pattern: str) -> str:
    """A glob as in `.gitignore`: without a slash before its end it fits a name at any depth, else a path from the root;
    what fits a folder fits everything in it."""
    return f"{glob_expression(_from_root(pattern).removesuffix('/**'))}(?:/.*)?"


def folders_before(pattern: str) -> list[str]:
    """The names, one below the other, that lead to everything that such a glob can fit."""
    names = _from_root(pattern).split("/")
    wild = next((number for number, name in enumerate(names) if _WILD.search(name)), len(names))
    return names[:wild]


def _from_root(pattern: str) -> str:
    plain = pattern.removesuffix("/")
    return plain.removeprefix("./").removeprefix("/") if "/" in plain else f"**/{plain}"
