"""Problems get their line and columns in the files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.definition.json_text import Spot, find_places, nearest_line

if TYPE_CHECKING:
    from stepflow.definition.json_text import Places
    from stepflow.domain.problem import Problem

#: Problems that are about the key, whatever its value is.
_ABOUT_KEYS = frozenset({"SF104", "SF108", "SF111", "SF310", "SF331", "SF606", "SF709"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def visible(text: str) -> str:
    """A text without control characters: what a file says must not write lines of its own into a log."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The text of a file; `places` is None for one that is no JSON."""

    text: str
    places: Places | None

    @classmethod
    def of(cls, text: str, *, is_json: bool) -> Source:
        """The text, read for its places."""
        return cls(text=text, places=find_places(text) if is_json else None)

    def line_start(self, line: int) -> int:
        """The offset at which a line begins."""
        start = 0
        for _ in range(line - 1):
            start = self.text.find("\n", start) + 1
        return start

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Both from 1."""
        return self.text.count("\n", 0, offset) + 1, offset - (self.text.rfind("\n", 0, offset) + 1) + 1


def place(problem: Problem, word: str, prefix: str, source: Source | None) -> Problem:
    """The problem where it stands. `word` is what is meant on the line of a file that is no JSON."""
    line, span = _spot(problem, word, source)
    if source is not None and span is not None:
        end = source.line_and_column(span[1])[1]
        problem = replace(problem, column=source.line_and_column(span[0])[1], end_column=end)
    return replace(
        problem,
        line=line,
        file=visible(f"{prefix}/{problem.file}"),
        path=visible(problem.path),
        message=visible(problem.message),
        fix=visible(problem.fix),
    )


def _spot(problem: Problem, word: str, source: Source | None) -> tuple[int | None, tuple[int, int] | None]:
    """The line, and the offsets of what is meant on it."""
    if source is None:
        return problem.line, None
    if problem.line is not None and problem.column is not None:
        start = source.line_start(problem.line) + problem.column - 1
        return problem.line, (start, start + 1)
    if source.places is None or word:
        return problem.line, _word_span(source, problem.line, word)
    line = nearest_line(source.places.lines, problem.path)
    if problem.line is not None:
        line = problem.line  # of a key that is written twice
    spot = source.places.spots.get(_nearest(source.places, problem.path))
    span = _marked(spot, source, about_key=problem.code in _ABOUT_KEYS) if spot else None
    return line, span if span and source.line_and_column(span[0])[0] == line else None


def _nearest(places: Places, pointer: str) -> str:
    while pointer and pointer not in places.spots:
        pointer = pointer.rpartition("/")[0]
    return pointer


def _marked(spot: Spot, source: Source, *, about_key: bool) -> tuple[int, int]:
    """The value when it is a plain one on the line of its key, else the key, else the first character."""
    plain = source.text[spot.start] not in "{["
    if spot.key is not None and (about_key or not plain or "\n" in source.text[spot.key[1] : spot.start]):
        return spot.key
    return (spot.start, spot.end if plain else spot.start + 1)


def _word_span(source: Source, line: int | None, word: str) -> tuple[int, int] | None:
    if line is None or not word:
        return None
    start = source.line_start(line)
    end = source.text.find("\n", start)
    at = source.text.find(word, start, len(source.text) if end < 0 else end)
    return (at, at + len(word)) if at >= 0 else None
