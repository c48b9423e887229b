"""What a resumed run is asked for, beside what it was asked for at first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stepflow.domain.run import Issue, StartedBy
from stepflow.run.request import RunRequest
from stepflow.run.resume import resumed_request
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from tests.report.plausible_run import STARTED

SHOWN = Issue(number=7, title="As the input says", body="Its text came from the input issue-text.")


@pytest.mark.parametrize("from_github", [True, False])
def test_only_an_issue_that_came_from_github_is_compared_with_what_is_there_now(from_github: bool) -> None:
    """The text of the input `issue-text` is no text of the issue: nobody has edited it."""
    by = StartedBy(actor="bob", from_github=from_github)
    started = replace(STARTED, subject=SHOWN, issue=7, started_by=by)
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False, issue_number=7)
    request = RunRequest(run_id="new", inputs=read_inputs({}), trigger=trigger, root=Path("/r"), folder=Path("/f"))
    resumed = resumed_request(started, request)
    assert resumed.trigger.issue == (SHOWN if from_github else None)
    assert resumed.run_id == started.run_id
