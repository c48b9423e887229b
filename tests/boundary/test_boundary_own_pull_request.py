"""The pull request of a run: what people write there stays, and what GitHub does not let or know yet is no dead end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import CommitsInfo
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.words import Outcome
from tests.boundary.agents import RecordingPusher, agent, apply, facts, plan_everything, result, settings, statuses
from tests.boundary.conftest import TOKEN
from tests.servers.github_api import GitHubServer
from tests.world import FastClock

BRANCH = "stepflow/fixer/issue-7"
INVALID = (
    '{"message": "Validation Failed", "errors": [{"resource": "PullRequest", "field": "head", "code": "invalid"}]}'
)


def run(writer: GitHubWriter, title: str, body: str, *, run_id: str = "run-1") -> list[Receipt]:
    """The receipts of a run that asks for this pull request."""
    plan = plan_effects(
        agent(),
        facts(run_id=run_id),
        result({"pull_request": {"title": title, "body": body}}),
        settings(),
        summary="All done.",
        commits=CommitsInfo(count=1),
    )
    applied, receipts = apply(plan, writer)
    assert applied.outcome is Outcome.COMPLETED, applied.reason
    return receipts


def pull_request(receipts: list[Receipt]) -> Receipt:
    return next(receipt for receipt in receipts if receipt.kind is EffectKind.OPEN_PULL_REQUEST)


@pytest.mark.parametrize(
    "edit",
    [
        lambda body: f"Please see also #3.\n\n{body}\n\nTested by hand on a Mac.",
        lambda body: f"Please see also #3.\r\n\r\n{body}\r\n\r\nTested by hand on a Mac.".replace("\n", "\r\n"),
        lambda body: f"{body}\n\nPlease see also #3. Tested by hand on a Mac.  \n",
    ],
    ids=["around", "around, on the page", "below"],
)
def test_what_people_write_beside_the_runs_part_stays_and_the_part_is_replaced(
    github: GitHubServer, writer: GitHubWriter, edit: Callable[[str], str]
) -> None:
    run(writer, "Parse", "It parses.")
    (pull,) = github.state.pulls
    pull["body"] = edit(pull["body"])
    for number in (2, 3):
        run(writer, f"Parse {number}", f"It parses {number} times.", run_id=f"run-{number}")
    assert pull["title"] == "Parse 3"
    assert pull["body"].count("Please see also #3.") == pull["body"].count("Tested by hand on a Mac.") == 1
    assert "It parses 3 times." in pull["body"]
    assert "It parses 2 times." not in pull["body"]
    assert "It parses.\n" not in pull["body"]
    assert pull["body"].count("Closes #7.") == 1


@pytest.mark.parametrize(
    "edit",
    [
        lambda body: body.replace("It parses.", "It parses, said Ann."),
        lambda _body: "It parses, said Ann.",
        lambda body: body.split("\n", 1)[1].replace("It parses.", "It parses, said Ann."),
    ],
    ids=["in the part", "in the place of all of it", "and without its first mark"],
)
def test_what_people_write_over_the_runs_part_stays_too(
    github: GitHubServer, writer: GitHubWriter, edit: Callable[[str], str]
) -> None:
    run(writer, "Parse", "It parses.")
    (pull,) = github.state.pulls
    pull["body"] = edit(pull["body"])
    for number in (2, 3):
        run(writer, "Parse", f"It parses {number} times.", run_id=f"run-{number}")
    assert pull["body"].count("It parses, said Ann.") == 1
    assert "It parses 3 times." in pull["body"]
    assert "It parses 2 times." not in pull["body"]


def test_a_title_that_a_person_changed_stays(github: GitHubServer, writer: GitHubWriter) -> None:
    run(writer, "Parse", "It parses.")
    (pull,) = github.state.pulls
    pull["title"] = "fix(parser): parse"
    for number in (2, 3):
        run(writer, f"Parse {number}", f"It parses {number} times.", run_id=f"run-{number}")
    assert pull["title"] == "fix(parser): parse"
    assert "It parses 3 times." in pull["body"]


@pytest.fixture
def patient(github: GitHubServer) -> Iterator[GitHubWriter]:
    """A writer that waits, on a clock that does not."""
    policy = RetryPolicy(clock=FastClock(), until=float("inf"))
    writer = GitHubWriter(api_url=github.api_url, repository="o/r", token=TOKEN, retry_policy=policy)
    yield writer
    writer.close()


def test_a_branch_that_github_does_not_know_yet_is_waited_for(github: GitHubServer, patient: GitHubWriter) -> None:
    github.fail("POST", "/pulls$", 422, times=3, content=INVALID)
    receipts = run(patient, "Parse", "It parses.")
    assert pull_request(receipts).detail == "opened #8"
    clock = patient.retry_policy.clock
    assert isinstance(clock, FastClock)
    assert 30 <= sum(clock.slept) <= 60


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("method", "status"),
    [("GET", 403), ("GET", 404), ("POST", 403), ("POST", 404), ("PATCH", 403), ("PATCH", 404)],
)
def test_without_the_permission_the_comment_leads_to_the_page_that_opens_it_by_hand(
    github: GitHubServer, writer: GitHubWriter, method: str, status: int
) -> None:
    if method == "PATCH":
        run(writer, "Parse", "It parses.")
    github.fail(method, r"/pulls(/8)?$", status, "Resource not accessible by integration", times=99)
    applied, receipts = apply(plan_everything(given={"server_url": github.web_url}), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert pull_request(receipts).status is EffectStatus.FORBIDDEN
    (comment,) = github.state.comments
    assert f"[open the pull request by hand]({github.web_url}/o/r/compare/main...{BRANCH}?expand=1)" in comment["body"]


@pytest.mark.parametrize("gone", ["moved", "deleted"])
@pytest.mark.parametrize("closes", ["merge", "now"])
def test_an_issue_that_is_gone_keeps_no_commit_from_its_branch_and_pull_request(
    github: GitHubServer, writer: GitHubWriter, gone: str, closes: str
) -> None:
    getattr(github.state, gone).add(7)
    plan = plan_effects(
        agent(close_by=closes),
        facts(),
        result({"closure_action": "close"}),
        settings(),
        summary="All done.",
        commits=CommitsInfo(count=1),
    )
    pusher = RecordingPusher()
    applied, receipts = apply(plan, writer, pusher)
    assert statuses(receipts) == "push_branch:applied open_pull_request:applied post_comment:failed"
    assert (applied.outcome, pusher.pushes) == (Outcome.BOUNDARY_FAILED, [BRANCH])
    assert applied.reason.startswith("`post_comment` failed:")
    assert receipts[0].branch == BRANCH
