"""Reads what a closing answer requests of GitHub: typed values and a review, and a warning for each part that is not
understood.

A comment on lines that the diff does not show becomes a part of the summary, and a suggestion becomes plain text unless
it was tried with success and is posted exactly as it was tried.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from stepflow.boundary.output_filter import LONGEST_TEXT, OutputFilter, filter_text
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.effect import (
    DiffSide,
    ReviewComment,
    ReviewVerdict,
    SubmitReview,
    Suggestion,
    SuggestionResults,
    TriedSuggestion,
    describe_place,
)
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.run import DiffLines, ReviewedPull
from stepflow.domain.secrets import redact_value
from stepflow.domain.text import code_block, count
from stepflow.domain.words import ClosureAction

#: Comments of one review that are on lines; more are not posted.
MOST_COMMENTS = 50
#: Characters of one comment, of one suggestion, and of all comments that become a part of the summary.
LONGEST_COMMENT = 8_000
LONGEST_SUGGESTION = 20_000
LONGEST_MOVED = 30_000

#: How a block that people could commit begins, wherever it is.
_OWN_BLOCK = re.compile(r"(`{3,}|~{3,})[ \t]*(?=suggestion)", re.IGNORECASE)
_NOT_SHOWN = "the diff does not show these lines"
_REMOVED_LINES = "it is on lines that the pull request removes"
_NO_LINES = "it names no lines"
_ENDINGS = "it would change line endings, which a suggestion cannot"
_UNSAFE = "the boundary would have to change its text"
_NOT_TRIED = "it was not tried"


class RequestedComment(BaseModel):
    """One of `review.comments`. Lines are those of the file in the workspace, or on the side `LEFT` those of the
    version before the change."""

    model_config = ConfigDict(frozen=True, strict=True)

    path: Annotated[str, Field(min_length=1)]
    line: Annotated[int, Field(ge=1)] | None = None
    start_line: Annotated[int, Field(ge=1)] | None = None
    side: Annotated[DiffSide, Strict(False)] = DiffSide.RIGHT
    body: str = ""
    suggestion: str | None = None

    @property
    def place(self) -> str:
        """File and lines."""
        return describe_place(self.path, self.start_line, self.line)


@dataclass(frozen=True, kw_only=True)
class RequestedReview:
    """The fields of `review`."""

    summary: str = ""
    verdict: ReviewVerdict = ReviewVerdict.COMMENT
    comments: tuple[RequestedComment, ...] = ()


def read_review(value: JsonValue, warnings: list[str]) -> RequestedReview | None:
    """Read what a closing answer says in `review`, and add a warning for each value that is not understood."""
    if value is None:
        return None
    if not isinstance(value, dict):
        warnings.append("The closing answer's `review` is not an object: it has no effect.")
        return None
    summary, verdict, comments = value.get("summary"), value.get("verdict"), value.get("comments")
    if summary is not None and not isinstance(summary, str):
        warnings.append("The closing answer's `review.summary` is not a string: it has no effect.")
    if verdict is not None and verdict not in set(ReviewVerdict):
        warnings.append(
            f"The closing answer's `review.verdict` is {str(verdict)[:40]!r}, not {' | '.join(ReviewVerdict)}: the "
            "review only comments."
        )
    if comments is not None and not isinstance(comments, list):
        warnings.append("The closing answer's `review.comments` is not a list: it has no effect.")
    return RequestedReview(
        summary=summary if isinstance(summary, str) else "",
        verdict=ReviewVerdict(verdict) if verdict in set(ReviewVerdict) else ReviewVerdict.COMMENT,
        comments=tuple(_read_comments(comments if isinstance(comments, list) else [], warnings)),
    )


def _read_comments(items: list[JsonValue], warnings: list[str]) -> Iterator[RequestedComment]:
    for number, item in enumerate(items, 1):
        try:
            comment = RequestedComment.model_validate(item)
        except ValidationError as exc:
            problem = exc.errors(include_url=False)[0]
            where = ".".join(("review.comments", *map(str, problem["loc"])))
            warnings.append(f"Comment {number} of the review is not posted: `{where}`: {problem['msg']}.")
            continue
        if not comment.body.strip() and comment.suggestion is None:
            warnings.append(f"Comment {number} of the review is not posted: it says nothing.")
            continue
        yield comment


def find_suggestions(
    review: RequestedReview, pull: ReviewedPull, output_filter: OutputFilter
) -> tuple[tuple[Suggestion, ...], tuple[TriedSuggestion, ...]]:
    """Return the suggestions that are worth a trial, and those that need none because they cannot be posted."""
    worth, problems = list[Suggestion](), list[TriedSuggestion]()
    for number, comment in enumerate(review.comments):
        if comment.suggestion is None:
            continue
        if problem := _problem_of(comment, comment.suggestion, pull, output_filter):
            problems.append(TriedSuggestion(comment=number, place=comment.place, problem=problem))
            continue
        last = comment.line or 0
        first = comment.start_line or last
        text = _as_lines(comment.suggestion)
        worth.append(Suggestion(comment=number, path=comment.path, first=first, last=last, text=text))
    return tuple(worth), tuple(problems)


def _problem_of(comment: RequestedComment, text: str, pull: ReviewedPull, output_filter: OutputFilter) -> str:
    """Say why a suggestion cannot be posted as it is; empty if it can."""
    if comment.line is None:
        return _NO_LINES
    if comment.side is DiffSide.LEFT:
        return _REMOVED_LINES
    if _find_lines(comment, pull) is None:
        return _NOT_SHOWN
    lines = _as_lines(text)
    # Its block has no line endings of its own: those of the file stay.
    if "\r" in lines:
        return _ENDINGS
    block = code_block(lines, "text")
    is_long = len(lines) > LONGEST_SUGGESTION
    return _UNSAFE if is_long or filter_text(block, output_filter) != block else ""


def _as_lines(text: str) -> str:
    """Return the text of a suggestion with a line break at the end of each line."""
    plain = text.replace("\r\n", "\n") if "\n" not in text.replace("\r\n", "") else text
    return f"{plain}\n" if plain and not plain.endswith("\n") else plain


def _find_lines(comment: RequestedComment, pull: ReviewedPull) -> DiffLines | None:
    """Return the part of the diff that shows all lines of a comment; None if there is none."""
    if comment.line is None:
        return None
    first, last = comment.start_line or comment.line, comment.line
    for file in pull.files:
        if file.path == comment.path:
            parts = file.right if comment.side is DiffSide.RIGHT else file.left
            return next((part for part in parts if part.first <= first <= last <= part.last), None)
    return None


def join_fitting(parts: Sequence[str], limit: int) -> str:
    """Join as many of these paragraphs as fit, and say how many do not."""
    sizes = itertools.accumulate(len(part) + 2 for part in parts)
    fitting = sum(size <= limit for size in sizes)
    left_out = len(parts) - fitting
    more = [f"> {count(left_out, 'more comment')} did not fit."] if left_out else []
    return "\n\n".join((*parts[:fitting], *more))


@dataclass(frozen=True, kw_only=True)
class ReviewPlanner:
    """Plans one review."""

    github: GitHubSettings
    pull: ReviewedPull
    output_filter: OutputFilter
    #: None in a plan whose suggestions were not tried yet.
    tried: SuggestionResults | None
    warnings: list[str] = field(default_factory=list)

    def plan(self, review: RequestedReview, below: str) -> SubmitReview:
        """Return the effect. `below` is the engine's own text at the end of the summary."""
        comments, moved = list[ReviewComment](), list[str]()
        for number, requested in enumerate(review.comments):
            comment = self._comment(number, requested)
            if (lines := _find_lines(requested, self.pull)) and len(comments) < MOST_COMMENTS:
                start = requested.start_line if requested.start_line != requested.line else None
                comments.append(
                    replace(comment, line=comment.line + lines.shift, start_line=start and start + lines.shift)
                )
            else:
                moved.append(f"**{requested.place}**\n\n{comment.words}")
        own = (self._moved_text(moved), below)
        engine = "\n\n".join(part for part in own if part)
        summary = self._filter_text(review.summary, LONGEST_TEXT - len(engine))
        body = "\n\n".join(part for part in (summary, engine) if part)
        return SubmitReview(verdict=self._verdict(review), body=body, comments=tuple(comments))

    def _verdict(self, review: RequestedReview) -> ReviewVerdict:
        if review.verdict is ReviewVerdict.APPROVE and not self.github.review.may_approve:
            self.warnings.append(
                "The review does not approve the pull request: `review.mayApprove` in agent.json is not set."
            )
            return ReviewVerdict.COMMENT
        return review.verdict

    def _comment(self, number: int, requested: RequestedComment) -> ReviewComment:
        """Return a comment with its suggestion, or with the reason why that is only words."""
        body = self._filter_text(requested.body, LONGEST_COMMENT)
        text = None if requested.suggestion is None else _as_lines(requested.suggestion)
        facts = (requested.path, requested.side, requested.body, requested.suggestion or "")
        comment = ReviewComment(
            path=requested.path,
            line=requested.line or 0,
            side=requested.side,
            body=body,
            suggestion=text,
            digest=hashlib.sha256("\0".join(facts).encode(errors="replace")).hexdigest()[:16],
        )
        if text is None:
            return comment
        problem = _problem_of(requested, text, self.pull, self.output_filter) or self._problem_when_tried(number)
        if not problem:
            return comment
        code = code_block(text.removesuffix("\n"), "text") if text else ""
        why = f"*Not offered as a suggestion: {problem}.*"
        words = filter_text("\n\n".join(filter(None, (why, code))), self.output_filter, limit=LONGEST_COMMENT)
        return replace(comment, body=f"{body}\n\n{words}".lstrip(), suggestion=None)

    def _filter_text(self, text: str, limit: int) -> str:
        """Return a text that offers nothing by itself, not even in a list or a quote."""
        return _OWN_BLOCK.sub(r"\1 text ", filter_text(text, self.output_filter, limit=limit))

    def _problem_when_tried(self, number: int) -> str:
        known = self.tried.suggestions if self.tried else ()
        return next((each.problem for each in known if each.comment == number), _NOT_TRIED)

    def _moved_text(self, moved: list[str]) -> str:
        """Return the comments that are not on lines of the diff, as far as there is room."""
        if not moved:
            return ""
        return join_fitting(("**On lines that the diff does not show:**", *moved), LONGEST_MOVED)


def requested_review(answer: JsonObject | None, output_filter: OutputFilter) -> RequestedReview | None:
    """Return the review that a closing answer requests, without the run's secrets."""
    return read_review(redact_value((answer or {}).get("review"), output_filter.redactor), [])


@dataclass(frozen=True, kw_only=True)
class RequestedPullRequest:
    """The fields of `pull_request`; None means not given."""

    title: str | None = None
    body: str | None = None
    draft: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RequestedRelease:
    """The fields of `release`."""

    tag: str
    name: str | None = None
    body: str | None = None
    draft: bool = False


@dataclass(frozen=True, kw_only=True)
class ThreadAnswer:
    """What a follow-up has done about one review thread, by the thread's id: whether it was `applied`, and `why`."""

    thread: str
    applied: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class ClosingRequest:
    """What a closing answer requests, and warnings about values that were not understood."""

    closure_action: ClosureAction | None = None
    labels_add: tuple[str, ...] = ()
    labels_remove: tuple[str, ...] = ()
    comment: str | None = None
    pull_request: RequestedPullRequest = field(default_factory=RequestedPullRequest)
    release: RequestedRelease | None = None
    threads: tuple[ThreadAnswer, ...] = ()
    review: RequestedReview | None = None
    warnings: tuple[str, ...] = ()


def read_closing_request(answer: JsonObject | None) -> ClosingRequest:
    """Read the requests in a closing answer."""
    reader = _AnswerReader(answer or {})
    return ClosingRequest(
        closure_action=reader.closure_action(),
        labels_add=reader.labels("issue.labels.add"),
        labels_remove=reader.labels("issue.labels.remove"),
        comment=reader.text("comment"),
        pull_request=RequestedPullRequest(
            title=reader.text("pull_request.title"),
            body=reader.text("pull_request.body"),
            draft=reader.flag("pull_request.draft"),
        ),
        release=reader.release(),
        threads=reader.threads(),
        review=read_review(reader.answer.get("review"), reader.warnings),
        warnings=tuple(reader.warnings),
    )


class _AnswerReader:
    """Reads typed values from an answer and collects warnings about those that do not fit."""

    def __init__(self, answer: JsonObject) -> None:
        self.answer = answer
        self.warnings: list[str] = []

    def text(self, path: str) -> str | None:
        value = value_at(self.answer, path)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if value != "":
            self._warn(path, value, "a string")
        return None

    def flag(self, path: str) -> bool | None:
        value = value_at(self.answer, path)
        if value is None or isinstance(value, bool):
            return value
        self._warn(path, value, "true or false")
        return None

    def labels(self, path: str) -> tuple[str, ...]:
        value = value_at(self.answer, path)
        if value is None:
            return ()
        items = value if isinstance(value, list) else [value]
        names = tuple(item.strip() for item in items if isinstance(item, str) and item.strip())
        if not isinstance(value, list) or len(names) < len(items):
            self._warn(path, value, "a list of label names")
        return names if isinstance(value, list) else ()

    def closure_action(self) -> ClosureAction | None:
        value = self.text("closure_action")
        if value is None or value in set(ClosureAction):
            return ClosureAction(value) if value else None
        self._warn("closure_action", value, " | ".join(ClosureAction))
        return None

    def release(self) -> RequestedRelease | None:
        if value_at(self.answer, "release") is None:
            return None
        if not (tag := self.text("release.tag")):
            self.warnings.append("The closing answer's `release` has no `tag`: no release is created.")
            return None
        name, body = self.text("release.name"), self.text("release.body")
        return RequestedRelease(tag=tag, name=name, body=body, draft=self.flag("release.draft") or False)

    def threads(self) -> tuple[ThreadAnswer, ...]:
        value = value_at(self.answer, "threads")
        if value is None:
            return ()
        if not isinstance(value, list):
            self._warn("threads", value, "a list of answers to review threads")
            return ()
        answers: dict[str, ThreadAnswer] = {}
        for item in value:
            match item:
                case {"thread": str(thread), "applied": bool(applied), "why": str(why)} if thread.strip():
                    answer = ThreadAnswer(thread=thread.strip(), applied=applied, why=why.strip())
                case _:
                    self._warn("threads", item, "an object with `thread`, `applied` and `why`")
                    continue
            if answer.thread in answers:
                self.warnings.append(
                    f"The closing answer's `threads` answers {answer.thread[:80]!r} twice: the first answer counts."
                )
            answers.setdefault(answer.thread, answer)
        return tuple(answers.values())

    def _warn(self, path: str, value: JsonValue, expected: str) -> None:
        self.warnings.append(f"The closing answer's `{path}` is {repr(value)[:80]}, not {expected}: it has no effect.")
