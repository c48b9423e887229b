"""What type checkers and linters complain of (prompts.md §10).

Takes: the output of mypy, pyright, tsc, Deno, ruff, flake8 or eslint. Gives: one record per finding, and their files.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.engine.completion.extract_output import without_doubles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.engine.completion.extract_output import Output

#: mypy `f:1:2: error: …`, pyright `f:1:2 - error: …`, tsc `f(1,2): error TS1: …` and `f:1:2 - error TS1: …`.
TYPE_ERROR = re.compile(
    r"(?P<file>.+?)"
    r"(?::(?P<line>\d+)(?::(?P<column>\d+))?(?::\d+:\d+)?(?P<sign>: | - )|\((?P<row>\d+),(?P<place>\d+)\): )"
    r"error(?: (?P<code>TS\d+))?: (?P<message>.+)"
)
MYPY_CODE = re.compile(r"\[(?P<code>[a-z][a-z0-9-]*)\]$")
#: A pretty mypy wraps a message over a few lines; the source under it is indented, notes and the sum are no part of it.
MYPY_NEXT = re.compile(r"    .*|Found .*|.+?:\d+: (?:error|note): .*")
MOST_WRAPPED = 4
PYRIGHT_CODE = re.compile(r"(?P<message>.*) \((?P<code>report\w+)\)")
#: How many lines after the first one can belong to a message.
MOST_MORE = 30
DENO_ERROR = re.compile(r"(?:error: )?(?P<code>TS\d+) \[ERROR\]: (?P<message>.+)")
DENO_AT = re.compile(r"at (?P<file>(?:file://)?/\S+?):(?P<line>\d+):(?P<column>\d+)")

PLACED = re.compile(r"(?<![^\s\"'`(\[<,;=])(?P<file>(?:file://)?[^\s:()\"'`<>|,;=]+\.[A-Za-z]\w*)(?=:\d|\(\d+,)")
FOREIGN = re.compile(r"(?:^|/)(?:node_modules|site-packages)/")

RULE = r"(?P<rule>[A-Z]{1,6}\d{1,5}|invalid-syntax):? (?:\[\*\] )?(?P<message>.+)"
#: ruff and flake8: all on one line.
LINT_LINE = re.compile(r"(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?: " + RULE)
#: ruff and Deno: the finding on one line, the place after an arrow on the next.
LINT_HEAD = re.compile(RULE + r"|(?:error|warning)\[(?P<name>[\w/@-]+)\]: (?P<text>.+)")
LINT_ARROW = re.compile(r"--> (?P<file>.+):(?P<line>\d+):(?P<column>\d+)")
#: eslint and Deno, compact.
LINT_COMPACT = re.compile(
    r"(?P<file>\S.*?): line (?P<line>\d+), col (?P<column>\d+)(?:, (?:Error|Warning))? - "
    r"(?P<message>.+) \((?P<rule>[^()]+)\)"
)
#: eslint's own report: a file on its own line, rows under it.
ESLINT_FILE = re.compile(r"\S.*\.[A-Za-z]\w*")
ESLINT_PLACE = re.compile(r"(?P<line>\d+):(?P<column>\d+)")


def type_errors(output: Output) -> JsonValue:
    """`{file, line, column?, code?, message}` for each error; lines that begin with `error` where no form is known."""
    known = list(_type_errors(output))
    return without_doubles(known or _plain_errors(output))


def lint_errors(output: Output) -> JsonValue:
    """`{file, line, column?, rule, message}` for each finding, warnings too."""
    return without_doubles(_lint_errors(output))


def lint_files(output: Output) -> JsonValue:
    """The files that the linter complains of."""
    return without_doubles(record["file"] for record in _lint_errors(output))


def files_named(output: Output) -> JsonValue:
    """The files that stand before a line number, anywhere in the output."""
    paths = (output.relative(found["file"]) for line in output.lines for found in PLACED.finditer(line))
    return without_doubles(path for path in paths if not FOREIGN.search(path))


def _type_errors(output: Output) -> Iterator[JsonObject]:
    lines = output.lines
    for at, line in enumerate(lines):
        following = lines[at + 1 : at + 1 + MOST_MORE]
        located = TYPE_ERROR.fullmatch(line.strip())
        if located:
            code, message = _type_message(located, following)
            place = (located["line"] or located["row"], located["column"] or located["place"])
            yield _record(output, located["file"], *place, code=code, message=message)
        deno = DENO_ERROR.fullmatch(line.strip())
        if deno:
            yield _deno_record(deno, following, output)


def _type_message(located: re.Match[str], following: Sequence[str]) -> tuple[str | None, str]:
    """Code and message; pyright and tsc go on in indented lines, a pretty mypy in wrapped ones."""
    message = located["message"].strip()
    if located["sign"] == ": ":
        return _mypy_message(message, following)
    indented = () if located["sign"] and located["code"] else _indented(following)
    message = " ".join((message, *indented))
    coded = PYRIGHT_CODE.fullmatch(message)
    return (coded["code"], coded["message"]) if coded else (located["code"], message)


def _mypy_message(message: str, following: Sequence[str]) -> tuple[str | None, str]:
    joined = message
    for line in ("", *following[:MOST_WRAPPED]):
        if MYPY_NEXT.fullmatch(line):
            break
        joined = f"{joined} {line.strip()}".rstrip()
        coded = MYPY_CODE.search(joined)
        if coded:
            return coded["code"], joined[: coded.start()].rstrip()
    return None, message


def _indented(following: Sequence[str]) -> Iterator[str]:
    for line in following:
        if line[:2].strip() or not line.strip() or TYPE_ERROR.fullmatch(line.strip()):
            return
        yield line.strip()


def _deno_record(deno: re.Match[str], following: Sequence[str], output: Output) -> JsonObject:
    for line in following:
        at = DENO_AT.fullmatch(line.strip())
        if at:
            return _record(output, at["file"], at["line"], at["column"], code=deno["code"], message=deno["message"])
        if DENO_ERROR.fullmatch(line.strip()):
            break
    return {"file": "unknown", "line": 0, "code": deno["code"], "message": deno["message"]}


def _plain_errors(output: Output) -> Iterator[JsonObject]:
    for line in output.lines:
        if line.lower().startswith("error"):
            yield {"file": "unknown", "line": 0, "message": line.strip()}


def _lint_errors(output: Output) -> Iterator[JsonObject]:
    head: re.Match[str] | None = None
    file = ""
    for line in output.lines:
        text = line.strip()
        arrow = LINT_ARROW.fullmatch(text)
        if arrow and head:
            yield _lint_record(output, arrow, head["rule"] or head["name"], head["message"] or head["text"])
        one_line = LINT_LINE.fullmatch(text)
        if one_line:
            yield _lint_record(output, one_line, one_line["rule"], one_line["message"])
        compact = LINT_COMPACT.fullmatch(text)
        if compact:
            yield _lint_record(output, compact, compact["rule"], compact["message"])
        yield from _eslint_row(output, file, text) if file and line != text else ()
        head = LINT_HEAD.fullmatch(text)
        if text and line == text:
            file = text if ESLINT_FILE.fullmatch(text) else ""


def _eslint_row(output: Output, file: str, text: str) -> Iterator[JsonObject]:
    """A row of eslint's own report: place, severity, message, rule (not for a parsing error), two blanks between."""
    columns = re.split(r"\s{2,}", text)
    place = ESLINT_PLACE.fullmatch(columns[0])
    if place and len(columns) > 2 and columns[1] in ("error", "warning"):
        message, rule = (" ".join(columns[2:-1]), columns[-1]) if len(columns) > 3 else (columns[2], "")
        yield _record(output, file, place["line"], place["column"], rule=rule, message=message)


def _lint_record(output: Output, place: re.Match[str], rule: str, message: str) -> JsonObject:
    return _record(output, place["file"], place["line"], place["column"], rule=rule, message=message)


def _record(output: Output, file: str, line: str, column: str | None, **more: str | None) -> JsonObject:
    given = {"column": int(column) if column else None, **more}
    return {"file": output.relative(file), "line": int(line), **{key: v for key, v in given.items() if v is not None}}
