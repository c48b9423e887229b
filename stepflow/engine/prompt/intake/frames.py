"""Edits of what a parser sees of some lines, brought back into the lines.

Takes: lines, their content without quote marks and indentation, edits of the content. Gives: the edited lines.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepflow.engine.prompt.intake.findings import Edit

_MARGIN = " \t>"


def framed(lines: Sequence[str], content: str, edits: Sequence[Edit]) -> str | None:
    """The lines after the edits, each with what stood before and behind its content. A line of which only its margin
    is left goes; None when all do."""
    if not edits:
        return "\n".join(lines)
    frames = [_frame(line, part) for line, part in zip(lines, content.split("\n"), strict=False)]
    kept = [text for text, sources in _rebuilt(content, edits, frames) if _stays(text, lines, sources)]
    return "\n".join(kept) if kept else None


def _frame(line: str, part: str) -> tuple[str, str]:
    """What stands before and behind a part of a line. Where tabs were spread to blanks, the words tell."""
    at = line.rfind(part) if part else len(line)
    if at >= 0:
        return line[:at], line[at + len(part) :]
    words = part.strip()
    at = line.rfind(words)
    return (line[:at].rstrip() + " " if line[:at].strip() else "", "") if at >= 0 else ("", "")


def _rebuilt(
    content: str, edits: Sequence[Edit], frames: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each line that is left, with the first and the last line that it came from."""
    at, line, first = 0, 0, 0
    text = frames[0][0]
    for start, end, new in (*((edit.start, edit.end, edit.text) for edit in edits), (len(content), len(content), "")):
        head, *others = content[at:start].split("\n")
        text += head
        for other in others:
            yield text + frames[line][1], (first, line)
            line += 1
            first = line
            text = frames[line][0] + other
        text += new
        line += content.count("\n", start, end)
        at = end
    yield text + frames[line][1], (first, line)


def _stays(text: str, lines: Sequence[str], sources: tuple[int, int]) -> bool:
    """A line that was empty before stays; one that has become so goes."""
    first, last = sources
    return bool(text.strip(_MARGIN)) or not any(line.strip(_MARGIN) for line in lines[first : last + 1])
