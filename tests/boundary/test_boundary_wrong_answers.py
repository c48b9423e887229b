"""An answer with a missing or wrong field ends in a value or in a clear error, and costs no further request."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_failures import WriteFailed
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.errors import BoundaryError, InputError
from tests.boundary.checkout import Checkout
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State

BRANCH = "stepflow/fixer/issue-7"
MISSING = object()
WRONG = (MISSING, None, 5, "x", [5])
#: What is read of answers; the rest may be anything.
FIELDS = frozenset(
    re.findall(
        r"\w+",
        "addPullRequestReviewThreadReply author base body body_html comment comments commit committer conclusion "
        "created_at data databaseId default_branch diffHunk endCursor filename full_name hasNextPage head html_url id "
        "isResolved jobs labels line locked login merged_at message name node node_id nodes number opening "
        "originalLine pageInfo parents path permission previous_filename pullRequest pull_request ref repo repository "
        "reviewThreads role_name sha signature state status steps tag_name title totalCount tree type url user "
        "verification viewer __typename",
    )
)

READS: dict[str, Callable[[GitHubReader], object]] = {
    "permission": lambda reader: reader.permission("ann"),
    "full_name": lambda reader: reader.full_name(),
    "issue": lambda reader: reader.issue(7),
    "issues_page": lambda reader: reader.issues_page("bug"),
    "spent": lambda reader: reader.spent(7, run="r"),
    "labels": lambda reader: reader.labels(),
    "demands_signatures": lambda reader: reader.demands_signatures("main"),
    "remarks": lambda reader: reader.remarks(7, most=10),
    "rendered": lambda reader: reader.rendered(7, most=10),
    "open_pull_requests": lambda reader: reader.open_pull_requests(BRANCH),
    "pull_request": lambda reader: reader.pull_request(8),
    "pull_request_commits": lambda reader: reader.pull_request_commits(8),
    "pull_request_files": lambda reader: reader.pull_request_files(8),
    "review_threads": lambda reader: reader.review_threads(8),
    "failed_jobs": lambda reader: reader.failed_jobs(5),
    "contains": lambda reader: reader.contains("main", "main"),
}
WRITES: dict[str, Callable[[GitHubWriter], object]] = {
    "comments": lambda writer: writer.comments(7),
    "create_comment": lambda writer: writer.create_comment(7, "x"),
    "update_comment": lambda writer: writer.update_comment(9001, "x"),
    "add_labels": lambda writer: writer.add_labels(7, ("x",)),
    "remove_label": lambda writer: writer.remove_label(7, "bug"),
    "close_issue": lambda writer: writer.close_issue(7),
    "update_pull_request": lambda writer: writer.update_pull_request(8, title="t", body="b"),
    "releases": lambda writer: writer.releases(),
    "create_release": lambda w: w.create_release(tag="v", target="main", name="n", body="b", draft=False),
    "review_thread": lambda writer: writer.review_thread("PRRT_1"),
    "reply_to_thread": lambda writer: writer.reply_to_thread("PRRT_1", "x"),
    "resolve_thread": lambda writer: writer.resolve_thread("PRRT_1"),
}


@pytest.fixture
def github(state: State, git_server: GitServer, tmp_path: Path) -> Iterator[GitHubServer]:
    """A server with one of everything."""
    state.git_dir = git_server.create("o/r")
    checkout = Checkout(tmp_path / "checkout", state.git_dir)
    checkout.git("switch", "--quiet", "-c", BRANCH)
    checkout.write("a.txt", "a\n")
    checkout.commit("Change")
    checkout.git("push", "--quiet", str(checkout.origin), BRANCH)
    state.add_pull(BRANCH)
    state.add_thread(8, ("ann", "Why?"))
    state.add_comment(7, "Please.", "ann")
    state.add_comment(7, "Done.", state.viewer[0])
    state.add_job(5, "test", "failure", steps={"Run": "failure"})
    state.rules["main"] = ["required_signatures"]
    with GitHubServer(state, TOKEN) as server:
        yield server


@pytest.mark.whole
@pytest.mark.parametrize("name", READS)
def test_a_wrong_answer_to_a_question(github: GitHubServer, name: str) -> None:
    reader = GitHubReader(api_url=github.api_url, repository="o/r", token=TOKEN)
    meet_wrong_answers(github, lambda: READS[name](reader))
    reader.close()


@pytest.mark.whole
@pytest.mark.parametrize("name", WRITES)
def test_a_wrong_answer_to_a_write(github: GitHubServer, writer: GitHubWriter, name: str) -> None:
    meet_wrong_answers(github, lambda: WRITES[name](writer))


@pytest.mark.whole
def test_a_wrong_answer_about_whose_the_token_is(github: GitHubServer) -> None:
    """It is asked once, so each time by somebody else."""

    def ask() -> None:
        reader = GitHubReader(api_url=github.api_url, repository="o/r", token=TOKEN)
        reader.viewer()
        reader.close()

    meet_wrong_answers(github, ask)


@pytest.mark.sample(3)
@pytest.mark.parametrize("header", ["X-RateLimit-Reset", "X-RateLimit-Remaining", "X-RateLimit-Limit"])
@pytest.mark.parametrize("value", ["soon", "inf", ""])
def test_a_rate_limit_that_is_no_number(github: GitHubServer, writer: GitHubWriter, header: str, value: str) -> None:
    headers = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59", header: value}
    github.fail("GET", "/issues/7$", 200, content='{"number": 7}', headers=headers)
    with pytest.raises(WriteFailed, match="no usable answer came"):
        writer.issue(7)


@pytest.mark.sample(4)
@pytest.mark.parametrize("status", [200, 422])
@pytest.mark.parametrize("answer", ["null", "5", "[5]", '"x"', '{"message": 5}', '{"errors": [5]}', '{"errors": 5}'])
def test_a_wrong_error(github: GitHubServer, writer: GitHubWriter, status: int, answer: str) -> None:
    for method, path in (("GET", "/issues/7$"), ("POST", "/graphql")):
        github.fail(method, path, status, content=answer)
    for ask in (lambda: writer.issue(7), writer.viewer):
        with pytest.raises(WriteFailed, match="GitHub did not "):
            ask()


@pytest.mark.parametrize("answer", ["[5]", "{}", "5"])
def test_a_wrong_list(github: GitHubServer, answer: str) -> None:
    reader = GitHubReader(api_url=github.api_url, repository="o/r", token=TOKEN)
    for ask in (READS["rendered"], READS["pull_request_commits"], READS["labels"]):
        github.fail("GET", "(comments|commits|labels)$", 200, content=answer, times=2)
        with pytest.raises(BoundaryError, match="no usable answer came"):
            ask(reader)
        github.state.faults.clear()
    github.rewrite = lambda data: [{**each, "parents": [5]} for each in data]
    with pytest.raises(BoundaryError, match="no usable answer came"):
        reader.pull_request_commits(8)
    reader.close()


def meet_wrong_answers(github: GitHubServer, ask: Callable[[], object]) -> None:
    """Ask once for each field of what is answered, and each way in which it can be wrong."""
    answers: list[Any] = []
    github.rewrite = lambda data: answers.append(data) or data  # type: ignore[func-returns-value]
    before = copy.deepcopy(vars(github.state))
    ask()
    most = len(github.requests)
    assert len(answers) == most
    for place in dict.fromkeys(place for answer in answers for place in places(answer)):
        for wrong in WRONG:
            vars(github.state).update(copy.deepcopy(before))
            github.requests.clear()
            github.rewrite = lambda data, place=place, wrong=wrong: changed(data, place, wrong)
            with contextlib.suppress(BoundaryError, InputError):
                ask()
            assert len(github.requests) <= most, (place, wrong)


def places(data: Any) -> Iterator[tuple[str | int, ...]]:
    """Where something stands that is read, the whole first; of a list its first member alone."""
    yield ()
    inner = data.items() if isinstance(data, dict) else enumerate(data[:1]) if isinstance(data, list) else ()
    for key, value in inner:
        if isinstance(key, int) or key in FIELDS:
            yield from ((key, *place) for place in places(value))


def changed(data: Any, place: tuple[str | int, ...], wrong: object) -> Any:
    """The same with something wrong at a place, where it has it."""
    if not place:
        return None if wrong is MISSING else wrong
    key, *rest = place
    if isinstance(data, dict) and key in data:
        new = changed(data[key], tuple(rest), wrong)
        return {k: (new if k == key else v) for k, v in data.items() if k != key or rest or wrong is not MISSING}
    if isinstance(data, list) and isinstance(key, int) and data:
        return [changed(data[0], tuple(rest), wrong), *data[1:]]
    return data
