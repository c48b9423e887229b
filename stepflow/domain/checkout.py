"""The workspace: its state, commands that run in it, snapshots, changes to its files as data and as text that always
fits on a page, and path globs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from stepflow.domain.proof import Proof, ProofSettings
from stepflow.domain.secrets import mask_secrets
from stepflow.domain.text import count


@dataclass(frozen=True, kw_only=True)
class TreeState:
    """The workspace at one moment. All fields are empty if there is no HEAD (`problem` says why). Ignored files do not
    count. Of each kind of path the first 1000 are listed."""

    #: HEAD's commit; `tree` is its tree.
    commit: str = ""
    tree: str = ""
    #: HEAD's branch; empty where it is detached.
    branch: str = ""
    #: Tracked paths that differ from HEAD.
    changed: tuple[str, ...] = ()
    #: Paths that no commit holds.
    untracked: tuple[str, ...] = ()
    #: What became of paths since the run began: `added`, `changed` or `removed`. Known only at a closing.
    touched: Mapping[str, str] = field(default_factory=dict)
    #: Why the state could not be determined.
    problem: str = ""

    @property
    def uncommitted(self) -> tuple[str, ...]:
        """Return the paths that HEAD's commit does not have as they are."""
        return (*self.changed, *self.untracked)


@dataclass(frozen=True, kw_only=True)
class LineCounts:
    """Number of lines added to and removed from a file; None for a file that git treats as binary."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, kw_only=True)
class DiffStat:
    """The changes of some commits. `files` holds the first 1000 files by path; `count`, `added` and `removed` cover all
    files."""

    files: tuple[LineCounts, ...]
    count: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """A bundle that was streamed out of the sandbox. `size` is in bytes."""

    #: Number of commits on top of the base.
    commits: int
    #: The last commit; `tree` is its tree.
    commit: str
    tree: str
    size: int
    #: Changes since the base; None if git could not compare.
    changes: DiffStat | None = None


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """Run `argv` in the working directory, without an extra shell. `timeout` is in seconds."""

    argv: tuple[str, ...]
    timeout: float
    #: Run it on versions of the run's change instead, to prove that.
    proof: ProofSettings | None = None
    #: What it does, for people who wait; by default, they see the command.
    about: str = ""

    @property
    def described(self) -> str:
        """What is run, for people who wait: a shell's command by its first line."""
        if not self.about and len(self.argv) == 3 and self.argv[1] == "-c":
            return self.argv[2].removeprefix("set -e\n").strip().partition("\n")[0]
        return self.about or " ".join(self.argv)


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a process. The journal has those of command steps, which alone have a `step_id` and `argv`.

    `exit_code` is −1 if it timed out, could not start, or had no files to run on (`error` says which). `stdout` and
    `stderr` hold at most 1 MiB each, head and tail. `seconds` is the process's duration.
    """

    step_id: str = ""
    argv: tuple[str, ...] = ()
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    started: bool = True
    error: str = ""
    seconds: float = 0.0
    #: The lines of both streams in the order they were written; empty if the order is unknown. Not in the journal.
    combined: Annotated[str, Field(exclude=True)] = field(default="", compare=False)
    #: The result of a request for a proof. Not in the journal.
    proof: Annotated[Proof | None, Field(exclude=True)] = field(default=None, compare=False)
    event: Literal["command_ran"] = "command_ran"

    @property
    def had_no_files(self) -> bool:
        """Return whether the files that it was to run on could not be had."""
        return self.exit_code == -1 and self.started and not self.timed_out

    @property
    def output(self) -> str:
        """Return both streams as people see them."""
        streams = (stream for stream in (self.stdout, self.stderr) if stream)
        return self.combined or "\n".join(streams)


@dataclass(frozen=True, kw_only=True)
class BaseCheck:
    """A validator's result before the first model call."""

    name: str
    command: str
    passed: bool
    exit_code: int
    seconds: float
    output_tail: str


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """The changes to one file, as text for people. `added` and `removed` count all lines, including those left out of
    the text."""

    path: str
    text: str
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, kw_only=True)
class StepDiff:
    """The changes over a part of a run. `notes` say what is missing."""

    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return how many characters it takes on a page."""
        return sum(len(file.text) for file in self.files)


@dataclass(frozen=True, kw_only=True)
class PageDiffs:
    """The diffs shown on a page: of each step by the number of its iteration, and of the whole run. `note` is a remark
    about all of them."""

    steps: Mapping[int, StepDiff] = field(default_factory=dict)
    run: StepDiff = field(default_factory=StepDiff)
    note: str = ""


#: Limits in characters: a file's diff, and one line of it.
FILE_LIMIT = 10_000
LINE_LIMIT = 500
#: Characters that would break a line, or hide part of it.
BREAKS = re.compile("[\r\v\f\x1b\x1c-\x1e\x85\x9b\u2028\u2029]")
#: Limits of one step: characters of all its diffs, and its files.
STEP_LIMIT = 40_000
MOST_FILES = 50
TOO_MUCH = "left out to keep this page small"
_FILE = re.compile(r"^diff --git ", re.MULTILINE)


def read_diff(output: bytes, *, is_whole: bool, left_out: Mapping[str, str], redact: Callable[[str], str]) -> StepDiff:
    """Parse the output of `git diff-tree --raw --patch`, remove secrets, and cut it to a readable size. If the output
    was cut, the last file is not shown. Files in `left_out` are listed with the reason."""
    listed, *texts = _FILE.split(output.decode("utf-8", "backslashreplace"))
    texts += [f"a/{path} b/{path}\nnot shown: {why}" for path, why in left_out.items()] if is_whole else []
    total = listed.count("\n:") + listed.startswith(":") + len(left_out)
    files, size = list[FileDiff](), 0
    for text in texts if is_whole else texts[:-1]:
        if len(files) == MOST_FILES or size >= STEP_LIMIT:
            break
        files.append(_file_diff(text.removesuffix("\n"), redact))
        size += len(files[-1].text)
    # A file that became a link has two diffs.
    missing = max(total - len(files), int(len(files) < len(texts)))
    return StepDiff(files=tuple(files), notes=(f"… {count(missing, 'more file')} left out",) if missing else ())


def _file_diff(text: str, redact: Callable[[str], str]) -> FileDiff:
    """Return the diff of one file. The text begins with the file's name twice."""
    names, *lines = text.split("\n")
    path = names[: len(names) // 2].replace("a/", "", 1)
    at = next((number for number, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    binary = "not shown: binary, or larger than 256 KiB"
    head = [binary if line.startswith("Binary files ") else line for line in lines[:at] if line[:6] != "index "]
    body = lines[at:]
    sides = ["\n".join(line[1:] for line in body if line[:1] in signs) for signs in (" -", " +")]
    # A secret may span several lines of one side, so that no single line contains it.
    if any(redact(side).count("\n") < side.count("\n") for side in sides):
        head, body = [*head, "not shown: a secret of the run is in it"], []
    elif all(line.endswith("\r") for line in body if line[:1] in (" ", "+", "-")) and body:
        head, body = ["line endings CRLF", *head], [line.removesuffix("\r") for line in body]
    shown = "\n".join(_bound_lines(redact("\n".join((f"diff --git {names}", *head, *body))).split("\n")))
    return FileDiff(
        path=_spell(redact(path)),
        # Commits with text that looks like a credential are not pushed, so the page does not show the text either.
        text=mask_secrets(shown),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _bound_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield as many lines as may be shown, each cut and without line breaks, then the number of lines left out."""
    size = 0
    for number, line in enumerate(lines):
        shown = _spell(line[:LINE_LIMIT])
        if len(line) > LINE_LIMIT:
            shown += f" [… {len(line) - LINE_LIMIT:,} characters left out …]"
        if size + len(shown) > FILE_LIMIT:
            yield f"… {count(len(lines) - number, 'more line')} of this difference left out"
            return
        size += len(shown) + 1
        yield shown


def _spell(text: str) -> str:
    return BREAKS.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


@dataclass(frozen=True, kw_only=True)
class SnapshotDiffs:
    """The changes at a snapshot: since its iteration began, and since the first iteration began."""

    step: StepDiff = StepDiff()
    run: StepDiff = StepDiff()


def excludes_branch(name: str, branch: str) -> bool:
    """Return whether one branch name is a folder of the other, so that git cannot keep both."""
    return branch.startswith(f"{name}/") or name.startswith(f"{branch}/")


_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]{0,200}\]|[{},]|.", re.DOTALL)
_PARTS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_BRACES = {"{": "(?:", "}": ")"}
_SPECIAL_IN_CLASS = re.compile(r"[\\^\[\]&~|]")
_WILD = re.compile(r"[*?\[]")


def glob_expression(pattern: str, *, braces: bool = False) -> str:
    """Return a regular expression for a shell glob: `*`, `?`, `[…]`, `**` across folders, and `{a,b}` if `braces` is
    set. Raise `ValueError` for unbalanced braces."""
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
    """Return a regular expression for a `.gitignore` pattern. A pattern without a slash before its end matches a name
    at any depth; any other matches a path from the root. A pattern that matches a folder matches everything in it."""
    return f"{glob_expression(_from_root(pattern).removesuffix('/**'))}(?:/.*)?"


def fits_one_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return the question whether a path fits one of these `.gitignore` patterns."""
    expressions = [re.compile(path_expression(pattern), re.DOTALL) for pattern in patterns]
    return lambda path: any(expression.fullmatch(path) for expression in expressions)


def folders_before(pattern: str) -> list[str]:
    """Return the nested folder names that lead to everything the pattern can match."""
    names = _from_root(pattern).split("/")
    wild = next((number for number, name in enumerate(names) if _WILD.search(name)), len(names))
    return names[:wild]


def _from_root(pattern: str) -> str:
    plain = pattern.removesuffix("/")
    return plain.removeprefix("./").removeprefix("/") if "/" in plain else f"**/{plain}"
