"""GitHub takes 65,536 characters: whatever is too long gives way to what the engine must say (boundary.md)."""

from __future__ import annotations

import pytest

from stepflow.boundary.apply import ApplyResult, apply_effects
from stepflow.boundary.failure import report_failure
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import CommitsInfo
from stepflow.domain.json import JsonObject
from stepflow.domain.words import OnFailure, Outcome
from tests.boundary.agents import RecordingPusher, agent, facts, failed_run, result, settings
from tests.servers.github_api import GitHubServer

HUGE = "word @bob https://evil.com/x fixes #5 " * 2_000
LONGEST = 65_536
NAMES = tuple(f"{number:03}-{'n' * 240}.py" for number in range(300))
WARNINGS = tuple(f"validator {number} changed {'w' * 400}" for number in range(40))
BRANCH = "stepflow/fixer/issue-7"


def run(
    github: GitHubServer, writer: GitHubWriter, answer: JsonObject, *, run_id: str, summary: str = "Done."
) -> ApplyResult:
    plan = plan_effects(
        agent(),
        facts(run_id=run_id),
        result(answer),
        settings(server_url=github.web_url),
        summary=summary,
        removed=f"Hidden pieces did not reach the model: {HUGE}",
        commits=CommitsInfo(count=1, uncommitted=NAMES, warnings=WARNINGS),
    )
    return apply_effects(plan, writer=writer, pusher=RecordingPusher(occupied=(BRANCH,)), record=lambda _: None)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ({"comment": f"```\n{HUGE}", "pull_request": {"title": HUGE, "body": f"<details>\n\n{HUGE}"}}, "Done."),
        ({"comment": "short"}, HUGE),
        ({}, HUGE),
    ],
    ids=["huge open fences and folds", "all but the comment", "a huge summary"],
)
def test_everything_the_engine_says_fits_below_a_text_of_any_length(
    github: GitHubServer, writer: GitHubWriter, answer: JsonObject, summary: str
) -> None:
    for run_id in ("run-1", "run-2"):
        github.state.issues[7]["body"] = f"Edited before {run_id}. {HUGE}"
        applied = run(github, writer, answer, run_id=run_id, summary=summary)
        assert (applied.outcome, applied.reason) == (Outcome.COMPLETED, "")
    (comment,), (pull,) = github.state.comments, github.state.pulls
    assert max(len(comment["body"]), len(pull["body"])) <= LONGEST
    assert comment["body"].splitlines()[-1].startswith("<!-- stepflow run=run-2 agent=fixer issue=7 commit=aaaa")
    for part in ("Changed but not committed", "⚠️ validator 0 ", "those of this run are on", "Pull request: #"):
        assert part in comment["body"]
    assert "has been edited since" in comment["body"]
    assert ("Hidden pieces did not reach" in comment["body"]) is ("comment" in answer)
    assert "Closes #7." in pull["body"]
    assert "⚠️ validator 0 " in pull["body"]


@pytest.mark.whole
def test_a_failure_of_any_length_says_where_its_work_is(github: GitHubServer, writer: GitHubWriter) -> None:
    for outcome in (Outcome.VALIDATION_FAILED, Outcome.BOUNDARY_FAILED, Outcome.BOUNDARY_FAILED):
        given = {"server_url": github.web_url, "on_failure": OnFailure.PUSH_BRANCH}
        failure = report_failure(failed_run(outcome, HUGE, given=given), writer, pusher=RecordingPusher())
        assert failure is not None
        assert failure.detail == "The run's comment says what happened."
    (comment,) = github.state.comments
    assert len(comment["body"]) <= LONGEST
    assert f"The unfinished work is kept on the branch `{BRANCH}`." in comment["body"]
