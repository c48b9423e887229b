"""What a run asks for and writes on GitHub, as data: an approval, the effects in order of visibility, with the comments
and suggestions of a review, and the receipt of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never

from stepflow.domain.json import JsonValue, as_text
from stepflow.domain.text import code_span, count, fence_of, name_some
from stepflow.domain.words import Permission


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
        """Return whether people could commit only one of the two."""
        return self.path == other.path and self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, kw_only=True)
class TriedSuggestion:
    """What became of a suggestion. It is offered unless there is a `problem`."""

    comment: int
    place: str
    problem: str = ""
    #: The checks that it makes fail.
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


class EffectKind(StrEnum):
    """Names of effects in reports and scenarios, in the order they are written (boundary.md)."""

    PUSH_BRANCH = "push_branch"
    OPEN_PULL_REQUEST = "open_pull_request"
    ANSWER_THREADS = "answer_threads"
    SUBMIT_REVIEW = "submit_review"
    POST_COMMENT = "post_comment"
    ADD_LABELS = "add_labels"
    REMOVE_LABELS = "remove_labels"
    CREATE_RELEASE = "create_release"
    CLOSE_ISSUE = "close_issue"
    DISPATCH_WORKFLOW = "dispatch_workflow"


class AllowedEffect(StrEnum):
    """Effects on GitHub that an agent may allow a completed run (boundary.md)."""

    COMMENT = "comment"
    LABELS = "labels"
    CLOSE = "close"
    PULL_REQUEST = "pull_request"
    RELEASE = "release"
    REVIEW = "review"


class EffectStatus(StrEnum):
    """The result of an effect."""

    PLANNED = "planned"
    APPLIED = "applied"
    SKIPPED = "skipped"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class PushBranch:
    """Push the run's commits to this branch, or to a similar name. With `fast_forward`, push to exactly this branch;
    its tip must still be the commit where the run began."""

    branch: str
    fast_forward: bool = False
    kind: EffectKind = EffectKind.PUSH_BRANCH


@dataclass(frozen=True, kw_only=True)
class OpenPullRequest:
    """Open a pull request from the pushed branch, or update the existing one."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool
    kind: EffectKind = EffectKind.OPEN_PULL_REQUEST


@dataclass(frozen=True, kw_only=True)
class ThreadReply:
    """The reply in one review thread: the comment was `applied` by the pushed commit, or `why` says why not."""

    thread: str
    applied: bool
    why: str = ""

    def text(self, commit: str) -> str:
        """Return the text of the reply. `commit` is the pushed commit."""
        return f"Applied in {commit}. {self.why}".rstrip() if self.applied else f"Not applied: {self.why}"


@dataclass(frozen=True, kw_only=True)
class AnswerThreads:
    """Reply once in each review thread, and resolve the threads whose comments were applied."""

    replies: tuple[ThreadReply, ...]
    kind: EffectKind = EffectKind.ANSWER_THREADS


@dataclass(frozen=True, kw_only=True)
class SubmitReview:
    """Submit the run's one review of the pull request, which replaces the agent's earlier one."""

    verdict: ReviewVerdict
    body: str
    comments: tuple[ReviewComment, ...] = ()
    #: Comments for which there is no room.
    left_out: str = ""
    kind: EffectKind = EffectKind.SUBMIT_REVIEW


@dataclass(frozen=True, kw_only=True)
class PostComment:
    """Post the run's one comment, or update the one that stepflow posted earlier."""

    body: str
    kind: EffectKind = EffectKind.POST_COMMENT


@dataclass(frozen=True, kw_only=True)
class AddLabels:
    """Add these labels to the issue."""

    labels: tuple[str, ...]
    kind: EffectKind = EffectKind.ADD_LABELS


@dataclass(frozen=True, kw_only=True)
class RemoveLabels:
    """Remove these labels from the issue."""

    labels: tuple[str, ...]
    kind: EffectKind = EffectKind.REMOVE_LABELS


@dataclass(frozen=True, kw_only=True)
class CreateRelease:
    """Create a release at the base branch."""

    tag: str
    name: str
    body: str
    draft: bool
    kind: EffectKind = EffectKind.CREATE_RELEASE


@dataclass(frozen=True, kw_only=True)
class CloseIssue:
    """Close the issue."""

    kind: EffectKind = EffectKind.CLOSE_ISSUE


@dataclass(frozen=True, kw_only=True)
class DispatchWorkflow:
    """Start a workflow on the pushed branch, once for each pushed commit. `workflow` is its file name."""

    workflow: str
    kind: EffectKind = EffectKind.DISPATCH_WORKFLOW


Effect = (
    PushBranch
    | OpenPullRequest
    | AnswerThreads
    | SubmitReview
    | PostComment
    | AddLabels
    | RemoveLabels
    | CreateRelease
    | CloseIssue
    | DispatchWorkflow
)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The result of one effect. `detail` is for people and `url` links to the result; both may be empty.

    `number` is the number of a pull request, or the id of a comment or review. `commit` is the pushed commit and
    `branch` its destination. `unwritten` is the text that GitHub rejected, which the job's summary shows.
    """

    kind: EffectKind
    status: EffectStatus
    detail: str = ""
    url: str = ""
    number: int | None = None
    branch: str = ""
    commit: str = ""
    unwritten: str = ""


def text_of(effect: Effect) -> str:
    """Return the exact text that the effect would write; empty if it writes none."""
    match effect:
        case OpenPullRequest():
            return f"{effect.title}\n\n{effect.body}"
        case AnswerThreads():
            return "\n\n".join(reply.text("(the commit)") for reply in effect.replies)
        case SubmitReview():
            places = (describe_place(each.path, each.start_line, each.line) for each in effect.comments)
            texts = (f"{place}\n\n{each.text}" for place, each in zip(places, effect.comments, strict=True))
            return "\n\n".join(filter(None, (effect.body, *texts, effect.left_out)))
        case PostComment():
            return effect.body
        case CreateRelease():
            return f"{effect.name}\n\n{effect.body}"
        case _:
            return ""


def describe_effect(effect: Effect) -> str:  # noqa: PLR0911 - one return per effect is the table
    """Describe the effect in a few words for people."""
    match effect:
        case PushBranch():
            return effect.branch
        case OpenPullRequest():
            return f"{effect.title} → {effect.base or 'the default branch'}{' (draft)' if effect.draft else ''}"
        case AnswerThreads():
            return count(len(effect.replies), "review thread")
        case SubmitReview():
            return f"{effect.verdict}, {count(len(effect.comments), 'comment')} on lines"
        case PostComment():
            return next((line for line in effect.body.splitlines() if line.strip()), "")[:200]
        case AddLabels() | RemoveLabels():
            return ", ".join(effect.labels)
        case CreateRelease():
            return f"{effect.tag}{' (draft)' if effect.draft else ''}"
        case CloseIssue():
            return ""
        case DispatchWorkflow():
            return effect.workflow
        case _:
            assert_never(effect)


#: The start of a comment that approves a plan; the digest follows.
APPROVE = "/stepflow approve"
#: People must see the whole plan before they approve it. A comment holds 65,536 characters, including the text around
#: the plan.
LONGEST_PLAN = 20_000
MOST_PLAN_LINES = 2_000


def plan_text(handoff: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """Return the steps' handoffs as shown to the person who approves them."""
    parts = [f"{step}, {key}:\n{as_text(value)}" for step, values in handoff.items() for key, value in values.items()]
    return "\n\n".join(parts) or "nothing"


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """An approval that a run waits for: of `digest`, by a person with the permission `by`. The `…_left` fields hold the
    rest of each limit, None if there is no limit."""

    step_id: str
    by: Permission
    digest: str
    iterations_left: int
    usd_left: float | None
    tokens_left: int | None

    @property
    def command(self) -> str:
        """Return the comment that approves the plan."""
        return f"{APPROVE} {self.digest}"


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(ApprovalRequest):
    """The run ends before the step until a person answers."""

    event: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswered:
    """The `actor` approved the plan with this `digest`, or rejected it: `digest` is None and `reason` says why."""

    step_id: str
    actor: str
    digest: str | None
    reason: str = ""
    event: Literal["approval_answered"] = "approval_answered"
