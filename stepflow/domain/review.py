"""A review of a pull request: its verdict and comments, and what became of its suggestions when they were tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepflow.domain.text import code_span, count, fence_of, name_some


class ReviewVerdict(StrEnum):
    """What a review says about the change as a whole."""

    COMMENT = "comment"
    REQUEST_CHANGES = "request_changes"
    APPROVE = "approve"


class DiffSide(StrEnum):
    """The version of a file that a line belongs to: the new one, or the one before the change (GitHub's names)."""

    RIGHT = "RIGHT"
    LEFT = "LEFT"


def describe_place(path: str, first: int | None, last: int | None) -> str:
    """Return file and lines as people write them: `a.py:3-5`, or `a.py` without lines."""
    if last is None:
        return path
    return f"{path}:{last}" if first in (None, last) else f"{path}:{first}-{last}"


@dataclass(frozen=True, kw_only=True)
class ReviewComment:
    """A comment on lines of the pull request's diff, counted as GitHub counts them. `suggestion` has the lines that are
    offered for these, each with its line break, and is empty for their removal; None if nothing is offered."""

    path: str
    line: int
    start_line: int | None = None
    side: DiffSide = DiffSide.RIGHT
    body: str
    suggestion: str | None = None
    #: Tells the comment from all others, also in a later review.
    digest: str

    @property
    def text(self) -> str:
        """Return the comment with its suggestion as GitHub lets people commit it."""
        return self._with_block("suggestion")

    @property
    def words(self) -> str:
        """Return the comment for a place where nothing can be committed."""
        return self._with_block("text")

    def _with_block(self, language: str) -> str:
        if self.suggestion is None:
            return self.body
        fence = fence_of(self.suggestion)
        return f"{self.body}\n\n{fence}{language}\n{self.suggestion}{fence}".lstrip()


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A replacement for the lines `first` to `last` of a file in the workspace, by the comment of the closing answer
    that makes it, counted from 0."""

    comment: int
    path: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return describe_place(self.path, self.first, self.last)

    def overlaps(self, other: Suggestion) -> bool:
        """Whether people could commit only one of the two."""
        return self.path == other.path and self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, kw_only=True)
class TriedSuggestion:
    """What became of a suggestion. It is offered unless there is a `problem`."""

    comment: int
    place: str
    problem: str = ""
    #: The checks that it turns red.
    red: tuple[str, ...] = ()

    @property
    def is_offered(self) -> bool:
        """Whether people may commit it."""
        return not self.problem


@dataclass(frozen=True, kw_only=True)
class SuggestionsTried:
    """The suggestions of a review were tried, each on a copy of the workspace's commit with these `checks`, and those
    that are offered also together. `red_before` names the checks that fail without any suggestion."""

    suggestions: list[TriedSuggestion]
    checks: list[str] = field(default_factory=list)
    red_before: list[str] = field(default_factory=list)
    event: Literal["suggestions_tried"] = "suggestions_tried"


def describe_trials(tried: SuggestionsTried) -> Iterator[str]:
    """Yield what became of the suggestions of a review, line by line."""
    offered = [each for each in tried.suggestions if each.is_offered]
    number, good = len(tried.suggestions), len(offered)
    checks = name_some(code_span(name) for name in tried.checks)
    how = f"with {checks}" if checks else "and there was no check to run"
    yield f"{count(number, 'suggestion')}, {good} offered. Each that is offered was applied to a copy, {how}."
    for each in tried.suggestions:
        if not each.is_offered:
            yield f"- {code_span(each.place.replace('`', ''))} is words: {each.problem}."
    if tried.red_before:
        names = name_some(code_span(name) for name in tried.red_before)
        yield f"- Red without any suggestion, so it speaks against none: {names}."
