"""Whether what asked for a run has been taken back before its job began: a comment was deleted, a label taken off, or
an assignment undone. Nothing is paid for then."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from stepflow.definition.builtin import PREFIX
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.words import StartEvent
from stepflow.errors import TakenBack
from stepflow.run.issue import refused_if_silent, repository_reader
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.trigger import COMMENT, starts_by_comment, starts_on_pull_request

if TYPE_CHECKING:
    from stepflow.boundary.repository_reader import RepositoryReader


def check_start(request: RunRequest, agent: AgentDefinition) -> None:
    """Raise `TakenBack` if what started the run is no longer there. Without `read-token` nobody is asked."""
    token, trigger = request.inputs.read_token, request.trigger
    if token is None or not request.repository or trigger.reply:
        return
    with closing(repository_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        for find_reason, again in (
            (_objection_to_comment, "Write the command again"),
            (_objection_to_label, "Put the label on again"),
            (_objection_to_assignment, "Assign the issue again"),
        ):
            if reason := find_reason(reader, request, agent):
                raise TakenBack(f"No run was started: {reason}.", hint=f"{again} if a run is wanted.")


def starts_agent(body: str, inputs: Inputs, agent: AgentDefinition) -> bool:
    """Return whether a comment on an issue starts this agent."""
    return (starts_by_comment(body, inputs) or "").removeprefix(PREFIX) == agent.name


def _objection_to_comment(reader: RepositoryReader, request: RunRequest, agent: AgentDefinition) -> str:
    trigger, inputs = request.trigger, request.inputs
    on_pull_request = trigger.pull_request.comment_id if trigger.pull_request else None
    number = on_pull_request or (trigger.start_id if trigger.start_kind == COMMENT else None)
    if number is None:
        return ""
    comment = reader.find_comment(number)
    if comment is None:
        return "the comment that asked for it has been deleted"
    if on_pull_request:
        starts = starts_on_pull_request(comment.body, inputs)
    else:
        starts = starts_agent(comment.body, inputs, agent)
    return "" if starts else f"the comment that asked for it was edited and no longer starts {agent.name}"


def _objection_to_label(reader: RepositoryReader, request: RunRequest, _agent: AgentDefinition) -> str:
    """Say that a person has taken the label off. A bot that does so, or our own account, has not changed its mind: some
    workflows take it off as their first step, and a run does as its last."""
    trigger = request.trigger
    label, number, issue = trigger.label, trigger.issue_number, trigger.issue
    if label is None or number is None or issue is None:
        return ""
    pull_request = trigger.pull_request
    if not _has(pull_request.labels if pull_request else issue.labels, label):
        return ""
    # A pull request to review has just been read.
    if _has(issue.labels if pull_request else reader.issue(number).labels, label):
        return ""
    last = reader.newest_event(number, ("labeled", "unlabeled"), label=label)
    by = last.author if last and last.event == "unlabeled" else ""
    if last and by and (last.is_by_bot or by == reader.viewer().login):
        return ""
    return f"{by or 'somebody'} has taken the label `{label}` off #{number}"


def _has(labels: tuple[str, ...], label: str) -> bool:
    return label.casefold() in map(str.casefold, labels)


def _objection_to_assignment(reader: RepositoryReader, request: RunRequest, _agent: AgentDefinition) -> str:
    trigger = request.trigger
    if trigger.start_kind != StartEvent.ISSUES_ASSIGNED or trigger.issue_number is None:
        return ""
    assignee = request.inputs.start.mention or ""
    last = reader.newest_event(trigger.issue_number, ("assigned", "unassigned"), assignee=assignee)
    if last is None or last.event == "assigned" or last.is_by_bot or last.author == reader.viewer().login:
        return ""
    return f"{last.author} has taken the assignment of {last.assignee} to #{trigger.issue_number} back"
