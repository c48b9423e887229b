"""A run that did not complete reports to its issue once, and touches nothing else."""

from dataclasses import replace

import pytest

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.failure import report_failure
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import read_marker
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import CommitsInfo
from stepflow.domain.agent.agent_settings import CommentSettings
from stepflow.domain.event import FailureReported
from stepflow.domain.run import Issue
from stepflow.domain.words import OnFailure, Outcome
from tests.boundary.agents import ISSUE, RecordingPusher, agent, facts, failed_run, result, settings
from tests.servers.github_api import GitHubServer


def report(
    writer: GitHubWriter,
    *,
    outcome: Outcome = Outcome.VALIDATION_FAILED,
    text: str = "It failed.",
    pusher: RecordingPusher | None = None,
    issue: Issue | None = ISSUE,
    given: dict[str, object] | None = None,
    **github: object,
) -> FailureReported | None:
    failed = failed_run(outcome, text, issue=issue, given=given, github=github)
    return report_failure(failed, writer, pusher=pusher)


PUSHES = {"on_failure": OnFailure.PUSH_BRANCH}
SILENT = [Outcome.COMPLETED, Outcome.NO_CHANGES, Outcome.SKIPPED, Outcome.CANCELLED]


@pytest.mark.sample(5)
@pytest.mark.parametrize("outcome", [each for each in Outcome if each not in SILENT])
def test_a_failed_run_writes_its_one_comment_and_nothing_else(
    github: GitHubServer, writer: GitHubWriter, outcome: Outcome
) -> None:
    failure = report(writer, outcome=outcome)
    assert failure is not None
    assert failure.url.endswith("/o/r/issues/7#issuecomment-9000")
    assert github.writes() == ["POST /api/v3/repos/o/r/issues/7/comments"]
    assert github.state.comments[0]["body"].startswith("<!-- stepflow -->\nIt failed.\n\n<!-- stepflow run=run-1")


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_run_that_waits_asks_in_its_comment_whatever_a_failure_would_leave_behind(
    github: GitHubServer, writer: GitHubWriter, on_failure: OnFailure
) -> None:
    waits, pusher = Outcome.AWAITING_APPROVAL, RecordingPusher()
    assert report(writer, outcome=waits, pusher=pusher, given={"on_failure": on_failure}) is not None
    assert github.writes() == ["POST /api/v3/repos/o/r/issues/7/comments"]


@pytest.mark.parametrize("outcome", SILENT)
def test_some_outcomes_are_not_reported(github: GitHubServer, writer: GitHubWriter, outcome: Outcome) -> None:
    assert report(writer, outcome=outcome, pusher=RecordingPusher(), given=PUSHES) is None
    assert github.writes() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"given": {"on_failure": OnFailure.NOTHING}},
        {"issue": None},
        {"comment": CommentSettings(enabled=False)},
        {"enabled": False},
        {"allowed_effects": ("labels", "close")},
        {"pusher": RecordingPusher(), "given": {"on_failure": OnFailure.NOTHING}},
    ],
)
def test_a_report_can_be_switched_off(github: GitHubServer, writer: GitHubWriter, changes: dict[str, object]) -> None:
    assert report(writer, **changes) is None  # type: ignore[arg-type]
    assert github.writes() == []


def test_the_second_failure_updates_the_first_ones_comment(github: GitHubServer, writer: GitHubWriter) -> None:
    report(writer, text="First.")
    report(writer, text="Second.")
    assert [comment["body"].splitlines()[1] for comment in github.state.comments] == ["Second."]


def test_the_text_is_filtered(github: GitHubServer, writer: GitHubWriter) -> None:
    report(writer, text="@bob ghs_secretsecret")
    assert github.state.comments[0]["body"].startswith("<!-- stepflow -->\n@\u200bbob ***")


def test_a_failure_of_the_boundary_is_added_to_what_the_run_has_just_written(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    github.fail("POST", "/pulls$", 403, "not permitted")
    plan = plan_effects(agent(), facts(), result(), settings(), summary="Done.", commits=CommitsInfo(count=1))
    apply_effects(plan, writer=writer, pusher=RecordingPusher(), record=lambda _: None)
    report(writer, outcome=Outcome.BOUNDARY_FAILED, text="The boundary failed.")
    assert len(github.state.comments) == 1
    body = github.state.comments[0]["body"]
    assert body.index("Allow GitHub Actions") < body.index("The boundary failed.")
    marker = read_marker(body)
    assert marker is not None
    assert (marker.commit, body.count("<!-- stepflow run=")) == ("a" * 40, 1)


def test_unfinished_work_goes_to_a_branch_on_request(github: GitHubServer, writer: GitHubWriter) -> None:
    pusher = RecordingPusher("c" * 40)
    failure = report(writer, pusher=pusher, given=PUSHES)
    assert failure is not None
    assert (failure.branch, failure.commit) == ("stepflow/fixer/issue-7", "c" * 40)
    assert "kept on the branch `stepflow/fixer/issue-7`" in github.state.comments[0]["body"]
    marker = read_marker(github.state.comments[0]["body"])
    assert marker is not None
    assert marker.commit == "c" * 40


def test_work_that_may_not_leave_is_said_to_stay(github: GitHubServer, writer: GitHubWriter) -> None:
    failure = report(writer, pusher=RecordingPusher(refusal="protected path: action.yml"), given=PUSHES)
    assert failure is not None
    assert failure.branch == ""
    assert "could not be kept on a branch: protected path: action.yml" in github.state.comments[0]["body"]


def test_unfinished_work_of_a_run_without_an_issue_goes_to_a_branch_too(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    failure = report(writer, issue=None, pusher=RecordingPusher(), given=PUSHES)
    assert failure is not None
    assert (failure.branch, failure.url, github.writes()) == ("stepflow/fixer/run-run-1", "", [])


def test_somebody_without_write_access_gets_no_comment_written_for_failing(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    pusher = RecordingPusher()
    failure = report(writer, pusher=pusher, given={"actor": "eve", **PUSHES})
    assert failure is not None
    assert "has the permission 'read'" in failure.detail
    assert (github.writes(), pusher.pushes) == ([], [])


def test_a_report_that_cannot_be_written_is_said_and_raises_nothing(github: GitHubServer, writer: GitHubWriter) -> None:
    github.fail("POST", "/comments$", 500)
    failure = report(writer)
    assert failure is not None
    assert failure.detail.startswith(
        "The failure could not be reported on the issue: GitHub did not comment on the issue in o/r"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("status", "message", "says", "never"),
    [
        (410, "Issues are disabled for this repo", "Issues are turned off", "deleted"),
        (410, "This issue was deleted", "was deleted", "turned off"),
        (403, "Repository was archived so is read-only.", "is archived", "contents: write"),
        (403, "The title archived is locked: issue is locked", "lacks a permission", "unlock it"),
        (403, "Unable to create comment because issue is locked.", "unlock it", "contents: write"),
    ],
)
def test_what_github_said_is_not_told_as_something_else(
    github: GitHubServer, writer: GitHubWriter, status: int, message: str, says: str, never: str
) -> None:
    github.fail("POST", "/comments$", status, message)
    failure = report(writer)
    assert failure is not None
    assert says in failure.detail
    assert never not in failure.detail
    assert message in failure.detail
    assert "create_comment" not in failure.detail


def test_what_is_added_to_the_runs_comment_repeats_nothing_of_it(github: GitHubServer, writer: GitHubWriter) -> None:
    posted = failed_run(Outcome.AWAITING_APPROVAL, "Changes, checks, steps and cost.")
    report_failure(posted, writer)
    below = replace(
        failed_run(Outcome.BOUNDARY_FAILED, "Changes, checks, steps and cost."), text_below="It could not be written."
    )
    report_failure(below, writer)
    (comment,) = github.state.comments
    assert comment["body"].count("Changes, checks, steps and cost.") == 1
    assert "It could not be written." in comment["body"]
