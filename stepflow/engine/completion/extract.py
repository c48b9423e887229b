"""The extractors, which read a retry prompt's parameters from a validator's output."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from urllib.parse import unquote

from stepflow.domain.checkout import CommandResult
from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.domain.text import ANSI, names_failure, readable_output
from stepflow.engine.completion.tool_output import (
    find_failed_tests,
    find_lint_errors,
    find_paths,
    find_type_errors,
    find_unformatted,
)

CurrentBranch = Callable[[], str | None]

#: Characters of a line that are searched. No tool writes longer lines, and untrusted output must not slow down the
#: patterns.
LONGEST_LINE = 1_000
FOREIGN = re.compile(r"(?:^|/)(?:node_modules|site-packages)/")

DIFF_START = re.compile(r"^(?:diff --git .*\n(?:[a-z].*\n){0,6})?--- .*\n\+\+\+ ", re.MULTILINE)
DIFF_LINE = re.compile(r"(?:[-+ @\\]|diff |index |new file|deleted file|old mode|new mode|similarity|rename ).*|")

#: A line of `git status --porcelain`.
STATUS = re.compile(r"(?P<index>[ MTADRCU?!])(?P<tree>[ MTADRCU?!]) (?P<path>\S.*)")
QUOTED = re.compile(r'"(?P<inside>(?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
BRANCH = re.compile(r"branch '(?P<name>[^']+)'")
DETACHED = ("detached head", "not currently on a branch", "head does not point to a branch")


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a validator's command printed, without terminal control sequences. `raw` is the unchanged result, `root` the
    repository root as the command saw it."""

    raw: CommandResult
    stdout: str
    stderr: str
    root: str
    current_branch: CurrentBranch

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of both streams, stdout first, each cut to `LONGEST_LINE`."""
        return (*_lines_of(self.stdout), *_lines_of(self.stderr))

    def relative(self, path: str) -> str:
        """Return the path relative to the repository's root; one outside of it stays absolute."""
        plain = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
        plain = posixpath.normpath(plain)
        return plain.removeprefix(self.root.rstrip("/") + "/") if self.root else plain


def extract(names: Mapping[str, str], result: CommandResult, *, root: str, current_branch: CurrentBranch) -> JsonObject:
    """Return the value of each parameter. `names` maps parameters to extractors; an unknown extractor gives null
    (SF605)."""
    stdout, stderr = (ANSI.sub("", stream) for stream in (result.stdout, result.stderr))
    output = Output(raw=result, stdout=stdout, stderr=stderr, root=root, current_branch=current_branch)
    return {parameter: EXTRACTORS[name](output) if name in EXTRACTORS else None for parameter, name in names.items()}


def error_output(output: Output) -> JsonValue:
    """Return both streams in the order in which they were written."""
    return readable_output(output.raw.output)


def _find_records(find: Callable[[tuple[str, ...]], Iterable[JsonObject]], output: Output) -> list[JsonValue]:
    """Return the records that `find` reads in the lines, each once, with relative paths."""
    records = find(output.lines)
    return _unique({**each, "file": output.relative(str(each["file"]))} if "file" in each else each for each in records)


failed_tests = partial(_find_records, find_failed_tests)
type_errors = partial(_find_records, find_type_errors)
lint_errors = partial(_find_records, find_lint_errors)


def lint_files(output: Output) -> JsonValue:
    """Return the files with lint errors."""
    return _unique(output.relative(str(record["file"])) for record in find_lint_errors(output.lines))


def files_named(output: Output) -> JsonValue:
    """Return the files that are named before a line number, anywhere in the output."""
    paths = map(output.relative, find_paths(output.lines))
    return _unique(path for path in paths if not FOREIGN.search(path))


def format_files(output: Output) -> list[JsonValue]:
    """Return the files that are not formatted."""
    return _unique(map(output.relative, find_unformatted(output.lines)))


def format_diff(output: Output) -> JsonValue:
    """Return the unified diff in the output, else the unformatted files, one per line."""
    diff = _find_diff(output.stdout) or _find_diff(output.stderr)
    return diff or "\n".join(map(str, format_files(output)))


def branch_name(output: Output) -> JsonValue:
    """Return the branch that a message names, else the one printed, else the repository's current one."""
    named = BRANCH.search(output.stderr)
    if named:
        return named["name"]
    printed = _first_line(output.stdout)
    return printed if printed and not re.search(r"\s", printed) else output.current_branch()


def remote_status(output: Output) -> JsonValue:
    """Return the upstream, or what is wrong with it."""
    message = output.stderr.lower()
    if "no upstream" in message:
        return "no upstream"
    if any(sign in message for sign in DETACHED):
        return "detached HEAD"
    printed = _first_line(output.stdout) if output.raw.exit_code == 0 else None
    return printed or _find_complaint(output)


def merge_status(output: Output) -> JsonValue:
    """Say how many commits are not merged, or return git's error."""
    if output.raw.exit_code != 0:
        return _find_complaint(output)
    commits = sum(1 for line in _lines_of(output.stdout) if line.strip())
    return f"{commits} commits not merged" if commits else "merged"


def status_files(output: Output, wanted: Callable[[str, str], bool]) -> JsonValue:
    """Return the files of `git status --porcelain` whose codes for index and tree are wanted."""
    lines = (STATUS.fullmatch(line.rstrip("\r")) for line in output.stdout.split("\n"))
    coded = (line for line in lines if line and line["index"] + line["tree"] != "  ")
    return _unique(_read_path(line["path"]) for line in coded if wanted(line["index"], line["tree"]))


Extractor = Callable[[Output], JsonValue]

#: Many extractors have two names: the method's own, and the name of what they find, which retry prompts use.
EXTRACTORS: Mapping[str, Extractor] = {
    "parseChangedFiles": lambda output: status_files(output, lambda index, _: index not in "?!"),
    "parseUntrackedFiles": lambda output: status_files(output, lambda index, tree: index + tree == "??"),
    "parseStagedFiles": lambda output: status_files(output, lambda index, _: index not in " ?!"),
    "parseUnstagedFiles": lambda output: status_files(output, lambda _, tree: tree not in " ?!"),
    "parseTestOutput": failed_tests,
    "failedTests": failed_tests,
    "errorOutput": error_output,
    "parseTypeErrors": type_errors,
    "errors": type_errors,
    "extractFiles": files_named,
    "files": files_named,
    "parseLintErrors": lint_errors,
    "lintErrors": lint_errors,
    "lintFiles": lint_files,
    "parseFormatOutput": format_files,
    "formatFiles": format_files,
    "generateDiff": format_diff,
    "diff": format_diff,
    "parseBranchName": branch_name,
    "parseRemoteStatus": remote_status,
    "parseMergeStatus": merge_status,
    "stdout": lambda output: output.raw.stdout,
    "stderr": lambda output: output.raw.stderr,
    "exitCode": lambda output: output.raw.exit_code,
}


def _lines_of(text: str) -> tuple[str, ...]:
    return tuple(line[:LONGEST_LINE].rstrip("\r") for line in text.split("\n"))


def _first_line(text: str) -> str | None:
    return next((line.strip() for line in _lines_of(text) if line.strip()), None)


def _find_complaint(output: Output) -> str | None:
    """Return the line of stderr that names a failure, past any warnings; else its first."""
    failures = filter(names_failure, _lines_of(output.stderr))
    return next((line.strip() for line in failures), None) or _first_line(output.stderr)


def _unique(values: Iterable[JsonValue]) -> list[JsonValue]:
    """Return the values in the order found, each once."""
    unique: dict[str, JsonValue] = {}
    for value in values:
        unique.setdefault(compact(value), value)
    return list(unique.values())


def _find_diff(text: str) -> str:
    """Return the lines from the first diff header to the last line that can belong to a diff."""
    start = DIFF_START.search(text)
    lines = text[start.start() :].split("\n") if start else []
    return "\n".join(takewhile(DIFF_LINE.fullmatch, lines)).rstrip("\n")


def _read_path(text: str) -> str:
    """Return the path of a status line, or the new one of `old -> new`; either may be quoted."""
    quoted = QUOTED.match(text)
    old = quoted[0] if quoted else text.partition(" -> ")[0]
    rest = text[len(old) :]
    path = rest.removeprefix(" -> ") if rest.startswith(" -> ") else old
    inside = QUOTED.fullmatch(path)
    return ESCAPE.sub(_unescape, inside["inside"].encode()).decode(errors="replace") if inside else path


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else LETTERS.get(code, code)
