"""What is shown of a command's output where there is no room for all of it: the lines that name a failure, and the
end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.domain.visible_text import ANSI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The words of test runners, compilers, linters, package managers and shells. In a path or an identifier, such as
#: `errors.py` or `test_error`, they name no failure.
_FAILURE = re.compile(
    r"(?<![\w./-])(?:fail(?:ed|s|ing)?|failures?|err|errors?|fatal|panic(?:ked)?|assert(?:ion)?|not ok|traceback"
    r"|exceptions?|unhandled|undefined|cannot|could not|denied|missing|not found|no such|no rule|killed|aborted"
    r"|core dumped|segmentation fault|data race|timed? ?out|timeout|overflowed)(?![\w/-]|\.\w)|\bFailure/Error:"
    r"|(?-i:[a-z](?:Error|Exception|Failure|Failed|Rejection)|\bERR_[A-Z_]+)\b|\berror\[|\[E\]$|^E:? "
    r"|^\s*[✕✖✗✘⨯×●❌] ",
    re.IGNORECASE,
)
#: A test that begins or passed, whatever its name; and make, which only repeats that a command failed.
_NO_FAILURE = re.compile(
    r"^\s*[✓√✔✅] |(?-i:\bPASS(?:ED)?\b)|^\s*(?:ok|passed)\b|\.\.\. ok$|' passed \(|^=== (?:RUN|PAUSE|CONT|NAME)\b"
    r"|^\[ +(?:RUN|OK) +\]|^\S*make(?:\[\d+\])?: \*\*\* \[.*\] Error",
    re.IGNORECASE,
)
_NONE_FAILED = re.compile(
    r"\b(?:0|no|without(?: any)?) (?:failed|failing|failures?|errors?|exceptions?)\b"
    r"|\b(?:fail(?:ed|s|ing)?|failures?|errors?)\b[:=]? *0\b",
    re.IGNORECASE,
)
#: How many lines before and after one that names a failure explain it.
_BEFORE, _AFTER = 2, 6
_GAP = "…[{count} lines left out]…"
_CUT = "…[{count} characters cut]…"
#: More than either mark takes.
_MARK = 36
#: One line has at most this part of the room, unless there are few.
_PARTS = 10


def readable_output(text: str) -> str:
    """An output as a terminal leaves it: without colors, and of a progress bar only what it showed last."""
    text = ANSI.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def names_failure(line: str) -> bool:
    """Whether a line of output says what failed."""
    return not _NO_FAILURE.search(line) and bool(_FAILURE.search(_NONE_FAILED.sub("", line)))


def excerpt(text: str, characters: int, *, lines: int | None = None) -> str:
    """The output in its order, in about so many characters and lines. Of a longer one half of the room is for the end,
    and then the lines that name a failure come first. Marks stand for what is left out."""
    rows = text.strip("\n").split("\n")
    most = len(rows) if lines is None else lines
    if len(text) <= characters and len(rows) <= most:
        return text
    longest = characters // min(len(rows), most, _PARTS) - _MARK - 1
    rows = [_cut(row, longest) for row in rows]
    shown, next_row = [], 0
    for at in (*sorted(_choose(rows, characters, most)), len(rows)):
        if at > next_row:
            shown.append(_GAP.format(count=at - next_row))
        shown += rows[at : at + 1]
        next_row = at + 1
    return "\n".join(shown)


def telling_line(text: str, longest: int) -> str:
    """The first line that names a failure, else the last one; empty where there is none."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return next(filter(names_failure, rows), rows[-1] if rows else "")[:longest]


def _choose(rows: Sequence[str], characters: int, most: int) -> set[int]:
    """The rows that there is room for."""
    chosen: set[int] = set()
    spent = 0

    def choose(wanted: Iterable[int], share: float = 1.0) -> None:
        """Those of the wanted rows that fit into a share of the room, up to the first that does not."""
        nonlocal spent
        for at in wanted:
            if at in chosen:
                continue
            cost = len(rows[at]) + 1 + (0 if {at - 1, at + 1} & chosen else _MARK)
            if spent + cost > characters * share or len(chosen) + 1 > most * share:
                return
            chosen.add(at)
            spent += cost

    end = range(len(rows) - 1, -1, -1)
    failures = [at for at, row in enumerate(rows) if names_failure(row)]
    choose(end, 0.5)
    choose(failures)
    for at in filter(chosen.__contains__, failures):
        choose(range(at + 1, min(at + 1 + _AFTER, len(rows))))
        choose(range(at - 1, max(at - 1 - _BEFORE, -1), -1))
    choose(end)
    return chosen


def _cut(row: str, longest: int) -> str:
    """The row, without its middle where it is too long."""
    if len(row) <= longest:
        return row
    half = max((longest - _MARK) // 2, 1)
    return f"{row[:half]}{_CUT.format(count=len(row) - 2 * half)}{row[-half:]}"
