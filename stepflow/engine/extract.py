"""Reads the output of checks: failed tests, type errors, lint errors and unformatted files in the forms of many tools;
and the extractors, which take a retry prompt's parameters from it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile
from textwrap import dedent
from urllib.parse import unquote

from stepflow.domain.checkout import CommandResult
from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.domain.text import ANSI, count, names_failure, readable_output

#: How cargo reports a failure: the output of the test follows.
CARGO_TEST = re.compile(r"---- (?P<name>.+) stdout ----")
#: pytest, unittest, cargo, Deno and Go: one failed test a line. Parameters (in brackets) may hold anything, ` - ` too.
FAILED_TESTS = (
    re.compile(
        r"(?:FAILED|ERROR) (?P<file>[^\s:]+\.\w+)(?:::(?P<name>[^\[\s]+(?:\[.*?\](?= - |$))?))?(?: - (?P<error>.*))?"
    ),
    re.compile(r"(?:FAIL|ERROR): (?P<name>\S+) \(.*\)"),
    re.compile(r"FAILED \| (?!\d+ passed)(?P<name>.+)"),
    re.compile(r"test (?P<name>\S.*?)(?: - should panic)? \.\.\. FAILED"),
    CARGO_TEST,
    re.compile(r"(?P<name>\S.*) \.\.\. FAILED(?: \((?P<error>due to [^)]*)\)| \([^)]*\))?(?: \([^)]*\))?"),
    re.compile(r"--- FAIL: (?P<name>\S+)(?: \(\S+\))?"),
)
#: How Deno reports a failure: `name => ./file.ts:7:6`, and the error on the next line.
DENO_TEST = re.compile(r"(?P<name>\S.*) => (?P<file>\S+?):\d+:\d+")
PYTHON_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+')
RUST_PANIC = re.compile(r"(?:panicked at |', )(?P<file>[^\s:']+\.rs):\d+:\d+")
RULER = re.compile(r"-{5,}")
TEST_END = re.compile(
    r"===.*|!!!.*|FAIL|FAIL\t.*|ok {2}\t.*|Ran \d+ tests? in .*|ERRORS|FAILURES|.+ => \S+:\d+:\d+"
    r"|test .+ \.\.\. \w+|failures:|test result: .*|stack backtrace:|note: run with .*"
)
MOST_TEST_LINES = 9

#: mypy `f:1:2: error: …`, pyright `f:1:2 - error: …`, tsc `f(1,2): error TS1: …` and `f:1:2 - error TS1: …`.
TYPE_ERROR = re.compile(
    r"(?P<file>.+?)"
    r"(?::(?P<line>\d+)(?::(?P<column>\d+))?(?::\d+:\d+)?(?P<sign>: | - )|\((?P<row>\d+),(?P<location>\d+)\): )"
    r"error(?: (?P<code>TS\d+))?: (?P<message>.+)"
)
MYPY_CODE = re.compile(r"\[(?P<code>[a-z][a-z0-9-]*)\]$")
#: mypy with `--pretty` wraps a message over a few lines. The indented source below, notes and the summary are not part
#: of it.
MYPY_NEXT = re.compile(r"    .*|Found .*|.+?:\d+: (?:error|note): .*")
MOST_WRAPPED = 4
PYRIGHT_CODE = re.compile(r"(?P<message>.*) \((?P<code>report\w+)\)")
DENO_ERROR = re.compile(r"(?:error: )?(?P<code>TS\d+) \[ERROR\]: (?P<message>.+)")
DENO_AT = re.compile(r"at (?P<file>(?:file://)?/\S+?):(?P<line>\d+):(?P<column>\d+)")
#: How many lines after the first one can belong to a message.
MOST_MORE = 30

RULE = r"(?P<rule>[A-Z]{1,6}\d{1,5}|invalid-syntax):? (?:\[\*\] )?(?P<message>.+)"
#: A finding on one line: ruff and flake8; eslint and Deno in their compact formats.
LINT_LINES = (
    re.compile(r"(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?: " + RULE),
    re.compile(
        r"(?P<file>\S.*?): line (?P<line>\d+), col (?P<column>\d+)(?:, (?:Error|Warning))? - "
        r"(?P<message>.+) \((?P<rule>[^()]+)\)"
    ),
)
#: ruff and Deno: the finding on one line, its location after an arrow on the next.
LINT_HEADS = (
    re.compile(RULE),
    re.compile(r"(?:error|warning)\[(?P<rule>[\w/@-]+)\]: (?P<message>.+)"),
)
LINT_ARROW = re.compile(r"--> (?P<file>.+):(?P<line>\d+):(?P<column>\d+)")
#: eslint's own report: a file on its own line, rows under it.
ESLINT_FILE = re.compile(r"\S.*\.[A-Za-z]\w*")
ESLINT_PLACE = re.compile(r"(?P<line>\d+):(?P<column>\d+)")

#: A file before a line number.
PLACED = re.compile(r"(?<![^\s\"'`(\[<,;=])(?P<file>(?:file://)?[^\s:()\"'`<>|,;=]+\.[A-Za-z]\w*)(?=:\d|\(\d+,)")

#: black, ruff format, prettier, gofmt and Deno fmt: a file on its own line, in each formatter's words.
UNFORMATTED = (
    re.compile(r"would reformat:? (?P<file>.+)", re.IGNORECASE),
    re.compile(r"\[warn\] (?P<file>.+\.\w+)"),
    re.compile(r"from (?P<file>.+):"),
    re.compile(r"(?P<file>[^\s:\"'`<>|*?]+\.[A-Za-z]\w*)"),
)
#: ruff: the problem on one line, its location after an arrow on the next.
UNFORMATTED_HEAD = "unformatted: "
UNFORMATTED_ARROW = re.compile(r"--> (?P<file>.+?)(?::\d+:\d+)?")


def find_failed_tests(lines: Sequence[str]) -> Iterator[JsonObject]:
    """Yield `{name, file?, error}` for each failed test."""
    failures = [(at, match) for at, line in enumerate(lines) if (match := _first_match(FAILED_TESTS, line.strip()))]
    ends = [*(at for at, _ in failures), len(lines)][1:]
    by_deno = _find_deno_tests(lines)
    by_cargo = {match["name"] for _, match in failures if match.re is CARGO_TEST}
    for (at, match), end in zip(failures, ends, strict=True):
        groups = match.groupdict()
        name, body = groups["name"] or groups["file"], _read_test_body(lines[at + 1 : end])
        if name in by_cargo and match.re is not CARGO_TEST:
            continue  # the result, which says less than the report below
        frame = PYTHON_FRAME.search(body) or RUST_PANIC.search(body)
        file, error = by_deno.get(
            name, (groups.get("file") or (frame["file"] if frame else None), groups.get("error") or body)
        )
        yield {"name": name, **({"file": file} if file else {}), "error": error}


def find_type_errors(lines: Sequence[str]) -> Iterator[JsonObject]:
    """Yield `{file, line, column?, code?, message}` for each error; if no known format matches, for each line that
    begins with `error`."""
    known = False
    for at, line in enumerate(lines):
        following = lines[at + 1 : at + 1 + MOST_MORE]
        if located := TYPE_ERROR.fullmatch(line.strip()):
            known = True
            code, message = _read_type_message(located, following)
            location = (located["line"] or located["row"], located["column"] or located["location"])
            yield _build_record(located["file"], *location, code=code, message=message)
        if deno := DENO_ERROR.fullmatch(line.strip()):
            known = True
            yield _read_deno_error(deno, following)
    for line in () if known else lines:
        if line.lower().startswith("error"):
            yield {"file": "unknown", "line": 0, "message": line.strip()}


def find_lint_errors(lines: Sequence[str]) -> Iterator[JsonObject]:
    """Yield `{file, line, column?, rule, message}` for each finding, warnings included."""
    head: re.Match[str] | None = None
    file = ""
    for line in lines:
        text = line.strip()
        arrow = LINT_ARROW.fullmatch(text)
        if arrow and head:
            yield _build_lint_record(arrow, head)
        for form in LINT_LINES:
            if match := form.fullmatch(text):
                yield _build_lint_record(match, match)
        if file and line != text:
            yield from _read_eslint_row(file, text)
        head = _first_match(LINT_HEADS, text)
        if text and line == text:
            file = text if ESLINT_FILE.fullmatch(text) else ""


def find_paths(lines: Sequence[str]) -> Iterator[str]:
    """Yield the files that are named before a line number."""
    return (match["file"] for line in lines for match in PLACED.finditer(line))


def find_unformatted(lines: Sequence[str]) -> Iterator[str]:
    """Yield the files that a formatter would change."""
    after_head = False
    for line in lines:
        text = line.strip()
        arrow = UNFORMATTED_ARROW.fullmatch(text) if after_head else None
        if match := arrow or _first_match(UNFORMATTED, text):
            yield match["file"]
        after_head = text.startswith(UNFORMATTED_HEAD)


def _first_match(forms: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next(filter(None, (form.fullmatch(text) for form in forms)), None)


def _build_record(file: str, line: str, column: str | None, **more: str | None) -> JsonObject:
    optional = {"column": int(column) if column else None, **more}
    return {"file": file, "line": int(line), **{key: value for key, value in optional.items() if value is not None}}


def _read_test_body(following: Sequence[str]) -> str:
    """Return the lines below a result, up to the end of its section."""
    body: list[str] = []
    for line in following:
        if TEST_END.fullmatch(line.strip()) or len(body) == MOST_TEST_LINES:
            break
        if line.strip() and not RULER.fullmatch(line.strip()):
            body.append(line.rstrip())
    return dedent("\n".join(body))


def _find_deno_tests(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the file and error of each failed test that Deno reports. The line of a test step has only the last part
    of its name."""
    locations: dict[str, tuple[str, str]] = {}
    for line, following in pairwise(lines):
        location = DENO_TEST.fullmatch(line.strip())
        if location and following.startswith("error: "):
            where = (location["file"], following.removeprefix("error: "))
            locations[location["name"]] = where
            locations.setdefault(location["name"].rpartition(" ... ")[2], where)
    return locations


def _read_type_message(located: re.Match[str], following: Sequence[str]) -> tuple[str | None, str]:
    """Return code and message. pyright and tsc continue a message in indented lines, mypy with `--pretty` in wrapped
    ones."""
    message = located["message"].strip()
    if located["sign"] == ": ":
        return _read_mypy_message(message, following)
    if not (located["sign"] and located["code"]):
        for line in following:
            if line[:2].strip() or not line.strip() or TYPE_ERROR.fullmatch(line.strip()):
                break
            message = f"{message} {line.strip()}"
    coded = PYRIGHT_CODE.fullmatch(message)
    return (coded["code"], coded["message"]) if coded else (located["code"], message)


def _read_mypy_message(message: str, following: Sequence[str]) -> tuple[str | None, str]:
    joined = message
    for line in ("", *following[:MOST_WRAPPED]):
        if MYPY_NEXT.fullmatch(line):
            break
        joined = f"{joined} {line.strip()}".rstrip()
        coded = MYPY_CODE.search(joined)
        if coded:
            return coded["code"], joined[: coded.start()].rstrip()
    return None, message


def _read_deno_error(deno: re.Match[str], following: Sequence[str]) -> JsonObject:
    for line in following:
        if at := DENO_AT.fullmatch(line.strip()):
            return _build_record(at["file"], at["line"], at["column"], code=deno["code"], message=deno["message"])
        if DENO_ERROR.fullmatch(line.strip()):
            break
    return {"file": "unknown", "line": 0, "code": deno["code"], "message": deno["message"]}


def _build_lint_record(location: re.Match[str], finding: re.Match[str]) -> JsonObject:
    return _build_record(
        location["file"], location["line"], location["column"], rule=finding["rule"], message=finding["message"]
    )


def _read_eslint_row(file: str, text: str) -> Iterator[JsonObject]:
    """Read a row of eslint's own report: location, severity, message, rule (except for a parsing error), separated by
    two blanks."""
    columns = re.split(r"\s{2,}", text)
    location = ESLINT_PLACE.fullmatch(columns[0])
    if location and len(columns) > 2 and columns[1] in ("error", "warning"):
        message, rule = (" ".join(columns[2:-1]), columns[-1]) if len(columns) > 3 else (columns[2], "")
        yield _build_record(file, location["line"], location["column"], rule=rule, message=message)


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
    return f"{count(commits, 'commit')} not merged" if commits else "merged"


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
    # Both streams, in the order in which they were written.
    "errorOutput": lambda output: readable_output(output.raw.output),
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
