"""What the boundary writes to GitHub, as data: the effects in order of visibility, and the receipt of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from stepflow.domain.review import ReviewComment, ReviewVerdict, describe_place
from stepflow.domain.text import count


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
    `branch` its destination.
    """

    kind: EffectKind
    status: EffectStatus
    detail: str = ""
    url: str = ""
    number: int | None = None
    branch: str = ""
    commit: str = ""


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
            return "\n\n".join((effect.body, *texts))
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
