"""What is asked of GitHub before a run: only reading, with a token that can only read, or with none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.own_texts import Marker, mark_comment
from stepflow.errors import InputError
from tests.boundary.conftest import TOKEN
from tests.servers.github_api import GitHubServer, State

READ_TOKEN = "github_pat_0123456789readonly"


@pytest.fixture
def github(state: State) -> Iterator[GitHubServer]:
    with GitHubServer(state, TOKEN, read_token=READ_TOKEN) as server:
        yield server


@pytest.fixture
def reader(github: GitHubServer) -> Iterator[GitHubReader]:
    reader = GitHubReader(api_url=github.api_url, repository="o/r", token=READ_TOKEN)
    yield reader
    reader.close()


def test_an_issue_is_read_with_its_author_and_labels(reader: GitHubReader, github: GitHubServer) -> None:
    issue = reader.issue(7)
    assert (issue.number, issue.title, issue.body, issue.author) == (7, "Fix the parser", "It breaks.", "octocat")
    assert issue.labels == ("agent:fixer", "bug")
    assert issue.url.endswith("/o/r/issues/7")
    assert [request.credential for request in github.requests] == ["read"]


def test_what_people_said_comes_newest_first_without_bots_and_without_ourselves(
    reader: GitHubReader, github: GitHubServer
) -> None:
    ours = mark_comment("Done.", Marker(run="r", agent="fixer", issue=7))
    for body, login in [("one", "ann"), ("beep", "helper[bot]"), (ours, "mia"), ("two", "eve")]:
        github.state.add_comment(7, body, login)
    remarks = reader.remarks(7, most=50)
    assert [(remark.author, remark.body) for remark in remarks] == [("eve", "two"), ("ann", "one")]
    assert remarks[0].at.year == 2026


@pytest.mark.parametrize(
    ("accepted", "words"),
    [
        ("issues=read", "it needs `issues: read`."),
        ("issues=write; pull_requests=write", "it needs `issues: write` or `pull-requests: write`."),
        ("contents=write,workflows=write", "it needs `contents: write` and `workflows: write`."),
        ("", "`issues: read`"),
    ],
)
def test_a_token_that_may_not_is_told_what_github_itself_says_it_lacks(
    reader: GitHubReader, github: GitHubServer, accepted: str, words: str
) -> None:
    headers = {"X-Accepted-GitHub-Permissions": accepted}
    github.fail("GET", ".*", 403, "Resource not accessible by integration", headers=headers)
    with pytest.raises(InputError) as caught:
        reader.issue(7)
    assert words in caught.value.hint


def test_a_repository_that_is_renamed_twice_is_followed_twice(reader: GitHubReader, github: GitHubServer) -> None:
    github.state.renamed_to = "o/new"
    for path, to in (("/repos/o/r", "/repos/o/new"), ("/repos/o/new", "/repositories/1")):
        github.fail("GET", f"{path}/issues/7$", 301, headers={"Location": f"{github.api_url}{to}/issues/7"})
        github.fail("GET", f"{path}$", 301, headers={"Location": f"{github.api_url}{to}"})
        assert reader.issue(7).number == 7
