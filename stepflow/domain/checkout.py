"""The workspace: its state, commands that run in it, its snapshots, and what became of its files."""

from __future__ import annotations

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
