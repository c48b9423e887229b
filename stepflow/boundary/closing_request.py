"""Reads what a closing answer requests of GitHub: typed values, and a warning for each that is not understood."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepflow.boundary.review import RequestedReview, read_review
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.words import ClosureAction


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
