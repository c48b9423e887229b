"""PyGithub against a loopback GitHub; every exchange is held against GitHub's published description."""

from collections.abc import Callable

import pytest

from stepflow.boundary.github_failures import RetryPolicy, WriteFailed
from stepflow.boundary.github_types import Account
from stepflow.boundary.github_writer import GitHubWriter
from tests.boundary.conftest import TOKEN
from tests.servers.github_api import GitHubServer
from tests.world import FastClock


def test_the_viewer_is_requested_once_and_never_by_get_user(writer: GitHubWriter, github: GitHubServer) -> None:
    assert writer.viewer() == writer.viewer() == Account(id=41898282, login="github-actions[bot]")
    assert [(request.method, request.path) for request in github.requests] == [("POST", "/api/graphql")]


def test_the_plain_address_of_github_dot_com_works_too(github: GitHubServer) -> None:
    writer = GitHubWriter(api_url=github.plain_url, repository="o/r", token=TOKEN)
    assert writer.viewer().login == "github-actions[bot]"
    assert writer.default_branch() == "main"
    assert github.requests[0].path == "/graphql"
    writer.close()


@pytest.mark.parametrize(
    ("login", "permission"),
    [("ann", "write"), ("tom", "triage"), ("mia", "maintain"), ("eve", "read"), ("nobody", "none")],
)
def test_a_permission_is_the_exact_role(writer: GitHubWriter, login: str, permission: str) -> None:
    assert writer.permission(login) == permission


def test_a_custom_role_counts_as_the_permission_it_stands_for(writer: GitHubWriter, github: GitHubServer) -> None:
    github.state.permissions["zoe"] = "release-captain"
    github.state.custom_roles["release-captain"] = "write"
    assert writer.permission("zoe") == "write"


def test_all_pages_of_comments_are_read(writer: GitHubWriter, github: GitHubServer) -> None:
    for number in range(230):
        github.state.add_comment(7, str(number), "ann")
    assert [comment.body for comment in writer.comments(7)] == [str(number) for number in range(230)]
    assert sum("/comments" in request.path for request in github.requests) == 3


def test_labels_change_also_when_their_name_has_a_slash_or_a_space(writer: GitHubWriter) -> None:
    writer.add_labels(7, ("area/ui", "good first issue"))
    writer.remove_label(7, "area/ui")
    writer.remove_label(7, "good first issue")
    writer.remove_label(7, "agent:fixer")
    assert writer.issue(7).labels == ("bug",)


def test_an_issue_is_closed_as_completed(writer: GitHubWriter, github: GitHubServer) -> None:
    writer.close_issue(7)
    assert writer.issue(7).state == "closed"
    assert github.requests[0].body == {"state": "closed", "state_reason": "completed"}


@pytest.mark.parametrize("new", ["o/new", "other/r"])
def test_open_pull_requests_are_listed_after_the_repository_was_renamed_or_transferred(
    writer: GitHubWriter, github: GitHubServer, new: str
) -> None:
    opened = writer.create_pull_request(branch="stepflow/x/issue-7", base="main", title="T", body="B", draft=True)
    github.state.renamed_to = new
    assert [pull.number for pull in writer.open_pull_requests("stepflow/x/issue-7")] == [opened.number]


CALLS: dict[str, Callable[[GitHubWriter], object]] = {
    "viewer": lambda writer: writer.viewer(),
    "permission": lambda writer: writer.permission("ann"),
    "default_branch": lambda writer: writer.default_branch(),
    "issue": lambda writer: writer.issue(7),
    "create_comment": lambda writer: writer.create_comment(7, "x"),
    "update_comment": lambda writer: writer.update_comment(1, "x"),
    "remove_label": lambda writer: writer.remove_label(7, "x"),
    "close_issue": lambda writer: writer.close_issue(7),
    "open_pull_requests": lambda writer: writer.open_pull_requests("b"),
    "create_pull_request": lambda w: w.create_pull_request(branch="b", base="main", title="t", body="b", draft=True),
    "create_release": lambda w: w.create_release(tag="v", target="main", name="n", body="b", draft=False),
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("status", [0, 403, 422, 500])
@pytest.mark.parametrize("name", CALLS)
def test_a_failed_call_is_tried_once_and_its_error_hides_the_token(
    writer: GitHubWriter, github: GitHubServer, name: str, status: int
) -> None:
    for method in ("GET", "POST", "PATCH", "DELETE"):
        github.fail(method, ".*", status, f"no, {TOKEN} may not", times=99)
    with pytest.raises(WriteFailed) as caught:
        CALLS[name](writer)
    assert len(github.requests) == 1
    assert caught.value.status == (status or None)
    assert caught.value.message.startswith("GitHub did not ")
    assert " in o/r: " in caught.value.message
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_rate_limit_is_no_missing_permission(writer: GitHubWriter, github: GitHubServer) -> None:
    github.fail("GET", "/issues/7", 403, "API rate limit exceeded for installation")
    with pytest.raises(WriteFailed) as caught:
        writer.issue(7)
    assert caught.value.status == 429


def test_every_request_names_the_version_of_the_api(writer: GitHubWriter, github: GitHubServer) -> None:
    writer.issue(7)
    writer.viewer()
    writer.close_issue(7)
    assert [each.api_version for each in github.requests] == ["2022-11-28"] * 3


def test_a_second_passes_between_two_writes(github: GitHubServer) -> None:
    clock = FastClock()
    policy = RetryPolicy.of(clock, None, lambda _line: None)
    writer = GitHubWriter(api_url=github.api_url, repository="o/r", token=TOKEN, retry_policy=policy)
    writer.seconds_between_writes = 1.0
    for number in range(4):
        writer.issue(7)
        writer.create_comment(7, f"{number}")
    writer.close()
    assert len(clock.slept) == 3
    assert all(0 < wait <= 1 for wait in clock.slept)
