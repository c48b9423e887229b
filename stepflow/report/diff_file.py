"""The unified diff of one file, as a person can read it: every sign seen, every secret masked, nothing without end.

Takes: `FileChange`. Gives: `FileDiff`.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.change import LINK, PROGRAM
from stepflow.domain.figures import count
from stepflow.report.diff_lines import hunk_lines, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepflow.domain.change import FileChange, FileSide

#: Characters of a file's diff, and of one line in it.
FILE_LIMIT = 10_000
LINE_LIMIT = 500
#: Where git looks for a zero, which no text has.
LOOKED_AT = 8000
#: What would end a line, or hide one, in the middle of it.
BREAKS = re.compile("[\r\v\f\x1b\x1c-\x1e\x85\x9b\u2028\u2029]")


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """`added` and `removed` count all lines, also those that the text leaves out; it cost so many `pairs` of lines."""

    path: str
    text: str
    added: int = 0
    removed: int = 0
    pairs: int = 0


def file_diff(change: FileChange, redact: Callable[[str], str]) -> FileDiff | None:
    """The diff of one file, None when nothing that git knows of it changed."""
    before, after = change.before, change.after
    path = _spelled(redact(change.path))
    if before == after:
        return None
    head = [f"diff --git a/{path} b/{path}", *_mode_lines(before, after)]
    told = _instead(before, after)
    if told:
        return FileDiff(path=path, text="\n".join((*head, told)))
    old, new = _Text.of(before, redact), _Text.of(after, redact)
    found, pairs = operations(old.lines, new.lines)
    head += _ending_lines(old, new)
    changed = [one for one in found if one[0] != "equal"]
    if changed:
        head += [f"--- a/{path}" if before else "--- /dev/null", f"+++ b/{path}" if after else "+++ /dev/null"]
    elif len(head) == 1:
        # Both sides differ only in what is masked.
        head.append("only what is masked here changed")
    return FileDiff(
        path=path,
        text="\n".join((*head, *_bounded(hunk_lines(old.lines, new.lines, found)))),
        added=sum(one[4] - one[3] for one in changed),
        removed=sum(one[2] - one[1] for one in changed),
        pairs=pairs,
    )


@dataclass(frozen=True, kw_only=True)
class _Text:
    """`lines` keep their line feeds; of a text all of whose lines end with CRLF they are without the CR."""

    lines: list[str]
    ending: str = ""

    @classmethod
    def of(cls, side: FileSide | None, redact: Callable[[str], str]) -> _Text:
        if side is None or side.content is None:
            return cls(lines=[])
        text = redact(side.content.decode("utf-8", "backslashreplace"))
        feeds, pairs = text.count("\n"), text.count("\r\n")
        ending = "" if not feeds else "LF" if not pairs else "CRLF" if pairs == feeds else "mixed"
        if ending == "CRLF":
            text = text.replace("\r\n", "\n")
        lines = [f"{line}\n" for line in text.split("\n")]
        lines[-1] = lines[-1].removesuffix("\n")
        return cls(lines=lines if lines[-1] else lines[:-1], ending=ending)


def _mode_lines(before: FileSide | None, after: FileSide | None) -> Iterator[str]:
    if before is None and after is not None:
        yield f"new file{_mode_words(after)}"
    elif after is None and before is not None:
        yield f"deleted file{_mode_words(before)}"
    elif before and after and before.mode and after.mode and before.mode != after.mode:
        yield f"old mode {before.mode:o}"
        yield f"new mode {after.mode:o}"


def _mode_words(side: FileSide) -> str:
    return f" mode {side.mode:o}" if side.mode in (PROGRAM, LINK) else ""


def _instead(before: FileSide | None, after: FileSide | None) -> str:
    """One line that stands for a diff where there can be none."""
    sides = [side for side in (before, after) if side]
    what = "added" if before is None else "deleted" if after is None else "changed"
    is_known = all(side.mode for side in sides)
    sizes = f" ({' → '.join(f'{side.size:,}' for side in sides)} bytes)" if is_known else ""
    if any(_is_binary(side) for side in sides):
        return f"binary file {what}{sizes}"
    whys = dict.fromkeys(side.why for side in sides if side.content is None)
    return f"{what}{sizes}, not shown: {', '.join(map(_spelled, whys))}" if whys else ""


def _is_binary(side: FileSide) -> bool:
    return side.why == "binary" or (side.content is not None and b"\0" in side.content[:LOOKED_AT])


def _ending_lines(old: _Text, new: _Text) -> Iterator[str]:
    if old.ending and new.ending and old.ending != new.ending:
        yield f"line endings {old.ending} → {new.ending}"
    elif "CRLF" in (old.ending, new.ending):
        yield "line endings CRLF"


def _bounded(lines: Iterator[str]) -> Iterator[str]:
    """As many lines as may be shown, each cut and on one line, and how many there are more."""
    size = 0
    for line in lines:
        shown = _spelled(line[:LINE_LIMIT])
        if len(line) > LINE_LIMIT:
            shown += f" [… {len(line) - LINE_LIMIT:,} characters left out …]"
        if size + len(shown) > FILE_LIMIT:
            left_out = 1 + sum(1 for _ in lines)
            yield f"… {count(left_out, 'more line')} of this difference left out"
            return
        size += len(shown) + 1
        yield shown


def _spelled(text: str) -> str:
    return BREAKS.sub(lambda found: f"<U+{ord(found[0]):04X}>", text).replace("\n", "<U+000A>")
