"""A review of a pull request: its verdict and comments, and what became of its suggestions when they were tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from stepflow.domain.text import code_span, fence_of, name_some


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
    """Return file and lines as people write them, as inline code of Markdown: `a.py:3-5`, or `a.py` without lines. Its
    path may be anything."""
    shown = "".join(each if each.isprintable() and each != "`" else "?" for each in path)
    lines = "" if last is None else f":{last}" if first in (None, last) else f":{first}-{last}"
    return f"`{shown}{lines}`"


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
class SuggestionResults:
    """What became of the suggestions of a review. Each was tried on a copy of the workspace's commit with these
    `checks`, and those that are offered also together. `red_before` names the checks that fail without any."""

    suggestions: tuple[TriedSuggestion, ...]
    checks: tuple[str, ...] = ()
    red_before: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SuggestionsTried:
    """The suggestions of a review were tried before it is submitted."""

    results: SuggestionResults
    event: Literal["suggestions_tried"] = "suggestions_tried"


def describe_results(results: SuggestionResults) -> Iterator[str]:
    """Yield what became of the suggestions as lines of Markdown, the first one about all of them."""
    offered = sum(each.is_offered for each in results.suggestions)
    checks = name_some(code_span(name) for name in results.checks if name not in results.red_before)
    passed = f"{checks} passed" if checks else "no check could count against them"
    tried = f", applied to a copy of what is reviewed, where {passed}" if offered else ""
    yield f"{offered} of {len(results.suggestions)} offered{tried}."
    for each in results.suggestions:
        if not each.is_offered:
            yield f"- {each.place} is not: {each.problem}."
    if results.red_before:
        names = name_some(code_span(name) for name in results.red_before)
        yield f"- {names} failed without a suggestion too, which counts against none of them."
