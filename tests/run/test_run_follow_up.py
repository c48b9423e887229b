"""How often a run may follow up what is said on a pull request, before GitHub is asked anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepflow.boundary.settings import Refused
from stepflow.domain.run import FollowUp
from stepflow.domain.words import FollowUpKind
from stepflow.errors import InputError
from stepflow.run.follow_up import read_feedback
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import PullRequestEvent, Trigger


@pytest.mark.parametrize(("number", "refused"), [(2, False), (3, True), (4, True)])
def test_the_round_after_the_last_is_refused(number: int, refused: bool) -> None:
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False, issue_number=7)
    inputs = read_inputs({"max_rounds": "2"})
    request = RunRequest(run_id="new", inputs=inputs, trigger=trigger, root=Path("/r"), folder=Path("/f"))
    kind, url = FollowUpKind.REVIEW, "https://github.com/o/r/pull/8"
    work = FollowUp(kind=kind, pull_request=8, url=url, branch="b", base="main", head="0" * 40, round=number)
    says = "2 follow-ups have pushed to pull request #8, and `max-rounds` allows no more" if refused else "read-token"
    with pytest.raises(Refused if refused else InputError, match=says):
        read_feedback(request, work, PullRequestEvent(kind=kind, number=8))
