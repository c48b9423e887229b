"""Plans written over the wire: the same event twice, resumed anywhere, with GitHub failing in between."""

from pathlib import Path

import pytest

from stepflow.boundary.apply import ApplyResult, apply_effects
from stepflow.boundary.comment import read_marker
from stepflow.boundary.github_api import GitHubWriter
from stepflow.boundary.plan import CommitsInfo, Plan, plan_effects
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.json import JsonObject
from stepflow.domain.words import CloseBy, Outcome
from tests.boundary.agents import agent, facts, result, settings
from tests.boundary.conftest import TOKEN
from tests.boundary.recording_writer import RecordingPusher
from tests.servers.github_api import GitHubServer

EVERYTHING: JsonObject = {
    "closure_action": "label-and-close",
    "issue": {"labels": {"add": ["done"], "remove": ["bug"]}},
    "release": {"tag": "v1"},
}
ALLOWED = ("comment", "labels", "close", "pull_request", "release")


def plan(github: GitHubServer, run_id: str = "run-1") -> Plan:
    return plan_effects(
        agent(allowed_effects=ALLOWED, close_by=CloseBy.NOW),
        facts(run_id=run_id),
        result(EVERYTHING),
        settings(server_url=github.web_url),
        summary="All done.",
        commits=CommitsInfo(count=1),
    )


def apply(plan: Plan, writer: GitHubWriter, done: tuple[Receipt, ...] = ()) -> tuple[ApplyResult, list[Receipt]]:
    recorded: list[Receipt] = []
    applied = apply_effects(plan, writer=writer, pusher=RecordingPusher(), record=recorded.append, done=done)
    return applied, recorded


def assert_written_once(github: GitHubServer) -> None:
    state = github.state
    assert [len(made) for made in (state.comments, state.pulls, state.releases)] == [1, 1, 1]
    assert (state.issues[7]["state"], state.issues[7]["labels"]) == ("closed", ["done"])


def test_a_plan_is_written_in_order(github: GitHubServer, writer: GitHubWriter) -> None:
    applied, _ = apply(plan(github), writer)
    assert (applied.outcome, applied.issue_state) == (Outcome.COMPLETED, "closed")
    assert_written_once(github)
    assert github.writes() == [
        "POST /api/v3/repos/o/r/pulls",
        "POST /api/v3/repos/o/r/issues/7/comments",
        "POST /api/v3/repos/o/r/issues/7/labels",
        "DELETE /api/v3/repos/o/r/issues/7/labels/agent%3Afixer",
        "DELETE /api/v3/repos/o/r/issues/7/labels/bug",
        "POST /api/v3/repos/o/r/releases",
        "PATCH /api/v3/repos/o/r/issues/7",
    ]
    assert all(request.token for request in github.requests)


def test_the_same_event_twice_writes_everything_once(github: GitHubServer, writer: GitHubWriter) -> None:
    apply(plan(github), writer)
    again, _ = apply(plan(github, "run-2"), writer)
    assert again.outcome is Outcome.COMPLETED
    assert_written_once(github)
    marker = read_marker(github.state.comments[0]["body"])
    assert marker is not None
    assert marker.run == "run-2"


@pytest.mark.parametrize("through", range(8))
def test_a_run_resumed_after_any_receipt_writes_everything_once(
    github: GitHubServer, writer: GitHubWriter, through: int
) -> None:
    _, recorded = apply(plan(github), writer)
    applied, again = apply(plan(github), writer, tuple(recorded[:through]))
    assert applied.outcome is Outcome.COMPLETED
    assert [receipt.kind for receipt in again] == list(EffectKind)[through:]
    assert_written_once(github)


WRITES = {
    EffectKind.OPEN_PULL_REQUEST: ("POST", "/pulls$"),
    EffectKind.POST_COMMENT: ("POST", "/comments$"),
    EffectKind.ADD_LABELS: ("POST", "/labels$"),
    EffectKind.REMOVE_LABELS: ("DELETE", "/labels/bug$"),
    EffectKind.CREATE_RELEASE: ("POST", "/releases$"),
    EffectKind.CLOSE_ISSUE: ("PATCH", "/issues/7$"),
}


@pytest.mark.parametrize("after_write", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("status", [0, 500], ids=["dropped", "500"])
@pytest.mark.parametrize("kind", WRITES)
def test_a_failure_at_any_write_is_told_once_and_mended_by_the_next_try(
    github: GitHubServer, writer: GitHubWriter, kind: EffectKind, status: int, after_write: bool
) -> None:
    method, path = WRITES[kind]
    github.fail(method, path, status, after_write=after_write)
    failed, recorded = apply(plan(github), writer)
    assert failed.outcome is Outcome.BOUNDARY_FAILED
    assert failed.reason.startswith(f"`{kind}` failed: ")
    resumed, _ = apply(plan(github), writer, tuple(recorded))
    assert resumed.outcome is Outcome.COMPLETED
    assert_written_once(github)


def test_a_forbidden_pull_request_over_the_wire(github: GitHubServer, writer: GitHubWriter) -> None:
    github.fail("POST", "/pulls$", 403, "GitHub Actions is not permitted to create or approve pull requests.")
    applied, recorded = apply(plan(github), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert github.state.issues[7] == {**github.state.issues[7], "state": "open", "labels": ["done"]}
    body = github.state.comments[0]["body"]
    assert "Allow GitHub Actions to create and approve pull requests" in body
    assert f"{github.web_url}/o/r/compare/main...stepflow/fixer/issue-7?expand=1" in body
    apply(plan(github), writer, tuple(recorded))
    assert_written_once(github)


def test_drafts_that_are_not_available_over_the_wire(github: GitHubServer, writer: GitHubWriter) -> None:
    github.fail("POST", "/pulls$", 422, "Draft pull requests are not supported in this repository.")
    assert apply(plan(github), writer)[0].outcome is Outcome.COMPLETED
    assert [
        request.body["draft"] for request in github.requests if request.path.endswith("/pulls") and request.body
    ] == [
        True,
        False,
    ]


def test_somebody_without_write_access_gets_nothing_written(github: GitHubServer, writer: GitHubWriter) -> None:
    for login in ("eve", "tom", "stranger"):
        refused = plan_effects(
            agent(), facts(), result(), settings(actor=login), summary="s", commits=CommitsInfo(count=1)
        )
        assert apply(refused, writer)[0].outcome is Outcome.REFUSED
    assert github.writes() == []


def test_no_request_ever_asks_for_the_user(github: GitHubServer, writer: GitHubWriter) -> None:
    apply(plan(github), writer)
    assert not any(request.path.endswith("/user") for request in github.requests)


def test_nothing_that_comes_back_holds_the_token(github: GitHubServer, tmp_path: Path) -> None:
    github.fail("GET", "/permission$", 500, f"boom {TOKEN}")
    writer = GitHubWriter(api_url=github.api_url, repository="o/r", token=TOKEN)
    applied, _ = apply(plan(github), writer)
    writer.close()
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert TOKEN not in f"{applied!r} {writer!r}"
