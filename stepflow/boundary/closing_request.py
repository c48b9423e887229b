"""Reads what a closing answer requests. A value that does not fit has no effect, and a warning says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, TypeAdapter, ValidationError

from stepflow.domain.effect import DiffSide, ReviewVerdict, describe_place
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.words import ClosureAction

T = TypeVar("T")

_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Requested(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class RequestedRelease(_Requested):
    """The fields of `release`."""

    tag: str
    name: str | None = None
    body: str | None = None
    draft: bool = False


class ThreadAnswer(_Requested):
    """What a follow-up has done about one review thread, by the thread's id: whether it was `applied`, and `why`."""

    thread: _Word
    applied: bool
    why: Annotated[str, StringConstraints(strip_whitespace=True)]


class RequestedComment(_Requested):
    """One of `review.comments`. Lines are those of the file in the workspace, or on the side `LEFT` those of the
    version before the change."""

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


class RequestedReview(_Requested):
    """The fields of `review`."""

    summary: str = ""
    verdict: ReviewVerdict = ReviewVerdict.COMMENT
    comments: tuple[RequestedComment, ...] = ()


class ClosingRequest(_Requested):
    """What a closing answer requests, and warnings about values that were not understood."""

    closure_action: ClosureAction | None = None
    labels_add: tuple[str, ...] = ()
    labels_remove: tuple[str, ...] = ()
    comment: str | None = None
    #: The fields of `pull_request`; None means not given.
    title: str | None = None
    body: str | None = None
    draft: bool | None = None
    release: RequestedRelease | None = None
    threads: tuple[ThreadAnswer, ...] = ()
    review: RequestedReview | None = None
    warnings: tuple[str, ...] = ()


def read_closing_request(answer: JsonObject | None) -> ClosingRequest:
    """Read the requests in a closing answer."""
    reader = _AnswerReader(answer or {})
    return ClosingRequest(
        closure_action=reader.choice("closure_action", ClosureAction),
        labels_add=tuple(reader.items("issue.labels.add", _Word, "a label's name", "label names")),
        labels_remove=tuple(reader.items("issue.labels.remove", _Word, "a label's name", "label names")),
        comment=reader.text("comment"),
        title=reader.text("pull_request.title"),
        body=reader.text("pull_request.body"),
        draft=reader.flag("pull_request.draft"),
        release=reader.release(),
        threads=tuple(reader.threads()),
        review=reader.review(),
        warnings=tuple(reader.warnings),
    )


class _AnswerReader:
    """Reads typed values from an answer and collects warnings about those that do not fit."""

    def __init__(self, answer: JsonObject) -> None:
        self.answer = answer
        self.warnings: list[str] = []

    def text(self, path: str) -> str | None:
        return self._value(path, TypeAdapter(_Text), "a string")

    def flag(self, path: str) -> bool | None:
        return self._value(path, TypeAdapter(Annotated[bool, Strict()]), "true or false")

    def choice(self, path: str, words: type[T]) -> T | None:
        return self._value(path, TypeAdapter(words), " | ".join(map(str, words)))  # type: ignore[call-overload]

    def items(self, path: str, kind: type[T], expected: str, many: str) -> Iterator[T]:
        """Yield those values of a list that fit."""
        adapter = TypeAdapter(kind)
        for item in self._value(path, TypeAdapter(list[JsonValue]), f"a list of {many}") or ():
            try:
                yield adapter.validate_python(item)
            except ValidationError:
                self._warn(path, item, expected)

    def release(self) -> RequestedRelease | None:
        if value_at(self.answer, "release") is None:
            return None
        if not (tag := self.text("release.tag")):
            self.warnings.append("The closing answer's `release` has no `tag`: no release is created.")
            return None
        name, body = self.text("release.name"), self.text("release.body")
        return RequestedRelease(tag=tag, name=name, body=body, draft=self.flag("release.draft") or False)

    def threads(self) -> Iterator[ThreadAnswer]:
        """Yield the answers, one for each thread."""
        known = set[str]()
        expected = "an object with `thread`, `applied` and `why`"
        for answer in self.items("threads", ThreadAnswer, expected, "answers to review threads"):
            if answer.thread not in known:
                known.add(answer.thread)
                yield answer
            else:
                twice = f"answers {answer.thread[:80]!r} twice: the first answer counts."
                self.warnings.append(f"The closing answer's `threads` {twice}")

    def review(self) -> RequestedReview | None:
        if self._value("review", TypeAdapter(dict[str, JsonValue]), "an object") is None:
            return None
        return RequestedReview(
            summary=self.text("review.summary") or "",
            verdict=self.choice("review.verdict", ReviewVerdict) or ReviewVerdict.COMMENT,
            comments=tuple(self._comments()),
        )

    def _comments(self) -> Iterator[RequestedComment]:
        comments = self._value("review.comments", TypeAdapter(list[JsonValue]), "a list") or ()
        for number, item in enumerate(comments, 1):
            try:
                comment = RequestedComment.model_validate(item)
            except ValidationError as exc:
                problem = exc.errors(include_url=False)[0]
                where = ".".join(("review.comments", *map(str, problem["loc"])))
                self.warnings.append(f"Comment {number} of the review is not posted: `{where}`: {problem['msg']}.")
                continue
            if comment.body.strip() or comment.suggestion is not None:
                yield comment
            else:
                self.warnings.append(f"Comment {number} of the review is not posted: it says nothing.")

    def _value(self, path: str, adapter: TypeAdapter[T], expected: str) -> T | None:
        value = value_at(self.answer, path)
        if value is None or value == "":
            return None
        try:
            return adapter.validate_python(value)
        except ValidationError:
            self._warn(path, value, expected)
            return None

    def _warn(self, path: str, value: JsonValue, expected: str) -> None:
        self.warnings.append(f"The closing answer's `{path}` is {repr(value)[:80]}, not {expected}: it has no effect.")
