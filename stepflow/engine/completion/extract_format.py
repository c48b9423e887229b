"""Which files a formatter would change (prompts.md §10).

Takes: the output of black, ruff format, prettier, gofmt or Deno fmt. Gives: the files, and the diff.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.engine.completion.extract_output import without_doubles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue
    from stepflow.engine.completion.extract_output import Output

#: A file on its own line, in each formatter's words.
FILE_LINES = (
    re.compile(r"would reformat:? (?P<file>.+)", re.IGNORECASE),
    re.compile(r"\[warn\] (?P<file>.+\.\w+)"),
    re.compile(r"from (?P<file>.+):"),
    re.compile(r"(?P<file>[^\s:\"'`<>|*?]+\.[A-Za-z]\w*)"),
)
#: ruff tells what is wrong on one line, and where after an arrow on the next.
RUFF_HEAD = "unformatted: "
RUFF_ARROW = re.compile(r"--> (?P<file>.+?)(?::\d+:\d+)?")
DIFF_START = re.compile(r"^(?:diff --git .*\n(?:[a-z].*\n){0,6})?--- .*\n\+\+\+ ", re.MULTILINE)
DIFF_LINE = re.compile(r"(?:[-+ @\\]|diff |index |new file|deleted file|old mode|new mode|similarity|rename ).*|")


def format_files(output: Output) -> JsonValue:
    """The files that are not formatted."""
    return without_doubles(output.relative(path) for path in _files(output.lines))


def format_diff(output: Output) -> JsonValue:
    """The unified diff in the output, else the unformatted files as text."""
    diff = _diff(output.stdout) or _diff(output.stderr)
    return diff or "\n".join(dict.fromkeys(output.relative(path) for path in _files(output.lines)))


def _files(lines: tuple[str, ...]) -> Iterator[str]:
    head = False
    for line in lines:
        text = line.strip()
        arrow = RUFF_ARROW.fullmatch(text) if head else None
        found = arrow or next(filter(None, (form.fullmatch(text) for form in FILE_LINES)), None)
        if found:
            yield found["file"]
        head = text.startswith(RUFF_HEAD)


def _diff(text: str) -> str:
    """The lines from the first diff head to the last line that can belong to a diff."""
    start = DIFF_START.search(text)
    return "\n".join(_while_diff(text[start.start() :].split("\n"))).rstrip("\n") if start else ""


def _while_diff(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not DIFF_LINE.fullmatch(line):
            return
        yield line
