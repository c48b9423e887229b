"""The event that starts a run, and who may start one."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from typing import TypeVar

from stepflow.boundary.settings import is_named
from stepflow.domain.run import ANY_NAME, Issue, name_in
from stepflow.domain.text import strip_unseen
from stepflow.domain.words import FollowUpKind, StartEvent
from stepflow.engine.prompt.own_words import read_own_words
from stepflow.errors import InputError
from stepflow.run.start.event import EventPayload, IssuePayload, PullRequestPayload, User
from stepflow.run.start.input_values import parse_issue
from stepflow.run.start.inputs import Inputs

T = TypeVar("T")

#: The associations that may start a run with a comment, or by labeling their own issue. The event may understate one:
#: a member whose membership is private appears as CONTRIBUTOR or NONE.
TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
#: Only an owner always has write access; members and collaborators may have less.
OWNER = "OWNER"
#: Only somebody with write access can cause these events.
WRITERS_EVENTS = frozenset({"workflow_dispatch", "repository_dispatch", "schedule", "push"})
#: Only certain actions of these events start a run.
WITH_ACTIONS = frozenset(
    {
        "issues",
        "issue_comment",
        "pull_request",
        "pull_request_review",
        "pull_request_review_comment",
        "workflow_run",
    }
)
#: What the input `start.events` may list.
_STARTS = frozenset(StartEvent)
COMMAND = "/stepflow"
#: The kind of start that a comment on an issue is.
COMMENT = "issue_comment.created"
#: The conclusions of a failed workflow. A canceled one is not among them: nobody wants that fixed.
FAILED_CONCLUSIONS = frozenset({"failure", "timed_out", "startup_failure"})


@dataclass(frozen=True, kw_only=True)
class ApprovalReply:
    """Somebody's reply to a run that waits for approval."""

    #: Digest of the approved plan, empty if the reply names none; None for a rejection, whose `reason` may follow.
    digest: str | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PullRequestEvent:
    """A review, a command in a comment, or a failed workflow run, on a pull request; a label on it, or a push to it."""

    #: None where a run may only review the pull request, not follow up on it.
    kind: FollowUpKind | None = None
    #: Number of the pull request; None for a failed workflow run, whose event need not name it.
    number: int | None = None
    #: Text of the review, or the text below the command.
    remark: str = ""
    is_command: bool = False
    #: Id of the comment on the page of the pull request that holds the command; None for one on its lines.
    comment_id: int | None = None
    #: The labels that the pull request had then.
    labels: tuple[str, ...] = ()
    #: Id of the failed workflow run, with its branch.
    failed_run: int | None = None
    branch: str = ""
    #: The head commit that the event is about; empty for a command or a label, which mean the newest one.
    head: str = ""


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A run that somebody asked for."""

    #: Empty for a reply, whose run folder names the agent, and for a follow-up that names none.
    agent: str = ""
    actor: str = ""
    actor_is_bot: bool = False
    #: None when the event carries no issue; `issue_number` is then the input's.
    issue: Issue | None = None
    issue_number: int | None = None
    #: What on the issue started the run, such as `issues.opened`, and its id: the number of the issue or the id of the
    #: comment, None for other events. Both are empty for a run that nothing on an issue started.
    start_kind: str = ""
    start_id: int | None = None
    #: The label that started the run, if any; the boundary removes it at completion.
    label: str | None = None
    default_branch: str = ""
    #: Whether the repository is archived, so that nobody can write to it; None when nobody has said.
    archived: bool | None = None
    #: Whether the repository is private; None when the event does not say.
    private: bool | None = None
    #: Whether the event alone proves that the actor has write access.
    by_writer: bool = False
    #: Why the event does not show that the actor is allowed, so that GitHub must be asked; empty if it does.
    unproven: str = ""
    #: A reply to a run that waits for approval.
    reply: ApprovalReply | None = None
    pull_request: PullRequestEvent | None = None
    #: Whether the issue is locked, from the event or GitHub; None when unknown.
    locked: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The event does not ask for a run; the reason is one line for the log."""

    reason: str


def find_trigger(
    event_name: str, event: EventPayload, inputs: Inputs, *, actor: str = "", agents: tuple[str, ...] = ()
) -> Trigger | Skip:
    """Return the run that this event asks for, or why it asks for none. `actor` stands in for the sender when the
    event names none; `agents` are the names that count when a label is just an agent's name."""
    trigger = _trigger_of_event(event_name, event, inputs, actor, agents)
    # GitHub can vouch for people only: a bot may repeat what strangers told it.
    if isinstance(trigger, Trigger) and trigger.unproven and (trigger.actor_is_bot or inputs.read_token is None):
        return Skip(reason=trigger.unproven)
    if isinstance(trigger, Trigger) and inputs.policy and (reason := inputs.policy.objection_to(trigger.actor)):
        return Skip(reason=reason)
    return trigger


def _trigger_of_event(  # noqa: PLR0911 - one return per event is the table
    event_name: str, event: EventPayload, inputs: Inputs, actor: str, agents: tuple[str, ...]
) -> Trigger | Skip:
    sender = event.sender or User(login=actor, type="Bot" if actor.endswith("[bot]") else "User")
    if sender.type == "Bot" and not is_named(sender.login, inputs.start.bots):
        return Skip(reason=f"{sender.login} is a bot that `start.bots` does not name")
    # Which of the two the workflow listens to decides about secrets and the checkout, not about what starts an agent.
    match event_name.removesuffix("_target"), event.action:
        case "issues" | "pull_request", "labeled":
            return _trigger_of_label(event, inputs, sender, agents)
        case "issues", action if f"issues.{action}" in inputs.start.events:
            return _trigger_of_issue(event, inputs, sender)
        case "pull_request", action if f"pull_request.{action}" in inputs.start.events:
            return _trigger_of_pull_request(event, inputs, sender)
        case "issue_comment" | "pull_request_review_comment", "created":
            return _trigger_of_comment(event, inputs, sender)
        case "pull_request_review", "submitted":
            return _trigger_of_review(event, sender)
        case "workflow_run", "completed":
            return _trigger_of_workflow_run(event, sender)
        case name, action if name in WITH_ACTIONS:
            listed = (
                f"; start.events: {', '.join(inputs.start.events) or 'nothing'}"
                if f"{name}.{action}" in _STARTS
                else ""
            )
            return Skip(reason=f"the event {name}.{action} starts no agent{listed}")
        case _:
            if not inputs.agent:
                return Skip(reason=f"the event {event_name} names no agent and the input agent is empty")
            trigger = _trigger(inputs.agent, event, sender, by_writer=event_name in WRITERS_EVENTS)
            return replace(trigger, issue_number=_issue_of_dispatch(event, inputs))


def _trigger_of_label(event: EventPayload, inputs: Inputs, sender: User, agents: tuple[str, ...]) -> Trigger | Skip:
    label = event.label.name if event.label else ""
    labeled = event.issue or _demand(event.pull_request, "issue")
    patterns = [pattern for pattern in inputs.start.labels if name_in(label, pattern) is not None]
    if not patterns:
        return Skip(reason=f'the label "{label}" starts no agent; start.labels: {", ".join(inputs.start.labels)}')
    if patterns == [ANY_NAME] and name_in(label, ANY_NAME) not in agents:
        return Skip(reason=f'the label "{label}" is not an agent\'s name')
    agent = next(filter(None, (name_in(label, pattern) for pattern in patterns)), inputs.agent)
    if not agent:
        return Skip(reason=f'the label "{label}" names no agent and the input agent is empty')
    if isinstance(labeled, PullRequestPayload):
        return _on_pull_request(agent, event, sender, labeled, label=label)
    return _on_issue(agent, event, sender, labeled, "label their own issue", label=label)


def _trigger_of_issue(event: EventPayload, inputs: Inputs, sender: User) -> Trigger | Skip:
    """Return the trigger of an issue that was opened, reopened or assigned, which `start.events` lists."""
    issue = _demand(event.issue, "issue")
    if not inputs.agent:
        return Skip(reason=f"the event issues.{event.action} names no agent and the input agent is empty")
    if not is_assigned(event.action, event.assignee.login if event.assignee else "", inputs):
        return Skip(reason=f"the issue was not assigned to {inputs.start.mention}, which `start.mention` names")
    return _on_issue(inputs.agent, event, sender, issue, "start an agent by their own issue")


def _trigger_of_pull_request(event: EventPayload, inputs: Inputs, sender: User) -> Trigger | Skip:
    """Return the trigger of a pull request that was opened, pushed to or marked as ready, which `start.events`
    lists."""
    pull = _demand(event.pull_request, "pull request")
    if not inputs.agent:
        return Skip(reason=f"the event pull_request.{event.action} names no agent and the input agent is empty")
    if pull.draft:
        return Skip(reason=f"pull request #{pull.number} is a draft; a label or a comment starts a review of it")
    return _on_pull_request(inputs.agent, event, sender, pull, head=pull.head.sha)


def _on_pull_request(
    agent: str, event: EventPayload, sender: User, pull: PullRequestPayload, *, label: str | None = None, head: str = ""
) -> Trigger:
    """Return the trigger of somebody who labeled a pull request, opened it or pushed to it; that their own one says who
    they are is no proof of what they may do here."""
    trigger = _trigger(agent, event, sender, label=label, by_writer=False)
    cause = PullRequestEvent(number=pull.number, head=head, labels=tuple(each.name for each in pull.labels))
    trigger = replace(trigger, issue_number=pull.number, pull_request=cause)
    if pull.user is None or pull.user.login != sender.login:
        return trigger
    return _mark_unproven(trigger, pull.author_association, "start a review of their own pull request")


def _on_issue(
    agent: str, event: EventPayload, sender: User, issue: IssuePayload, action: str, *, label: str | None = None
) -> Trigger:
    """Return the trigger of somebody who changed an issue. On the issue of somebody else, GitHub lets only people with
    the permission `triage` do so; on their own one, anybody may do some of it."""
    own_issue = issue.user is not None and issue.user.login == sender.login
    by_owner = own_issue and issue.author_association == OWNER
    trigger = _trigger(agent, event, sender, issue, label=label, by_writer=by_owner)
    is_opened = event.action == "opened"
    trigger = replace(trigger, start_kind=f"issues.{event.action}", start_id=issue.number if is_opened else None)
    return _mark_unproven(trigger, issue.author_association, action) if own_issue else trigger


def is_assigned(action: str, assignee: str, inputs: Inputs) -> bool:
    """Return whether an issue was assigned to the account that `mention` names, to anyone without it. True for any
    other action."""
    return (
        action != "assigned" or inputs.start.mention is None or assignee.casefold() == inputs.start.mention.casefold()
    )


def starts_by_comment(body: str, inputs: Inputs) -> str | None:
    """Return the agent that a comment on an issue starts by a command or a mention; None if it starts none."""
    if words := read_command(body):
        return words[2] if words[1:2] == ["run"] and len(words) > 2 else None
    return inputs.agent or "" if is_mentioned(inputs.start.mention, body) else None


def starts_on_pull_request(body: str, inputs: Inputs) -> bool:
    """Return whether a comment on a pull request starts an agent, which it need not name."""
    if words := read_command(body):
        return words[1:2] == ["run"]
    return is_mentioned(inputs.start.mention, body)


def read_command(body: str) -> list[str]:
    """Return the words of the first line that GitHub's page shows, if it is a command; no words otherwise. The command
    and the agent's name are in lower case, as both are known; a name or a digest has no punctuation around it."""
    # Rendering takes time, and most comments are about something else.
    if COMMAND not in strip_unseen(html.unescape(body)).casefold():
        return []
    words = strip_unseen(read_own_words(body).first_line).split()
    command = [word.casefold() for word in words[:2]]
    if command[:1] != [COMMAND]:
        return []
    name = words[2:3] if command[1:] == ["reject"] else [word.casefold().strip(".,:;!`\"'") for word in words[2:3]]
    return [*command, *name, *words[3:]]


def is_mentioned(name: str | None, text: str) -> bool:
    """Return whether a text mentions the account, as GitHub's page shows it."""
    if name is None or f"@{name}".casefold() not in html.unescape(text).casefold():
        return False
    mention = rf"(?<![\w@/.`-])@{re.escape(name)}(?![\w/-])"
    return re.search(mention, read_own_words(text).text, re.IGNORECASE) is not None


def _trigger_of_comment(event: EventPayload, inputs: Inputs, sender: User) -> Trigger | Skip:
    comment, number = _demand(event.comment, "comment"), _pull_request_number(event)
    issue = None if number else _demand(event.issue, "issue")
    words = read_command(comment.body)
    remark = _remark_of(comment.body, words)
    reply = _parse_reply(words)
    if not words and is_mentioned(inputs.start.mention, comment.body):
        if not inputs.agent:
            return Skip(reason="the comment mentions no agent's name and the input agent is empty")
        # The same as the command, with the whole comment as what is said below it.
        words, remark = [COMMAND, "run", inputs.agent], comment.body.strip()
    if reply is None and not (words[:2] == [COMMAND, "run"] and (len(words) > 2 or number)):
        commands = f'"{COMMAND} run <agent>", "{COMMAND} approve <digest>" or "{COMMAND} reject"'
        mention = f" and does not mention @{inputs.start.mention}" if inputs.start.mention else ""
        return Skip(reason=f"the comment does not begin with {commands}{mention}")
    if reply and number:
        return Skip(reason="a plan is approved or rejected on the issue, where it is shown")
    if reply and sender.type == "Bot":
        return Skip(reason=f"{sender.login} is a bot, and only people approve")
    association, action = comment.author_association, "start an agent by a comment"
    agent = "" if reply else "".join(words[2:3])
    if number:
        command = PullRequestEvent(kind=FollowUpKind.REVIEW, number=number, remark=remark, is_command=True)
        command = replace(command, comment_id=comment.id if event.issue else None)
        return _mark_unproven(_follow_up(event, sender, command, agent=agent), association, action)
    trigger = _trigger(agent, event, sender, issue, by_writer=association == OWNER)
    trigger = replace(trigger, reply=reply, start_kind=COMMENT, start_id=comment.id)
    return _mark_unproven(trigger, association, action)


#: The line of the command in the source of a comment.
_COMMAND_LINE = re.compile(rf"^[^\S\n]*{COMMAND}\b(?P<words>[^\r\n]*)\r?\n?", re.MULTILINE | re.IGNORECASE)


def _remark_of(body: str, words: list[str]) -> str:
    """Return what a comment says after its command, in the same line and below it; all of it if the source has the
    command in another way than the page."""
    if (line := _COMMAND_LINE.search(body)) is None or not words:
        return body.strip()
    return "\n".join((*line["words"].split(maxsplit=2)[2:], body[line.end() :])).strip()


def _pull_request_number(event: EventPayload) -> int | None:
    """Return the number of the pull request that was commented on; GitHub may send it as an issue."""
    if event.pull_request:
        return event.pull_request.number
    return event.issue.number if event.issue and event.issue.pull_request is not None else None


def _trigger_of_review(event: EventPayload, sender: User) -> Trigger | Skip:
    pull, review = _demand(event.pull_request, "pull request"), _demand(event.review, "review")
    if review.state == "approved":
        return Skip(reason="the review approves, so there is nothing to follow up")
    cause = PullRequestEvent(kind=FollowUpKind.REVIEW, number=pull.number, remark=review.body.strip())
    trigger = _follow_up(event, sender, cause)
    if sender.type == "Bot":
        return trigger
    return _mark_unproven(trigger, review.author_association, "start an agent by a review")


def _trigger_of_workflow_run(event: EventPayload, sender: User) -> Trigger | Skip:
    run = _demand(event.workflow_run, "workflow run")
    if run.conclusion not in FAILED_CONCLUSIONS or not run.head_branch:
        return Skip(reason=f"the workflow run ended as {run.conclusion or 'nothing'}, so there is nothing to follow up")
    if (head := run.head_repository) is None or head.full_name not in ("", event.repository.full_name):
        fork = head.full_name if head else "a fork that is gone"
        return Skip(reason=f"the workflow run was of {fork}, and only those of this repository are followed up")
    failed = PullRequestEvent(kind=FollowUpKind.CHECKS, failed_run=run.id, branch=run.head_branch, head=run.head_sha)
    return _follow_up(event, sender, failed)


def _follow_up(event: EventPayload, sender: User, cause: PullRequestEvent, *, agent: str = "") -> Trigger:
    return replace(_trigger(agent, event, sender, by_writer=False), pull_request=cause)


def _demand(part: T | None, name: str) -> T:
    """Return a part of the event that GitHub always sends."""
    if part is None:
        raise InputError(f"The event carries no {name}.", hint="Check the file that GITHUB_EVENT_PATH names.")
    return part


def _parse_reply(words: list[str]) -> ApprovalReply | None:
    """Parse a command as a reply to a run that waits for approval."""
    match words:
        case [command, "approve", *words] if command == COMMAND:
            return ApprovalReply(digest="".join(words[:1]))
        case [command, "reject", *why] if command == COMMAND:
            return ApprovalReply(digest=None, reason=" ".join(why))
        case _:
            return None


def _issue_of_dispatch(event: EventPayload, inputs: Inputs) -> int | None:
    """Return the number of the issue that the input `issue` names, or else the field `issue` of the workflow's form, so
    that a workflow need not repeat it."""
    try:
        named = inputs.issue or parse_issue((event.inputs or {}).get("issue"))
    except ValueError as exc:
        hint = "Start the workflow again, with the number alone."
        raise InputError(f"The field issue of the workflow's form: {exc}.", hint=hint) from None
    return named.number_in(event.repository.full_name, inputs.github_server_url) if named else None


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
        archived=event.repository.archived,
        by_writer=by_writer,
    )


def issue_of(payload: IssuePayload) -> Issue:
    """Convert the issue of a payload."""
    return Issue(
        number=payload.number,
        title=payload.title,
        body=payload.body or "",
        author=payload.user.login if payload.user else "",
        url=payload.html_url,
        labels=tuple(label.name for label in payload.labels),
    )


def _mark_unproven(trigger: Trigger, association: str, action: str) -> Trigger:
    """Return the trigger, marked as unproven if the event's `association` does not let its actor do the `action`."""
    if association in TRUSTED_ASSOCIATIONS:
        return trigger
    trusted = ", ".join(sorted(TRUSTED_ASSOCIATIONS))
    return replace(trigger, unproven=f"{trigger.actor} ({association}) may not {action}; that takes {trusted}")
