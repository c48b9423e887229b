"""`stepflow resume DIR`: a run that was stopped, or waits for approval, goes on with the options that it began with."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.cli.options import SECRETS
from stepflow.cli.run import carry_out, request_of
from stepflow.errors import InputError
from stepflow.run.inputs import Inputs, in_dashes, read_inputs
from stepflow.run.resume import look_into, waiting_request
from stepflow.run.trigger import ApprovalReply, Trigger
from stepflow.sandbox.environment import user_programs

if TYPE_CHECKING:
    import argparse

    from stepflow.domain.event import RunStarted
    from stepflow.run.request import RunRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `resume`."""
    parser.add_argument("folder", metavar="DIR", help="the run folder of the run")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", metavar="DIGEST", help="approve the plan with this digest, and go on")
    answer.add_argument("--reject", metavar="WHY", help="reject the plan, which ends the run")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object on stdout")


def execute(arguments: argparse.Namespace) -> int:
    """Go on with the run and say how it ended."""
    folder = Path(arguments.folder).resolve()
    started = _started(folder)
    request = replace(request_from(folder, started), programs=user_programs(arguments.path, os.environ))
    if reply := _reply(arguments):
        # Who answers is not who started the run.
        actor = os.environ.get("GITHUB_ACTOR", "")
        trigger = replace(request.trigger, reply=reply, actor=actor, actor_is_bot=False)
        request = waiting_request(replace(request, trigger=trigger))
    return carry_out(request, as_json=arguments.json, in_place=started.in_place)


def _reply(arguments: argparse.Namespace) -> ApprovalReply | None:
    """The answer to a run that waits for approval."""
    if arguments.approve is None and arguments.reject is None:
        return None
    return ApprovalReply(digest=arguments.approve, reason=arguments.reject or "")


def _started(folder: Path) -> RunStarted:
    """How the run in the folder began."""
    previous_run = look_into(folder)
    if previous_run is None:
        raise InputError(f"There is no run in {folder}: it holds no journal.jsonl.", hint="Name a run folder.")
    if not previous_run.events:
        raise InputError(
            f"The run in {folder} cannot go on: {previous_run.problem}.", hint="Start a new one with `stepflow run`."
        )
    return previous_run.started


def request_from(folder: Path, started: RunStarted) -> RunRequest:
    """The run asked for again."""
    root = Path(started.source or started.root)
    if not root.is_dir():
        raise InputError(
            f"The repository of the run, {root}, is not there.",
            hint=f"Where it is now, use `stepflow run {started.agent} --repo DIR --resume {folder}`.",
        )
    secrets = {name: os.environ.get(variable, "") for name, variable in SECRETS.items()}
    known = {in_dashes(name) for name in Inputs.model_fields}
    options = {name: value for name, value in started.options.items() if value is not None and name in known}
    given = {**options, **secrets, "run-folder": "", "resume": str(folder)}
    return replace(
        request_of(read_inputs(given), root, trigger=_trigger(started)),
        repository=started.repository,
    )


def _trigger(started: RunStarted) -> Trigger:
    by = started.started_by
    return Trigger(
        agent=started.agent,
        actor=os.environ.get("GITHUB_ACTOR") or by.actor,
        actor_is_bot=by.actor_is_bot,
        issue_number=started.issue,
        label=by.label,
        default_branch=by.default_branch,
        private=by.private,
        by_writer=True,
    )
