"""Problems and suggestions get their places in the files.

Takes: a problem with its JSON Pointer or its words, and the text of the file. Gives: the same with line and columns,
and what it suggests as edits of the text.
May touch: nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.definition.json_text import Spot, find_places, last_key, nearest_line
from stepflow.domain.suggestion import Change, Edit, Region, Suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.json_text import Places
    from stepflow.definition.suggest import Idea, Ideas
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

    def region(self, start: int, end: int) -> Region:
        """The piece between two offsets."""
        line, column = self.line_and_column(start)
        end_line, end_column = self.line_and_column(end)
        return Region(line=line, column=column, end_line=end_line, end_column=end_column)


def place(problem: Problem, word: str, ideas: Ideas, prefix: str, sources: Mapping[str, Source]) -> Problem:
    """The problem where it stands. `word` is what is meant on the line of a file that is no JSON."""
    source = sources.get(problem.file)
    line, span = _spot(problem, word, source)
    if source is not None and span is not None:
        found = source.region(*span)
        problem = replace(problem, column=found.column, end_column=found.end_column)
    placed = replace(problem, line=line)
    return replace(
        placed,
        file=visible(f"{prefix}/{problem.file}"),
        path=visible(problem.path),
        message=visible(problem.message),
        fix=visible(problem.fix),
        suggestion=_suggestion(placed, ideas, prefix, sources),
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


def _suggestion(problem: Problem, ideas: Ideas, prefix: str, sources: Mapping[str, Source]) -> Suggestion | None:
    """All edits, or nothing: half of a change would not mend the problem."""
    placed = [_placed(idea, problem, sources) for idea in ideas]
    edits = tuple(replace(edit, file=visible(f"{prefix}/{edit.file}")) for edit, _ in filter(None, placed))
    if not edits or len(edits) < len(placed):
        return None
    words = "; ".join(told for _, told in filter(None, placed))
    return Suggestion(words=visible(f"{words[0].upper()}{words[1:]}."), edits=edits)


def _placed(idea: Idea, problem: Problem, sources: Mapping[str, Source]) -> tuple[Edit, str] | None:
    """The edit, and what it does in words."""
    file = idea.file or problem.file
    edit = Edit(change=idea.change, file=file, path=idea.path, value=idea.value)
    source = sources.get(file)
    where = "" if file == problem.file else f' in "{file}"'
    if idea.change is Change.MOVE:
        return edit, f'rename the file "{idea.file}" to "{idea.value}"'
    if source is None:
        return None
    if idea.change is Change.TEXT:
        return _text_edit(idea, edit, problem, source)
    if source.places is None:
        return None
    found = _json_edit(idea, source, source.places)
    if found is None:
        return None
    start, end, text, told = found
    return replace(edit, region=source.region(start, end), text=text), told + where


def _text_edit(idea: Idea, edit: Edit, problem: Problem, source: Source) -> tuple[Edit, str] | None:
    span = idea.span or _word_span(source, problem.line, idea.old)
    if span is None:
        return None
    region = source.region(*span)
    old = idea.old.strip()
    told = f'write "{idea.value}" in place of "{old}"' if idea.value else f'remove "{old}"'
    if not old:
        told = f'insert "{idea.value}"'
    on = f" on line {region.line}" if region.line != problem.line else ""
    return replace(edit, region=region, text=idea.value), told + on


def _json_edit(idea: Idea, source: Source, places: Places) -> tuple[int, int, str, str] | None:
    """Offsets, the new text, and the words."""
    if idea.change is Change.ADD:
        return _added(idea, source, places)
    spot = places.spots.get(idea.path)
    if spot is None:
        return None
    key = last_key(idea.path)
    old = source.text[spot.start : spot.end]
    match idea.change:
        case Change.REPLACE:
            told = f'write "{key}": {idea.value}' if spot.key else f"write {idea.value} in place of {_named(old, key)}"
            return spot.start, spot.end, idea.value, told
        case Change.RENAME if spot.key is not None:
            return *spot.key, json.dumps(idea.value, ensure_ascii=False), f'rename the key "{key}" to "{idea.value}"'
        case Change.REMOVE:
            inside = last_key(idea.path.rpartition("/")[0])
            told = f'remove "{key}"' if spot.key else f'remove {_named(old, key)} from "{inside}"'
            return *_removed(idea.path, spot, source.text, places), "", told
        case _:
            return None


def _named(old: str, index: str) -> str:
    """An item of a list in a sentence."""
    return old if old[:1] not in "{[" and len(old) <= 80 else f"item {int(index) + 1}"


def _begin(spot: Spot) -> int:
    return spot.key[0] if spot.key else spot.start


def _siblings(pointer: str, places: Places) -> list[Spot]:
    """Everything in one object or list, in the order of the text."""
    found = [spot for other, spot in places.spots.items() if other and other.rpartition("/")[0] == pointer]
    return sorted(found, key=_begin)


def _removed(pointer: str, spot: Spot, text: str, places: Places) -> tuple[int, int]:
    """The offsets of a member or item with the comma that goes with it."""
    beside = _siblings(pointer.rpartition("/")[0], places)
    at = beside.index(spot)
    if at + 1 < len(beside):
        return _begin(spot), _begin(beside[at + 1])
    if at > 0:
        return beside[at - 1].end, spot.end
    return _begin(spot), spot.end


def _added(idea: Idea, source: Source, places: Places) -> tuple[int, int, str, str] | None:
    parent, _, last = idea.path.rpartition("/")
    spot = places.spots.get(parent)
    if spot is None or source.text[spot.start] != ("[" if last == "-" else "{"):
        return None
    key = f"{json.dumps(last_key(idea.path), ensure_ascii=False)}: " if last != "-" else ""
    new = f"{key}{idea.value}"
    told = f"add {new}" + (f' to "{last_key(parent)}"' if parent else "")
    beside = _siblings(parent, places)
    if not beside:
        return spot.start + 1, spot.end - 1, new, told
    before = source.text[source.text.rfind("\n", 0, _begin(beside[-1])) + 1 : _begin(beside[-1])]
    # As the one before it: on a line of its own with the same indent, or on the same line.
    gap = f"\n{before}" if not before.strip() and "\n" in source.text else " "
    return beside[-1].end, beside[-1].end, f",{gap}{new}", told
