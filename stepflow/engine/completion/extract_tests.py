"""Which tests failed (prompts.md §10).

Takes: the output of pytest, unittest, Deno or Go. Gives: `{name, file?, error}` for each failed test.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING

from stepflow.engine.completion.extract_output import without_doubles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.engine.completion.extract_output import Output

#: One failed test a line. A test's parameters (in brackets) may hold anything, also ` - `.
RESULTS = (
    re.compile(
        r"(?:FAILED|ERROR) (?P<file>[^\s:]+\.\w+)(?:::(?P<name>[^\[\s]+(?:\[.*?\](?= - |$))?))?(?: - (?P<error>.*))?"
    ),
    re.compile(r"(?:FAIL|ERROR): (?P<name>\S+) \(.*\)"),
    re.compile(r"FAILED \| (?!\d+ passed)(?P<name>.+)"),
    re.compile(r"(?P<name>\S.*) \.\.\. FAILED(?: \((?P<error>due to [^)]*)\)| \([^)]*\))?(?: \([^)]*\))?"),
    re.compile(r"--- FAIL: (?P<name>\S+)(?: \(\S+\))?"),
)
#: Where Deno tells of a failure: `name => ./file.ts:7:6`, and the error on the next line.
DENO_PLACE = re.compile(r"(?P<name>\S.*) => (?P<file>\S+?):\d+:\d+")
PYTHON_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+')
RULE = re.compile(r"-{5,}")
END = re.compile(r"={3,}.*|!{3,}.*|FAIL|FAIL\t.*|ok {2}\t.*|Ran \d+ tests? in .*|ERRORS|FAILURES|.+ => \S+:\d+:\d+")
MOST_LINES = 9


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """A failed test on its line. `at` is the index of the line."""

    at: int
    name: str
    file: str | None
    error: str | None


def failed_tests(output: Output) -> JsonValue:
    """The failed tests, in the order found."""
    lines = output.lines
    failures = list(_failures(lines))
    ends = [*(failure.at for failure in failures), len(lines)][1:]
    told = _deno_errors(lines)
    return without_doubles(
        _record(failure, lines[failure.at + 1 : end], told, output) for failure, end in zip(failures, ends, strict=True)
    )


def _failures(lines: Sequence[str]) -> Iterator[_Failure]:
    for at, line in enumerate(lines):
        found = next(filter(None, (form.fullmatch(line.strip()) for form in RESULTS)), None)
        if found:
            parts = found.groupdict()
            name = parts["name"] or parts["file"]
            yield _Failure(at=at, name=name, file=parts.get("file"), error=parts.get("error"))


def _record(
    failure: _Failure, following: Sequence[str], told: Mapping[str, tuple[str, str]], output: Output
) -> JsonObject:
    body = _body(following)
    frame = PYTHON_FRAME.search(body)
    file, error = told.get(failure.name, (failure.file or (frame["file"] if frame else None), failure.error or body))
    return {"name": failure.name, **({"file": output.relative(file)} if file else {}), "error": error}


def _body(following: Sequence[str]) -> str:
    """What stands under a result, up to the end of its section."""
    kept: list[str] = []
    for line in following:
        if END.fullmatch(line.strip()) or len(kept) == MOST_LINES:
            break
        if line.strip() and not RULE.fullmatch(line.strip()):
            kept.append(line.rstrip())
    return dedent("\n".join(kept))


def _deno_errors(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """File and error of each test that Deno tells of. A step's own line has the last part of its name only."""
    told: dict[str, tuple[str, str]] = {}
    for line, following in pairwise(lines):
        place = DENO_PLACE.fullmatch(line.strip())
        if place and following.startswith("error: "):
            found = (place["file"], following.removeprefix("error: "))
            told[place["name"]] = found
            told.setdefault(place["name"].rpartition(" ... ")[2], found)
    return told
