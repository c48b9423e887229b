"""Plans written over the wire: the same event twice, resumed anywhere, with GitHub failing in between."""

import pytest

from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import read_marker
from stepflow.boundary.settings import Plan
from stepflow.domain.effect import EffectKind
from stepflow.domain.words import Outcome
from tests.boundary.agents import RecordingPusher, apply, plan_everything, statuses
from tests.servers.github_api import GitHubServer

#: Only a run on a pull request answers threads or submits a review.
ON_PULL_REQUESTS = (EffectKind.ANSWER_THREADS, EffectKind.SUBMIT_REVIEW)
KINDS = [kind for kind in EffectKind if kind not in ON_PULL_REQUESTS]
BRANCH = "stepflow/fixer/issue-7"


def plan(github: GitHubServer, run_id: str = "run-1") -> Plan:
    return plan_everything(given={"server_url": github.web_url}, run_id=run_id)


def assert_written_once(github: GitHubServer) -> None:
    state = github.state
    written = (state.comments, state.pulls, state.releases, state.dispatched)
    assert [len(made) for made in written] == [1, 1, 1, 1]
    assert (state.issues[7]["state"], state.issues[7]["labels"]) == ("closed", ["done"])


def test_a_plan_is_written_in_order_with_a_receipt_each(github: GitHubServer, writer: GitHubWriter) -> None:
    applied, recorded = apply(plan(github), writer)
    assert applied.outcome is Outcome.COMPLETED
    assert_written_once(github)
    assert github.writes() == [
        "POST /api/v3/repos/o/r/pulls",
        "POST /api/v3/repos/o/r/issues/7/comments",
        "POST /api/v3/repos/o/r/issues/7/labels",
        "DELETE /api/v3/repos/o/r/issues/7/labels/agent%3Afixer",
        "DELETE /api/v3/repos/o/r/issues/7/labels/bug",
        "POST /api/v3/repos/o/r/releases",
        "PATCH /api/v3/repos/o/r/issues/7",
        "POST /api/v3/repos/o/r/actions/workflows/ci.yml/dispatches",
    ]
    assert all(request.token for request in github.requests)
    assert [receipt.kind for receipt in recorded] == KINDS
    assert recorded[0].detail == BRANCH
    opened, commented = (recorded[KINDS.index(kind)] for kind in list(WRITES)[:2])
    assert (opened.number, opened.url) == (8, f"{github.web_url}/o/r/pull/8")
    assert commented.url == f"{github.web_url}/o/r/issues/7#issuecomment-9000"


def test_the_same_event_twice_writes_everything_once(github: GitHubServer, writer: GitHubWriter) -> None:
    pusher = RecordingPusher()
    apply(plan(github), writer, pusher)
    again, _ = apply(plan(github, "run-2"), writer, pusher)
    assert again.outcome is Outcome.COMPLETED
    assert_written_once(github)
    assert pusher.pushes == [BRANCH, BRANCH]
    marker = read_marker(github.state.comments[0]["body"])
    assert marker is not None
    assert (marker.run, marker.agent, marker.issue, marker.commit) == ("run-2", "fixer", 7, "a" * 40)


@pytest.mark.sample(3)
@pytest.mark.parametrize("through", range(len(KINDS) + 1))
def test_a_run_resumed_after_any_receipt_writes_everything_once(
    github: GitHubServer, writer: GitHubWriter, through: int
) -> None:
    _, recorded = apply(plan(github), writer)
    written = len(github.writes())
    applied, again = apply(plan(github), writer, done=tuple(recorded[:through]))
    assert applied.outcome is Outcome.COMPLETED
    assert [receipt.kind for receipt in again] == KINDS[through:]
    updates = {"PATCH /api/v3/repos/o/r/pulls/8", "PATCH /api/v3/repos/o/r/issues/comments/9000"}
    assert set(github.writes()[written:]) <= updates
    assert_written_once(github)


WRITES = {
    EffectKind.OPEN_PULL_REQUEST: ("POST", "/pulls$"),
    EffectKind.POST_COMMENT: ("POST", "/comments$"),
    EffectKind.ADD_LABELS: ("POST", "/labels$"),
    EffectKind.REMOVE_LABELS: ("DELETE", "/labels/bug$"),
    EffectKind.CREATE_RELEASE: ("POST", "/releases$"),
    EffectKind.CLOSE_ISSUE: ("PATCH", "/issues/7$"),
    EffectKind.DISPATCH_WORKFLOW: ("POST", "/dispatches$"),
}


def test_a_forbidden_pull_request_is_explained_and_follows_after_the_setting_is_changed(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    github.fail("POST", "/pulls$", 403, "GitHub Actions is not permitted to create or approve pull requests.")
    applied, recorded = apply(plan(github), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert statuses(recorded) == (
        "push_branch:applied open_pull_request:forbidden post_comment:applied add_labels:applied "
        "remove_labels:applied dispatch_workflow:applied"
    )
    assert github.state.issues[7] == {**github.state.issues[7], "state": "open", "labels": ["done"]}
    setting = "Allow GitHub Actions to create and approve pull requests"
    assert setting in applied.reason
    body = github.state.comments[0]["body"]
    assert setting in body
    assert f"{github.web_url}/o/r/compare/main...{BRANCH}?expand=1" in body
    again, _ = apply(plan(github), writer, done=tuple(recorded))
    assert again.outcome is Outcome.COMPLETED
    assert_written_once(github)
    body = github.state.comments[0]["body"]
    assert "Pull request: #8" in body
    assert "did not allow" not in body


def test_where_drafts_do_not_exist_the_pull_request_is_opened_without(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    github.fail("POST", "/pulls$", 422, "Draft pull requests are not supported in this repository.")
    assert apply(plan(github), writer)[0].outcome is Outcome.COMPLETED
    bodies = [request.body for request in github.requests if request.method == "POST"]
    assert [body["draft"] for body in bodies if "draft" in body and "head" in body] == [True, False]
