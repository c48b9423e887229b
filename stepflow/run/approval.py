"""The answer to a run that waits for approval: which run it is, and whether the answer counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.boundary.settings import Refused
from stepflow.domain.words import Permission
from stepflow.engine.approval import approval_digest, required_approver
from stepflow.run.resume import look_into

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition
    from stepflow.run.recorded import PreviousRun
    from stepflow.run.request import RunRequest


def waiting_request(request: RunRequest) -> RunRequest:
    """The request about the run in the folder, which waits for an answer. Raises `Refused` where none does."""
    previous, number = look_into(request.folder), request.trigger.issue_number
    if previous is None:
        raise Refused(
            f"Nothing was begun: the folder of the run that waits for approval is gone; {request.folder} holds none.",
            hint="Let the workflow bring it back and name it in the input run-folder, or start the agent again.",
        )
    problem = previous.problem
    if not problem and not previous.waits:
        problem = "it does not wait for approval"
    if not problem and previous.started.issue != number:
        problem = f"it is not about issue #{number}"
    if problem:
        raise Refused(
            f"Nothing was begun: the run in {request.folder} cannot be answered: {problem}.",
            hint="Start the agent again.",
        )
    started = previous.started
    return replace(request, run_id=started.run_id, trigger=replace(request.trigger, agent=started.agent))


def check_reply(request: RunRequest, agent: AgentDefinition, waiting: PreviousRun) -> Permission:
    """The permission that the answer needs. Raises `Refused` for an approval of something else than what the run would
    go on with."""
    reply, started = request.trigger.reply, waiting.started
    if reply is None:
        return Permission.NONE
    approver = required_approver(agent, waiting.state)
    if reply.digest is None:
        return approver
    digest = approval_digest(
        waiting.state.step_id,
        definition=agent.digest,
        base_commit=started.base_commit,
        issue_text=started.context_text,
        handoff=waiting.state.handoff,
    )
    if reply.digest.lower() != digest:
        raise Refused(
            f"Nothing was begun: {reply.digest[:100]} is not the digest of the plan that waits for approval.",
            hint="Read the plan where the run shows it, and copy the digest from there.",
        )
    return approver
