"""The event that starts a run, and who may start one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stepflow.boundary.settings import is_named
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import ANY_NAME, Issue, name_in
from stepflow.domain.words import FollowUpKind
from stepflow.errors import InputError
from stepflow.run.inputs import Inputs

#: Who may start a run with a comment, or by labeling an issue of their own, as far as the event knows: somebody whose
#: membership of the organization is private is a contributor or nobody to it.
TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
#: Of these only an owner's always means write access: members and collaborators may have less.
OWNER = "OWNER"
#: Only somebody with write access can cause these events.
WRITERS_EVENTS = frozenset({"workflow_dispatch", "repository_dispatch", "schedule", "push"})
#: Of these only certain actions start anything.
WITH_ACTIONS = frozenset(
    {"issues", "issue_comment", "pull_request_review", "pull_request_review_comment", "workflow_run"}
)
COMMAND = "/stepflow"
#: What a workflow that failed concludes with; whoever cancels one wants nothing fixed.
FAILED_CONCLUSIONS = frozenset({"failure", "timed_out", "startup_failure"})


class _EventShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class User(_EventShape):
    """The parts of a user that matter here."""

    login: str = ""
    type: str = "User"


class _Label(_EventShape):
    name: str = ""


class IssuePayload(_EventShape):
    """The parts of an issue in an event."""

    number: int
    title: str = ""
    body: str | None = None
    user: User | None = None
    html_url: str = ""
    labels: tuple[_Label, ...] = ()
    author_association: str = "NONE"
    locked: bool = False
    pull_request: dict[str, object] | None = None


class _Comment(_EventShape):
    body: str = ""
    user: User | None = None
    author_association: str = "NONE"


class _Review(_Comment):
    body: Annotated[str, BeforeValidator(lambda text: text or "")] = ""
    state: str = ""


class _PullRequest(_EventShape):
    number: int


class _EventRepository(_EventShape):
    full_name: str = ""
    default_branch: str = ""
    private: bool | None = None


class _WorkflowRun(_EventShape):
    """`head_repository` is null where it was deleted."""

    id: int
    conclusion: str | None = None
    head_branch: str | None = None
    head_sha: str = ""
    head_repository: _EventRepository | None = Field(default_factory=_EventRepository)


class EventPayload(_EventShape):
    """The parts of an event's payload that a trigger reads."""

    action: str = ""
    label: _Label | None = None
    issue: IssuePayload | None = None
    comment: _Comment | None = None
    pull_request: _PullRequest | None = None
    review: _Review | None = None
    workflow_run: _WorkflowRun | None = None
    sender: User | None = None
    repository: _EventRepository = Field(default_factory=_EventRepository)
    inputs: dict[str, object] | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalReply:
    """What somebody says to a run that waits for approval: the `digest` that they approve, or None and why they do
    not."""

    digest: str | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PullRequestEvent:
    """What happened on a pull request: a review or a command with a `remark`, or a workflow run that failed on the
    commit `head` of a branch, whose pull request the event need not name."""

    kind: FollowUpKind
    number: int | None = None
    remark: str = ""
    is_command: bool = False
    failed_run: int | None = None
    branch: str = ""
    head: str = ""


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A run that somebody asked for. `issue` is None when the event carries none; `issue_number` is then the input's.

    `label` is the label that started the run, if one did; the boundary takes it off at completion. `private` is None
    when the event does not say whether the repository is. `by_writer`: the event alone shows that the actor has write
    access. `unproven` says why the event alone speaks against the actor, and GitHub is to be asked; empty where it does
    not. A `reply` is for a run that waits for one; which agent that is of its folder says. What follows up on a
    `pull_request` says whose work that is: `agent` is empty where nobody names one. Whether the
    issue is `locked` the event or GitHub says, None where neither did.
    """

    agent: str = ""
    actor: str = ""
    actor_is_bot: bool = False
    issue: Issue | None = None
    issue_number: int | None = None
    label: str | None = None
    default_branch: str = ""
    private: bool | None = None
    by_writer: bool = False
    unproven: str = ""
    reply: ApprovalReply | None = None
    pull_request: PullRequestEvent | None = None
    locked: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The event does not ask for a run; the reason is one line for the log."""

    reason: str


def read_event_file(path: str, *, named_by: str) -> JsonObject:
    """The payload of an event, from the file that a variable or flag names; empty where it names none."""
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(
            f"The event file {path} cannot be read: {exc}.", hint=f"{named_by} must name a JSON file."
        ) from exc
    if not isinstance(event, dict):
        raise InputError(f"The event file {path} holds no JSON object.", hint=f"{named_by} must name an event.")
    return event


def read_event(payload: Mapping[str, JsonValue]) -> EventPayload:
    """The typed parts of an event's payload."""
    try:
        return EventPayload.model_validate(payload)
    except ValidationError as exc:
        first = exc.errors(include_input=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"The event's payload is not what GitHub sends: {location}: {first['msg']}.",
            hint="Check the file that GITHUB_EVENT_PATH (or --event) names.",
        ) from None


def find_trigger(
    event_name: str, event: EventPayload, inputs: Inputs, *, actor: str = "", agents: tuple[str, ...] = ()
) -> Trigger | Skip:
    """The run that this event asks for. `actor` is who started a workflow whose event names no sender; for a
    label that is the bare name of an agent, these are the `agents`."""
    found = _find(event_name, event, inputs, actor, agents)
    can_ask = inputs.read_token is not None or inputs.github_token is not None
    # GitHub is asked about people; what bots say may be what strangers told them.
    if isinstance(found, Trigger) and found.unproven and (found.actor_is_bot or not can_ask):
        return Skip(reason=found.unproven)
    return found


def _find(  # noqa: PLR0911 - one return per event is the table
    event_name: str, event: EventPayload, inputs: Inputs, actor: str, agents: tuple[str, ...]
) -> Trigger | Skip:
    sender = event.sender or User(login=actor, type="Bot" if actor.endswith("[bot]") else "User")
    if sender.type == "Bot" and not is_named(sender.login, inputs.allow_bots):
        return Skip(reason=f"{sender.login} is a bot that the input allow-bots does not name")
    match event_name, event.action:
        case "issues", "labeled":
            return _labeled(event, inputs, sender, agents)
        case "issue_comment" | "pull_request_review_comment", "created":
            return _commented(event, sender)
        case "pull_request_review", "submitted":
            return _reviewed(event, sender)
        case "workflow_run", "completed":
            return _checked(event, sender)
        case name, action if name in WITH_ACTIONS:
            return Skip(reason=f"the event {name}.{action} starts no agent")
        case _:
            if not inputs.agent:
                return Skip(reason=f"the event {event_name} names no agent and the input agent is empty")
            trigger = _trigger(inputs.agent, event, sender, by_writer=event_name in WRITERS_EVENTS)
            return replace(trigger, issue_number=inputs.issue or _asked_issue(event))


def _labeled(event: EventPayload, inputs: Inputs, sender: User, agents: tuple[str, ...]) -> Trigger | Skip:
    issue, label = event.issue, event.label.name if event.label else ""
    if issue is None:
        raise InputError("The labeled event carries no issue.", hint="Check the file that GITHUB_EVENT_PATH names.")
    fitting = [pattern for pattern in inputs.trigger_labels if name_in(label, pattern) is not None]
    if not fitting:
        return Skip(reason=f'the label "{label}" starts no agent; trigger-labels: {", ".join(inputs.trigger_labels)}')
    if fitting == [ANY_NAME] and name_in(label, ANY_NAME) not in agents:
        return Skip(reason=f'the label "{label}" is no agent\'s name')
    agent = next(filter(None, (name_in(label, pattern) for pattern in fitting)), inputs.agent)
    if not agent:
        return Skip(reason=f'the label "{label}" names no agent and the input agent is empty')
    own_issue = issue.user is not None and issue.user.login == sender.login
    by_owner = own_issue and issue.author_association == OWNER
    trigger = _trigger(agent, event, sender, issue, label=label, by_writer=by_owner)
    if own_issue:
        trigger = _mark_unproven(trigger, issue.author_association, "label an issue of their own")
    return trigger


def _commented(event: EventPayload, sender: User) -> Trigger | Skip:
    number = _pull_request_number(event)
    if event.comment is None or (event.issue is None and number is None):
        raise InputError("The comment event carries no comment.", hint="Check the file that GITHUB_EVENT_PATH names.")
    first_line, _, below = event.comment.body.strip().partition("\n")
    words = first_line.split()
    reply = _reply(words)
    if reply is None and not (words[:2] == [COMMAND, "run"] and (len(words) == 3 or (len(words) == 2 and number))):
        commands = f'"{COMMAND} run <agent>", "{COMMAND} approve <digest>" or "{COMMAND} reject"'
        return Skip(reason=f"the comment does not begin with {commands}")
    if reply and number:
        return Skip(reason="a plan is approved or rejected on the issue, where it is shown")
    if reply and sender.type == "Bot":
        return Skip(reason=f"{sender.login} is a bot, and only people approve")
    association, what = event.comment.author_association, "start an agent by a comment"
    agent = "" if reply else "".join(words[2:])
    if number:
        asked = PullRequestEvent(kind=FollowUpKind.REVIEW, number=number, remark=below.strip(), is_command=True)
        return _mark_unproven(_follow_up(event, sender, asked, agent=agent), association, what)
    trigger = _trigger(agent, event, sender, event.issue, by_writer=association == OWNER)
    return _mark_unproven(replace(trigger, reply=reply), association, what)


def _pull_request_number(event: EventPayload) -> int | None:
    """The pull request that a comment is on; GitHub shows it as an issue too."""
    if event.pull_request:
        return event.pull_request.number
    return event.issue.number if event.issue and event.issue.pull_request is not None else None


def _reviewed(event: EventPayload, sender: User) -> Trigger | Skip:
    if event.pull_request is None or event.review is None:
        raise InputError("The review event carries no review.", hint="Check the file that GITHUB_EVENT_PATH names.")
    if event.review.state == "approved":
        return Skip(reason="the review approves, so there is nothing to follow up")
    reviewed = PullRequestEvent(
        kind=FollowUpKind.REVIEW, number=event.pull_request.number, remark=event.review.body.strip()
    )
    trigger = _follow_up(event, sender, reviewed)
    if sender.type == "Bot":
        return trigger
    return _mark_unproven(trigger, event.review.author_association, "start an agent by a review")


def _checked(event: EventPayload, sender: User) -> Trigger | Skip:
    run = event.workflow_run
    if run is None:
        raise InputError("The event carries no workflow run.", hint="Check the file that GITHUB_EVENT_PATH names.")
    if run.conclusion not in FAILED_CONCLUSIONS or not run.head_branch:
        return Skip(reason=f"the workflow run ended as {run.conclusion or 'nothing'}, so there is nothing to follow up")
    if (head := run.head_repository) is None or head.full_name not in ("", event.repository.full_name):
        fork = head.full_name if head else "a fork that is gone"
        return Skip(reason=f"the workflow run was of {fork}, and only those of this repository are followed up")
    failed = PullRequestEvent(kind=FollowUpKind.CHECKS, failed_run=run.id, branch=run.head_branch, head=run.head_sha)
    return _follow_up(event, sender, failed)


def _follow_up(event: EventPayload, sender: User, asked: PullRequestEvent, *, agent: str = "") -> Trigger:
    return replace(_trigger(agent, event, sender, by_writer=False), pull_request=asked)


def _reply(words: list[str]) -> ApprovalReply | None:
    """What a comment's first line says to a run that waits for approval."""
    match words:
        case [command, "approve", digest] if command == COMMAND:
            return ApprovalReply(digest=digest)
        case [command, "reject", *why] if command == COMMAND:
            return ApprovalReply(digest=None, reason=" ".join(why))
        case _:
            return None


def _asked_issue(event: EventPayload) -> int | None:
    """The dispatch form's own `issue`, so that a workflow need not repeat it as an input of the action."""
    text = str((event.inputs or {}).get("issue") or "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def _trigger(
    agent: str,
    event: EventPayload,
    sender: User,
    issue: IssuePayload | None = None,
    *,
    label: str | None = None,
    by_writer: bool,
) -> Trigger:
    return Trigger(
        agent=agent,
        actor=sender.login,
        actor_is_bot=sender.type == "Bot",
        issue=issue_of(issue) if issue else None,
        issue_number=issue.number if issue else None,
        locked=issue.locked if issue else None,
        label=label,
        default_branch=event.repository.default_branch,
        private=event.repository.private,
        by_writer=by_writer,
    )


def issue_of(payload: IssuePayload) -> Issue:
    """The issue as the payload carries it."""
    return Issue(
        number=payload.number,
        title=payload.title,
        body=payload.body or "",
        author=payload.user.login if payload.user else "",
        url=payload.html_url,
        labels=tuple(label.name for label in payload.labels),
    )


def _mark_unproven(trigger: Trigger, association: str, what: str) -> Trigger:
    """The trigger, with the reason why the event's `association` does not let its actor do that, if it does not."""
    if association in TRUSTED_ASSOCIATIONS:
        return trigger
    trusted = ", ".join(sorted(TRUSTED_ASSOCIATIONS))
    return replace(trigger, unproven=f"{trigger.actor} ({association}) may not {what}; that takes {trusted}")
