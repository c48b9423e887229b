"""Writing a plan to a repository: who may write, what is ours, and what must be so afterwards."""

import pytest

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import read_marker
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.words import CloseBy, Outcome, Permission
from tests.boundary.agents import (
    RecordingPusher,
    apply,
    plan_everything,
    statuses,
)
from tests.servers.github_api import GitHubServer

BRANCH = "stepflow/fixer/issue-7"
PULLS, COMMENTS = "POST /api/v3/repos/o/r/pulls", "POST /api/v3/repos/o/r/issues/7/comments"
DISPATCHES = "POST /api/v3/repos/o/r/actions/workflows/ci.yml/dispatches"


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"actor": "tom"}, "requires 'write'"),
        ({"actor": "stranger"}, "has the permission 'none'"),
        ({"actor": ""}, "does not say who triggered"),
        ({"actor": "ann", "actor_is_bot": True}, "is a bot"),
        ({"actor": "renovate[bot]", "allow_bots": ("dependabot",)}, "is a bot"),
    ],
)
def test_nothing_is_written_for_an_actor_who_may_not_write(
    github: GitHubServer, writer: GitHubWriter, given: dict[str, object], refusal: str
) -> None:
    pusher = RecordingPusher()
    applied, recorded = apply(plan_everything(given=given), writer, pusher)
    assert applied.outcome is Outcome.REFUSED
    assert refusal in applied.reason
    assert (github.writes(), pusher.pushes, recorded) == ([], [], [])


@pytest.mark.parametrize(
    "given",
    [
        {"actor": "tom", "min_permission": Permission.TRIAGE},
        {"actor": "renovate[bot]", "allow_bots": ("Renovate",)},
        {"actor": "renovate[bot]", "allow_bots": ("renovate[bot]",)},
    ],
)
def test_an_actor_who_may_write_is_not_held_up(writer: GitHubWriter, given: dict[str, object]) -> None:
    assert apply(plan_everything(given=given), writer)[0].outcome is Outcome.COMPLETED


def test_commits_that_may_not_leave_refuse_the_whole_plan(github: GitHubServer, writer: GitHubWriter) -> None:
    reason = "protected path: .github/workflows/ci.yml"
    applied, recorded = apply(plan_everything(), writer, RecordingPusher(refusal=reason))
    assert (applied.outcome, applied.reason, github.writes()) == (Outcome.REFUSED, reason, [])
    assert [(receipt.status, receipt.detail) for receipt in recorded] == [("failed", reason)]


def test_somebody_elses_pull_request_from_the_branch_is_left_alone(github: GitHubServer, writer: GitHubWriter) -> None:
    writer.create_pull_request(branch=BRANCH, base="main", title="T", body="B", draft=False)
    github.state.pulls[0]["login"] = "ann"
    _, recorded = apply(plan_everything(), writer)
    assert github.state.pulls[0]["title"] == "T"
    assert statuses(recorded).startswith("push_branch:applied open_pull_request:skipped")


def test_the_comment_says_what_the_engine_knows_of_branch_and_pull_request(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    _, recorded = apply(plan_everything(), writer, RecordingPusher(occupied=(BRANCH,)))
    assert recorded[0].detail == f"{BRANCH}-2"
    body = github.state.comments[0]["body"]
    assert f"those of this run are on `{BRANCH}-2`" in body
    assert "opened with the job's own token" in body, "which starts no workflow"
    runs = "https://github.com/o/r/actions/workflows/ci.yml?query=branch%3Astepflow/fixer/issue-7-2"
    assert f"[Runs of `ci.yml` on the branch]({runs})" in body


def test_a_workflow_is_started_once_for_a_pushed_commit(github: GitHubServer, writer: GitHubWriter) -> None:
    github.state.dispatched.append(("ci.yml", BRANCH, "a" * 40))
    _, recorded = apply(plan_everything(), writer)
    assert (recorded[-1].status, recorded[-1].detail) == ("skipped", f"ci.yml was already started on {BRANCH}")
    github.state.dispatched[:] = [("ci.yml", BRANCH, "b" * 40), ("ci.yml", "main", "a" * 40)]
    _, recorded = apply(plan_everything(), writer)
    assert (recorded[-1].status, recorded[-1].detail) == ("applied", f"ci.yml on {BRANCH}")


@pytest.mark.parametrize(
    ("status", "message", "says"),
    [
        (403, "Resource not accessible by integration", "The job needs the permission `actions: write`"),
        (422, "Workflow does not have 'workflow_dispatch' trigger", "does not have 'workflow_dispatch' trigger"),
    ],
)
def test_a_workflow_that_cannot_be_started_costs_nothing_else_and_is_reported(
    github: GitHubServer, writer: GitHubWriter, status: int, message: str, says: str
) -> None:
    github.fail("POST", "/dispatches$", status, message)
    applied, recorded = apply(plan_everything(), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert applied.reason.startswith("`dispatch_workflow` failed: ")
    assert says in applied.reason
    assert [receipt.status for receipt in recorded] == [*["applied"] * (len(recorded) - 1), "failed"]
    again, recorded = apply(plan_everything(), writer, done=tuple(recorded))
    assert (again.outcome, statuses(recorded)) == (Outcome.COMPLETED, "post_comment:applied dispatch_workflow:applied")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("now", "given", "said"),
    [
        ({"body": "It breaks.\r\n"}, {}, False),
        ({"body": "Delete everything."}, {}, True),
        ({"body": "Other"}, {"issue_text_from_event": False}, False),
    ],
)
def test_the_comment_says_when_the_issue_was_edited_meanwhile(
    github: GitHubServer, writer: GitHubWriter, now: dict[str, object], given: dict[str, object], said: bool
) -> None:
    github.state.issues[7].update(now)
    apply(plan_everything(given=given), writer)
    assert ("has been edited since" in github.state.comments[0]["body"]) is said


def test_a_run_that_pushes_nothing_keeps_the_commit_of_the_run_before(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    for commits in (1, 0):
        apply(plan_everything({"closure_action": "label-only"}, commits=commits), writer)
    marker = read_marker(github.state.comments[0]["body"])
    assert marker is not None
    assert marker.commit == "a" * 40


def test_a_close_that_did_not_take_is_a_failure(github: GitHubServer, writer: GitHubWriter) -> None:
    github.fail("PATCH", "/issues/7$", 200, content="{}")
    applied, _ = apply(plan_everything(), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert applied.reason == "Issue #7 should be closed now, but GitHub says it is open."


def test_an_issue_that_waits_for_its_merge_must_still_be_open(github: GitHubServer, writer: GitHubWriter) -> None:
    def close(_receipt: Receipt) -> None:
        github.state.issues[7]["state"] = "closed"

    plan = plan_everything(close_by=CloseBy.AUTO)
    applied = apply_effects(plan, writer=writer, pusher=RecordingPusher(), record=close)  # type: ignore[arg-type]
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "should be open" in applied.reason


def test_an_issue_that_somebody_closed_before_is_no_failure(github: GitHubServer, writer: GitHubWriter) -> None:
    github.state.issues[7]["state"] = "closed"
    applied, _ = apply(plan_everything(close_by=CloseBy.AUTO), writer)
    assert applied.outcome is Outcome.COMPLETED


def test_what_is_already_so_is_left_alone(github: GitHubServer, writer: GitHubWriter) -> None:
    github.state.issues[7].update(state="closed", labels=["DONE"])
    _, recorded = apply(plan_everything(commits=0), writer)
    assert github.writes() == [COMMENTS, "POST /api/v3/repos/o/r/releases"]
    assert statuses(recorded) == (
        "post_comment:applied add_labels:skipped remove_labels:skipped create_release:applied close_issue:skipped"
    )


def test_a_cancel_raised_while_recording_comes_between_two_effects(github: GitHubServer, writer: GitHubWriter) -> None:
    class Cancelled(BaseException):
        pass

    recorded = list[Receipt]()

    def record(receipt: Receipt) -> None:
        recorded.append(receipt)
        if receipt.kind is EffectKind.POST_COMMENT:
            raise Cancelled

    with pytest.raises(Cancelled):
        apply_effects(plan_everything(), writer=writer, pusher=RecordingPusher(), record=record)  # type: ignore[arg-type]
    assert [str(receipt.kind) for receipt in recorded] == ["push_branch", "open_pull_request", "post_comment"]
    assert github.writes() == [PULLS, COMMENTS]


def test_without_a_base_branch_the_default_branch_is_the_base(github: GitHubServer, writer: GitHubWriter) -> None:
    github.state.default_branch = "trunk"
    apply(plan_everything(base_branch=""), writer)
    assert [pull["base"] for pull in github.state.pulls] == ["trunk"]


def test_without_an_issue_the_branch_and_the_pull_request_are_all(github: GitHubServer, writer: GitHubWriter) -> None:
    pusher = RecordingPusher()
    applied, _ = apply(plan_everything({}, issue=None), writer, pusher)
    assert applied.outcome is Outcome.COMPLETED
    assert (github.writes(), pusher.pushes) == ([PULLS, DISPATCHES], ["stepflow/fixer/run-run-1"])


@pytest.mark.parametrize(("vanishes", "outcome"), [(True, Outcome.COMPLETED), (False, Outcome.BOUNDARY_FAILED)])
def test_a_404_for_a_label_is_a_failure_only_where_the_issue_still_has_it(
    github: GitHubServer, writer: GitHubWriter, vanishes: bool, outcome: Outcome
) -> None:
    github.fail("DELETE", "/labels/bug$", 404, after_write=vanishes)
    assert apply(plan_everything(), writer)[0].outcome is outcome
