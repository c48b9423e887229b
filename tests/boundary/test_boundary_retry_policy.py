"""What passes by itself is waited out: how long, how often, and never a second write of what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stepflow.boundary.github_failures import RetryPolicy, WriteFailed
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.words import Outcome
from tests.boundary.agents import apply, plan_everything
from tests.boundary.conftest import TOKEN
from tests.boundary.test_boundary_wire import WRITES, assert_written_once
from tests.servers.github_api import GitHubServer

NOW = 1_700_000_000.0
#: What a second request would make again.
CREATED = (
    EffectKind.OPEN_PULL_REQUEST,
    EffectKind.POST_COMMENT,
    EffectKind.CREATE_RELEASE,
    EffectKind.DISPATCH_WORKFLOW,
)


class StillClock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return NOW + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Waiting:
    """A retry_policy with what it noted, and a writer that has it."""

    def __init__(self, github: GitHubServer, deadline: float | None = None) -> None:
        self.clock, self.notes = StillClock(), []  # type: ignore[var-annotated]
        self.retry_policy = RetryPolicy.of(self.clock, deadline, self.notes.append)
        self.writer = GitHubWriter(
            api_url=github.api_url, repository="o/r", token=TOKEN, retry_policy=self.retry_policy
        )


@pytest.fixture
def waiting(github: GitHubServer) -> Iterator[Waiting]:
    made = Waiting(github)
    yield made
    made.writer.close()


def written(github: GitHubServer, waiting: Waiting) -> Outcome:
    """A plan with every effect, applied."""
    plan = plan_everything(given={"server_url": github.web_url})
    applied, recorded = apply(plan, waiting.writer)
    assert {receipt.status for receipt in recorded} == {EffectStatus.APPLIED}
    return applied.outcome


@pytest.mark.sample(5)
@pytest.mark.parametrize("after_write", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("status", [0, 502], ids=["dropped", "502"])
@pytest.mark.parametrize("kind", WRITES)
def test_a_write_whose_answer_was_lost_is_looked_for_before_it_is_written_again(
    github: GitHubServer, waiting: Waiting, kind: str, status: int, after_write: bool
) -> None:
    method, path = WRITES[kind]  # type: ignore[index]
    github.fail(method, path, status, after_write=after_write)
    assert written(github, waiting) is Outcome.COMPLETED
    assert_written_once(github)
    assert waiting.clock.slept == [5.0]
    sent = [request for request in github.requests if request.method == method and request.path.endswith(path[:-1])]
    assert len(sent) == (1 if after_write and kind in CREATED else 2)


def test_a_branch_that_github_does_not_know_yet_is_waited_for(github: GitHubServer, waiting: Waiting) -> None:
    github.fail("POST", "/dispatches$", 422, "No ref found for: stepflow/fixer/issue-7")
    assert written(github, waiting) is Outcome.COMPLETED
    assert_written_once(github)
    assert waiting.clock.slept == [5.0]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("headers", "message", "slept"),
    [
        ({"retry-after": "37"}, "You have exceeded a secondary rate limit", [37.0]),
        ({"retry-after": "0"}, "whatever", [1.0]),
        ({}, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.", [60.0]),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 90:.0f}"}, "API rate limit exceeded", [91.0]),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW - 90:.0f}"}, "API rate limit exceeded", [1.0]),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "slow down", [60.0]),
    ],
)
@pytest.mark.parametrize(("status", "request_"), [(403, ("GET", "/issues/7$")), (429, ("POST", "/comments$"))])
def test_a_rate_limit_is_waited_out_for_as_long_as_github_says(
    github: GitHubServer,
    waiting: Waiting,
    request_: tuple[str, str],
    status: int,
    headers: dict[str, str],
    message: str,
    slept: list[float],
) -> None:
    github.fail(*request_, status, message, headers=headers)
    assert written(github, waiting) is Outcome.COMPLETED
    assert waiting.clock.slept == slept
    assert len(waiting.notes) == 1
    assert f"waiting {slept[0]:.0f} s before try 2 of 5" in waiting.notes[0]
    assert_written_once(github)


def test_five_tries_are_enough_also_inside_a_look(github: GitHubServer, waiting: Waiting) -> None:
    github.fail("POST", "/comments$", 500)
    github.fail("GET", "/comments", 500, times=99)
    with pytest.raises(WriteFailed, match="the issue's comments") as caught:
        waiting.retry_policy.write(
            lambda: waiting.writer.create_comment(7, "x"), find=lambda: waiting.writer.comments(7)[0]
        )
    assert waiting.clock.slept == [5.0, 5.0, 10.0, 20.0, 40.0]
    assert "githubstatus.com" in caught.value.hint


@pytest.mark.parametrize(
    ("deadline", "headers"),
    [
        (NOW + 600, {"retry-after": "601"}),
        (None, {"retry-after": "901"}),
        (NOW + 9000, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 3000:.0f}"}),
        (NOW - 60, {"retry-after": "121"}),
    ],
)
def test_a_limit_beyond_reason_or_deadline_is_not_waited_out_and_says_when(
    github: GitHubServer, deadline: float | None, headers: dict[str, str]
) -> None:
    waiting = Waiting(github, deadline)
    github.fail("GET", "/issues/7$", 403, "API rate limit exceeded", headers=headers)
    with pytest.raises(WriteFailed) as caught:
        waiting.writer.issue(7)
    assert waiting.clock.slept == []
    assert caught.value.hint.startswith("The limit is lifted at 2023-11-1")
    assert "UTC, too late to wait for: start the run again then" in caught.value.hint
    waiting.writer.close()


@pytest.mark.parametrize("status", [401, 403, 404, 410, 422])
def test_what_does_not_pass_is_tried_once(github: GitHubServer, waiting: Waiting, status: int) -> None:
    github.fail("GET", ".*", status, times=99)
    github.fail("POST", ".*", status, times=99)
    for call in (lambda: waiting.writer.issue(7), lambda: waiting.writer.create_comment(7, "x")):
        with pytest.raises(WriteFailed) as caught:
            call()
        assert caught.value.hint
    assert (len(github.requests), waiting.clock.slept) == (2, [])


HTML = "<!DOCTYPE html><html><body>Bad gateway</body></html>"
ANSWERS: dict[str, dict[str, object]] = {
    "HTML 502": {"status": 502, "content": HTML},
    "HTML 200": {"status": 200, "content": HTML},
    "202": {"status": 202},
    "half a document": {"status": 200, "content": '{"number": 7, "tit'},
    "a list": {"status": 500, "content": "[1]"},
    "an empty list": {"status": 200, "content": "[]"},
    "a word": {"status": 200, "content": '"hello"'},
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_read_whose_answer_is_not_githubs_is_repeated(github: GitHubServer, waiting: Waiting, answer: str) -> None:
    github.fail("GET", "/issues/7$", **ANSWERS[answer])  # type: ignore[arg-type]
    assert waiting.writer.issue(7).title == "Fix the parser"
    assert waiting.clock.slept == [5.0]
    assert HTML not in waiting.notes[0]


def test_a_redirected_write_is_a_failure(github: GitHubServer, waiting: Waiting) -> None:
    github.fail("POST", "/comments$", 307, headers={"Location": f"{github.api_url}/repos/x/y/issues/7/comments"})
    with pytest.raises(WriteFailed, match="answered 307: moved to") as caught:
        waiting.writer.create_comment(7, "x")
    assert "nothing is written there" in caught.value.hint
    assert github.writes() == ["POST /api/v3/repos/o/r/issues/7/comments"]


def test_the_requests_of_a_renamed_repository_go_to_its_new_address(github: GitHubServer, waiting: Waiting) -> None:
    github.state.renamed_to = "o/new"
    assert written(github, waiting) is Outcome.COMPLETED
    assert_written_once(github)
    assert waiting.writer.full_name() == "o/new"
    assert sum("/repos/o/r" in request.path for request in github.requests) == 2


def test_a_transferred_issue_is_not_followed_into_another_repository(github: GitHubServer, waiting: Waiting) -> None:
    github.state.moved.add(7)
    calls: list[Callable[[], object]] = [
        lambda: waiting.writer.issue(7),
        lambda: waiting.writer.close_issue(7),
        lambda: waiting.writer.create_comment(7, "x"),
    ]
    for call in calls:
        with pytest.raises(WriteFailed):
            call()
    assert not any("/repositories/" in request.path for request in github.requests)


def test_no_request_leaves_for_another_server(github: GitHubServer, waiting: Waiting) -> None:
    with GitHubServer(github.state, "other") as other:
        github.state.renamed_to = "o/new"
        for path in ("/issues/7$", "/o/r$"):
            github.fail("GET", path, 301, headers={"Location": f"{other.api_url}/repositories/1"})
        with pytest.raises(WriteFailed, match="answered 301"):
            waiting.writer.issue(7)
        assert other.requests == []


def test_a_pull_request_that_appeared_after_the_look_is_ours(github: GitHubServer, waiting: Waiting) -> None:
    opened = waiting.writer.create_pull_request(
        branch="stepflow/fixer/issue-7", base="main", title="t", body="b", draft=True
    )
    github.fail("GET", "/pulls", 200, content="[]")
    assert written(github, waiting) is Outcome.COMPLETED
    assert [pull["number"] for pull in github.state.pulls] == [opened.number]
