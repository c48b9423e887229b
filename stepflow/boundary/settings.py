"""What a closing answer requests, the boundary's plan and settings, and what these allow: whether the actor may write,
the labels that a run may change, and the name of its branch."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.own_texts import PullRequestAuthor, marker_word
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.effect import DiffSide, Effect, ReviewVerdict, describe_place
from stepflow.domain.json import JsonObject, JsonValue, map_texts, value_at
from stepflow.domain.reports.ledger import DIGEST_DIGITS, RunRecord
from stepflow.domain.run import ANY_NAME, FollowUp, Issue, ReviewedPull, RunFacts, name_in
from stepflow.domain.secrets import Redactor
from stepflow.domain.text import Spent, replace_surrogates
from stepflow.domain.value_errors import describe_error
from stepflow.domain.words import ClosureAction, OnFailure, Outcome, Permission

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHub


#: Larger packed commits are neither collected nor pushed; their unpacked size is limited by `CommitRules`.
MOST_BUNDLE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BoundarySettings:
    """The inputs about GitHub, and who and what started the run."""

    #: `owner/name`.
    repository: str
    actor: str
    actor_is_bot: bool = False
    #: The repository's id, which stays the same when it is renamed; None if unknown.
    repository_id: int | None = None
    server_url: str = "https://github.com"
    trigger_labels: tuple[str, ...] = ("agent:*",)
    #: The label that started this run, if one did.
    started_by_label: str | None = None
    min_permission: Permission = Permission.WRITE
    allow_bots: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.NOTHING
    #: File name of the workflow to start on a pushed branch; empty for none.
    ci_workflow: str = ""
    #: Whether the definition of the agent lets people without the permission start a run.
    anyone_may_start: bool = False
    #: False if the text came from an input, so that it cannot be compared with the issue.
    issue_text_from_event: bool = True

    @property
    def repository_url(self) -> str:
        """Address of the repository's page."""
        return f"{self.server_url.rstrip('/')}/{self.repository}"

    def link_hosts(self, allowed: Iterable[str]) -> frozenset[str]:
        """Return the hosts that links in posted text may lead to: the server and the `allowed` ones."""
        server = urlsplit(self.server_url).hostname or ""
        return frozenset(host.strip().lower() for host in (server, *allowed) if host.strip())


@dataclass(frozen=True, kw_only=True)
class CommitsInfo:
    """The commits that the workspace holds beyond the base: how many, files that were left uncommitted, and what
    is known about the validators that passed them."""

    count: int
    uncommitted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The effects to write, in order, and what writing them needs."""

    run_id: str
    agent: str
    settings: BoundarySettings
    redactor: Redactor
    #: What the agent's definition allows.
    github: GitHubSettings = field(default_factory=GitHubSettings)
    issue: Issue | None = None
    #: Empty means the default branch.
    base: str = ""
    effects: tuple[Effect, ...] = ()
    warnings: tuple[str, ...] = ()
    #: The warnings that another answer would avoid.
    objections: tuple[str, ...] = ()
    #: A plan with a refusal has no effects.
    refusal: str | None = None
    #: The state that the issue must have after the last effect; None for any.
    expects: str | None = None
    #: Whether that state is read at all (verdict type `poll:state`).
    reads_back: bool = False
    #: Says that the agent should have changed something but did not; otherwise empty.
    no_changes: str = ""
    #: None for a run that starts from the base.
    follow_up: FollowUp | None = None
    #: None for a run that reviews no pull request.
    reviewed: ReviewedPull | None = None
    #: The cost of this run with all its resumed parts.
    cost: Spent = field(default_factory=Spent)
    #: The digest of the agent's definition; empty for a run that could not be prepared.
    digest: str = ""
    #: None for a run in progress.
    outcome: Outcome | None = Outcome.COMPLETED
    #: Wall time of this run.
    seconds: float = 0.0

    @cached_property
    def output_filter(self) -> OutputFilter:
        """The filter for everything that is posted."""
        allowed_hosts = self.settings.link_hosts(self.github.allowed_link_hosts)
        return OutputFilter(allowed_hosts=allowed_hosts, redactor=self.redactor)

    def record(self, day: str) -> RunRecord | None:
        """Return what GitHub keeps about this run, written on that `day`; None for one that could not be prepared."""
        if not self.digest:
            return None
        return RunRecord(
            run=marker_word(self.run_id),
            digest=self.digest[:DIGEST_DIGITS],
            outcome=Outcome.NO_CHANGES if self.no_changes else self.outcome,
            cost=self.cost,
            minutes=round(self.seconds / 60, 1),
            day=day,
        )

    def author(self, day: str) -> PullRequestAuthor | None:
        """Return what a pull request says of the run that wrote it."""
        issue, record = self.issue.number if self.issue else None, self.record(day)
        return PullRequestAuthor(agent=marker_word(self.agent), issue=issue, record=record) if record else None


def check_actor(github: GitHub, settings: BoundarySettings, approver: Permission = Permission.NONE) -> str | None:
    """Say why nothing may be written, or return None. A bot in `start.bots` needs no permission, but only a person can
    be the `approver` of a step."""
    actor = settings.actor
    if not actor:
        return "Nothing was written: the event does not say who triggered the run, so no permission can be checked."
    is_bot = settings.actor_is_bot or actor.endswith("[bot]")
    if is_bot and approver is not Permission.NONE:
        return f"No run was started: {actor} is a bot, and only people approve or reject a plan."
    if is_bot:
        refusal = (
            f"Nothing was written: {actor}, which triggered the run, is a bot that `start.bots` does not name. Add it "
            "there if it may write."
        )
        return None if is_named(actor, settings.allow_bots) else refusal
    if settings.anyone_may_start and approver is Permission.NONE:
        return None
    permission = Permission(github.permission(actor))
    if settings.min_permission.rank <= permission.rank < approver.rank:
        return (
            f"No run was started: {actor} has the permission '{permission}' on {settings.repository}, and the "
            f"`approval` requires '{approver}'. Let somebody with that permission answer."
        )
    refusal = (
        f"Nothing was written: {actor}, who triggered the run, has the permission '{permission}' on "
        f"{settings.repository}, and `start.min-permission` requires '{settings.min_permission}'. Let somebody with "
        "that permission trigger the run, or lower `start.min-permission`."
    )
    return refusal if permission.rank < settings.min_permission.rank else None


def is_named(actor: str, allowed: tuple[str, ...]) -> bool:
    """Return whether `start.bots` names this account."""
    names = {name.strip().removesuffix("[bot]").casefold() for name in allowed}
    return actor.removesuffix("[bot]").casefold() in names


MOST_LABEL_CHANGES = 10
#: GitHub's own limit for a label's name.
LONGEST_LABEL = 50


def choose_labels(
    add: tuple[str, ...],
    remove: tuple[str, ...],
    github: GitHubSettings,
    settings: BoundarySettings,
    warnings: list[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the allowed labels to add and to remove, without duplicates and at most ten together. The label that
    started the run is always removed, and first."""
    started = (settings.started_by_label,) if settings.started_by_label else ()
    warnings.extend(object_to_labels(add, remove, github, settings))
    wanted_add, wanted_remove = (
        [label for label in _distinct(labels) if not _objection(label, github, settings)] for labels in (add, remove)
    )
    keeps = {label.casefold() for label in wanted_add}
    removals = _distinct((*started, *(label for label in wanted_remove if label.casefold() not in keeps)))
    changes = [*((False, label) for label in removals[: len(started)]), *((True, label) for label in wanted_add)]
    changes += [(False, label) for label in removals[len(started) :]]
    for _, label in changes[MOST_LABEL_CHANGES:]:
        warnings.append(f"Label `{label}` stays as it is: a run changes at most {MOST_LABEL_CHANGES} labels.")
    done = changes[:MOST_LABEL_CHANGES]
    return (
        tuple(label for put_on, label in done if put_on),
        tuple(label for put_on, label in done if not put_on),
    )


def object_to_labels(
    add: tuple[str, ...], remove: tuple[str, ...], github: GitHubSettings, settings: BoundarySettings
) -> Iterator[str]:
    """Yield objections to labels that may not be changed. The label that started the run is removed in any case."""
    started = (settings.started_by_label or "").casefold()
    for label in _distinct((*add, *(label for label in remove if label.casefold() != started))):
        if reason := _objection(label, github, settings):
            yield f"Label `{label[:LONGEST_LABEL]}` cannot be changed: {reason}."


def is_trigger_label(label: str, settings: BoundarySettings) -> bool:
    """Return whether adding this label would start an agent."""
    if label.casefold() == (settings.started_by_label or "").casefold():
        return True
    # The bare name of an agent may be any word.
    patterns = (pattern for pattern in settings.trigger_labels if pattern != ANY_NAME)
    return any(name_in(label, pattern) is not None for pattern in patterns)


def _objection(label: str, github: GitHubSettings, settings: BoundarySettings) -> str | None:
    if is_trigger_label(label, settings):
        return "it starts agents, and the boundary never uses such a label"
    if len(label) > LONGEST_LABEL:
        return f"a label has at most {LONGEST_LABEL} characters"
    globs = github.allowed_labels
    if globs is not None and not any(fnmatchcase(label.casefold(), glob.casefold()) for glob in globs):
        return "`allowedLabels` in agent.json does not list it"
    return None


def _distinct(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Remove duplicates, ignoring case as GitHub does."""
    first: dict[str, str] = {}
    for label in labels:
        first.setdefault(label.casefold(), label)
    return tuple(first.values())


_BRANCH = re.compile(r"(?![-/])(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)|@\{))[A-Za-z0-9._/+@=-]{1,200}(?<![./])")
KEPT_IN_BUNDLE = "The commits are kept in work.bundle in the run folder"
WORK_IS_KEPT = f"{KEPT_IN_BUNDLE}, and with `on-failure: push-branch` on a branch as well."


def branch_name(agent: AgentDefinition, facts: RunFacts) -> str:
    """`<prefix><agent>/issue-<n>`, or `run-<id>` without an issue."""
    return branch_of(agent, f"issue-{facts.issue.number}" if facts.issue else f"run-{facts.run_id}")


def unfinished_branch(agent: AgentDefinition, facts: RunFacts) -> str:
    """Return where the work of a run that did not complete may be kept. No pull request shows it, since one is
    opened from `branch_name` alone: what a pull request shows was validated."""
    branch = branch_of(agent, f"run-{facts.run_id}")
    return branch if facts.issue or facts.follow_up else f"{branch}-unfinished"


def branch_of(agent: AgentDefinition, last: str) -> str:
    """Return a branch of the agent's runs; `last` says which run. A rehearsal's is named after its scenario, in any
    script."""
    name, last = (re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in (agent.name, last))
    return f"{agent.github.pull_request.branch_prefix}{name}/{last}"


def branch_problem(branch: str, base: str) -> str:
    """Say why a branch of this name cannot have a pull request to the base; empty if it can."""
    if _BRANCH.fullmatch(branch) and branch != base:
        return ""
    return (
        f"The branch for this run's commits would be called {branch!r}, which git does not allow or which is the base "
        "branch. Change `runner.integrations.github.pullRequest.branchPrefix`."
    )


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


def normalize_path(path: str) -> str:
    """Return a path below the repository's root in the one form in which paths are compared, such as `src/a.py` for
    ` ./src//a.py` and `src\\a.py`. A path that leads elsewhere stays what it is."""
    normal = posixpath.normpath(path.strip().replace("\\", "/")).lstrip("/")
    return path if normal.startswith("..") or normal == "." else unicodedata.normalize("NFC", normal)


class RequestedComment(_Requested):
    """One of `review.comments`. Lines are those of the file in the workspace, or on the side `LEFT` those of the
    version before the change."""

    path: Annotated[str, Field(min_length=1), AfterValidator(normalize_path)]
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
    readable = {key: map_texts(value, replace_surrogates) for key, value in (answer or {}).items()}
    reader = _AnswerReader(readable)
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
                self.warnings.append(
                    f"Comment {number} of the review is not posted: `{where}` {describe_error(problem)}."
                )
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
