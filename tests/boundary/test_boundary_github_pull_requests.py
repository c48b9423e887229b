"""What a run needs of a pull request: its changes, what reviewers said on them, and the jobs that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_failures import RetryPolicy, WriteFailed
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.errors import BoundaryError, InputError, StepflowError
from tests.boundary.checkout import Checkout
from tests.boundary.conftest import TOKEN
from tests.fakes import StillClock
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State

READ_TOKEN = "github_pat_0123456789readonly"
BRANCH = "stepflow/fixer/issue-7"


@pytest.fixture
def github(state: State) -> Iterator[GitHubServer]:
    with GitHubServer(state, TOKEN, read_token=READ_TOKEN) as server:
        yield server


@pytest.fixture
def reader(github: GitHubServer) -> Iterator[GitHubReader]:
    reader = GitHubReader(api_url=github.api_url, repository="o/r", token=READ_TOKEN)
    yield reader
    reader.close()


@pytest.fixture
def patient(github: GitHubServer) -> Iterator[GitHubReader]:
    """Asks again, without losing time."""
    retries = RetryPolicy(clock=StillClock(), until=float("inf"))
    reader = GitHubReader(api_url=github.api_url, repository="o/r", token=READ_TOKEN, retry_policy=retries)
    yield reader
    reader.close()


@pytest.fixture
def checkout(tmp_path: Path, git_server: GitServer, state: State) -> Checkout:
    """A clone on the branch of a pull request, which has no commits of its own yet."""
    state.git_dir = git_server.create("o/r")
    checkout = Checkout(tmp_path / "checkout", state.git_dir)
    checkout.git("switch", "--quiet", "-c", BRANCH)
    return checkout


def push(checkout: Checkout) -> None:
    checkout.git("push", "--quiet", str(checkout.origin), BRANCH)


def add_pull(github: GitHubServer, **facts: object) -> int:
    return int(github.state.add_pull(BRANCH, title="Fix", body="It was broken.", **facts)["number"])


def test_a_pull_request_has_its_newest_commit(reader: GitHubReader, github: GitHubServer, checkout: Checkout) -> None:
    checkout.write("a.txt", "a\n")
    head = checkout.commit("Change")
    push(checkout)
    pull = reader.pull_request(add_pull(github, login="ann"))
    assert (pull.number, pull.state, pull.title, pull.body) == (8, "open", "Fix", "It was broken.")
    assert (pull.head, pull.head_commit, pull.head_repository, pull.base) == (BRANCH, head, "o/r", "main")
    assert pull.url.endswith("/o/r/pull/8")


def test_commits_come_oldest_first_with_their_accounts(
    reader: GitHubReader, github: GitHubServer, checkout: Checkout
) -> None:
    oids = []
    for number, committer in enumerate(["7+ann@users.noreply.github.com", "", "x@example.com"]):
        checkout.write("a.txt", f"{number}\n")
        oids.append(checkout.commit(f"Change {number}", committer=committer))
    push(checkout)
    commits = reader.pull_request_commits(add_pull(github))
    assert [commit.oid for commit in commits] == oids
    assert [commit.message.strip() for commit in commits] == ["Change 0", "Change 1", "Change 2"]
    assert [commit.committer_login for commit in commits] == ["ann", "", ""]
    assert [commit.author_id for commit in commits] == [0, 0, 0]


def test_a_branch_contains_what_it_was_made_of(reader: GitHubReader, checkout: Checkout) -> None:
    checkout.write("a.txt", "a\n")
    head = checkout.commit("Change")
    push(checkout)
    assert reader.contains("main", checkout.base)
    assert reader.contains(BRANCH, checkout.base)
    assert reader.contains(BRANCH, head)
    assert not reader.contains("main", head)
    assert not reader.contains("main", "a" * 40)
    assert not reader.contains("nowhere", head)


def test_a_thread_has_its_place_and_who_said_what(reader: GitHubReader, github: GitHubServer) -> None:
    number = add_pull(github)
    github.state.accounts["ann"] = 5
    said = [("ann", "Why?"), ("helper[bot]", "Beep."), ("", "I left.")]
    github.state.add_thread(number, *said, line=3, hunk="@@ -1,2 +1,3 @@\n+x")
    (thread,) = reader.review_threads(number)
    assert (thread.id, thread.path, thread.line) == ("PRRT_1", "src/parser.py", 3)
    assert (thread.hunk, thread.is_resolved) == ("@@ -1,2 +1,3 @@\n+x", False)
    assert [(each.author, each.body) for each in thread.comments] == said
    assert [each.is_bot for each in thread.comments] == [False, True, False]
    assert [thread.comments[0].author_id, thread.comments[2].author_id] == [5, 0]
    assert thread.comments[0].url.endswith("/o/r/pull/8#discussion_r7000")


@pytest.mark.parametrize(("line", "original", "shown"), [(4, 3, 4), (None, 3, 3), (None, None, None)])
def test_an_outdated_thread_has_the_line_it_began_at(
    reader: GitHubReader, github: GitHubServer, line: int | None, original: int | None, shown: int | None
) -> None:
    number = add_pull(github)
    github.state.add_thread(number, ("ann", "Why?"), line=line, original_line=original)
    assert [thread.line for thread in reader.review_threads(number)] == [shown]


def test_of_a_long_thread_the_newest_hundred_comments_are_read(reader: GitHubReader, github: GitHubServer) -> None:
    number = add_pull(github)
    github.state.add_thread(number, *[("ann", str(each)) for each in range(130)])
    (thread,) = reader.review_threads(number)
    assert [each.body for each in thread.comments] == [str(each) for each in range(30, 130)]
    assert thread.total == 130


def test_a_thread_is_answered_and_resolved(writer: GitHubWriter, github: GitHubServer) -> None:
    thread = github.state.add_thread(add_pull(github), ("ann", "Why?"))
    writer.reply_to_thread("PRRT_1", "Because.")
    assert [each["body"] for each in thread["comments"]] == ["Why?", "Because."]
    seen = writer.review_thread("PRRT_1")
    assert seen.comments[-1].author == "github-actions[bot]"
    assert (seen.comments[-1].is_bot, seen.comments[-1].author_id) == (True, writer.viewer().id)
    assert not seen.is_resolved
    writer.resolve_thread("PRRT_1")
    writer.resolve_thread("PRRT_1")
    assert writer.review_thread("PRRT_1").is_resolved
    assert github.mutations() == ["addPullRequestReviewThreadReply", "resolveReviewThread", "resolveReviewThread"]


THREAD_CALLS: dict[str, Callable[[GitHubWriter], object]] = {
    "review_thread": lambda writer: writer.review_thread("PRRT_1"),
    "reply_to_thread": lambda writer: writer.reply_to_thread("PRRT_1", "x"),
    "resolve_thread": lambda writer: writer.resolve_thread("PRRT_1"),
}


@pytest.mark.parametrize("name", THREAD_CALLS)
def test_a_thread_that_is_gone_is_not_found(writer: GitHubWriter, name: str) -> None:
    with pytest.raises(WriteFailed, match=r"thread in o/r.*global id of 'PRRT_1'") as caught:
        THREAD_CALLS[name](writer)
    assert caught.value.status == 404


def test_the_failed_jobs_of_a_run_are_read_with_their_steps(reader: GitHubReader, github: GitHubServer) -> None:
    add = github.state.add_job
    failed = add(5, "test", "failure", steps={"Set up": "success", "Run tests": "failure", "Upload": "skipped"})
    slow = add(5, "e2e", "timed_out")
    for conclusion in ("success", "cancelled", "skipped", None):
        add(5, "other", conclusion, steps={"Build": conclusion})
    add(6, "elsewhere", "failure")
    jobs = reader.failed_jobs(5)
    assert [(job.id, job.name, job.failed_steps) for job in jobs] == [
        (failed["id"], "test", ("Run tests",)),
        (slow["id"], "e2e", ()),
    ]
    assert jobs[0].url.endswith(f"/o/r/actions/runs/5/job/{failed['id']}")


def add_log(github: GitHubServer, log: bytes | None) -> int:
    return int(github.state.add_job(5, "test", "failure", log=log)["id"])


@pytest.mark.parametrize(
    ("log", "last_bytes", "shown"),
    [
        (b"\xef\xbb\xbfone\ntwo\n", 100, "one\ntwo\n"),
        (b"one\ntwo\n", 4, "two\n"),
        ("ä!".encode(), 2, "�!"),
        (b"x" * 300_000 + b"end", 70_000, "x" * 69_997 + "end"),
    ],
    ids=["whole", "its end", "a character cut in two", "long"],
)
def test_the_end_of_a_log_is_fetched_without_the_token(
    reader: GitHubReader, github: GitHubServer, log: bytes, last_bytes: int, shown: str
) -> None:
    assert reader.job_log(add_log(github, log), last_bytes=last_bytes) == shown
    assert github.log_store.requests == ["/logs/400?sig=signed"]
    assert {request.credential for request in github.requests} == {"read"}


def test_a_log_that_does_not_end_is_left_alone(
    reader: GitHubReader, github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepflow.boundary.github_client.LONGEST_TEXT", 1000)
    assert reader.job_log(add_log(github, b"x" * 1001), last_bytes=10) == ""


def test_a_log_that_is_gone_is_empty(reader: GitHubReader, github: GitHubServer) -> None:
    assert reader.job_log(add_log(github, None), last_bytes=10) == ""
    job = add_log(github, b"log")
    github.fail("GET", "/logs$", 410, "Gone")
    assert reader.job_log(job, last_bytes=10) == ""
    github.log_store.statuses.append(404)
    assert reader.job_log(job, last_bytes=10) == ""
    assert reader.job_log(job, last_bytes=10) == "log"


@pytest.mark.parametrize(
    "location",
    [
        "http://logs.example.com/1",
        "file:///etc/passwd",
        "//127.0.0.1/1",
        "http://[",
    ],
)
def test_a_log_is_fetched_from_no_address_without_encryption(
    reader: GitHubReader, github: GitHubServer, location: str
) -> None:
    github.fail("GET", "/logs$", 302, headers={"Location": location})
    with pytest.raises(BoundaryError, match=r"log of a job in o/r: no usable answer came \(NotGitHub\)") as caught:
        reader.job_log(add_log(github, b"log"), last_bytes=10)
    assert github.log_store.requests == []
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("status", [302, 403, 500])
def test_only_the_log_itself_is_taken_and_fetched_again_where_that_may_pass(
    patient: GitHubReader, github: GitHubServer, status: int
) -> None:
    job = add_log(github, b"log")
    github.log_store.statuses += [status, status]
    assert patient.job_log(job, last_bytes=10) == "log"
    assert len(github.log_store.requests) == 3


READ_CALLS: dict[str, tuple[Callable[[GitHubReader], object], str]] = {
    "pull_request": (lambda reader: reader.pull_request(8), "`pull-requests: read`"),
    "pull_request_commits": (lambda reader: reader.pull_request_commits(8), "`pull-requests: read`"),
    "pull_request_files": (lambda reader: reader.pull_request_files(8), "`pull-requests: read`"),
    "open_pull_requests": (lambda reader: reader.open_pull_requests("b"), "`pull-requests: read`"),
    "review_threads": (lambda reader: reader.review_threads(8), "`pull-requests: read`"),
    "failed_jobs": (lambda reader: reader.failed_jobs(5), "`actions: read`"),
    "job_log": (lambda reader: reader.job_log(400, last_bytes=10), "`actions: read`"),
    "contains": (lambda reader: reader.contains("main", "a" * 40), "`contents: read`"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", READ_CALLS)
@pytest.mark.parametrize(("status", "kind"), [(401, InputError), (403, InputError), (500, BoundaryError)])
def test_a_failure_names_what_the_token_lacks_and_no_secret(
    reader: GitHubReader, github: GitHubServer, name: str, status: int, kind: type[StepflowError]
) -> None:
    call, permission = READ_CALLS[name]
    for method in ("GET", "POST"):
        github.fail(method, ".*", status, f"no, {READ_TOKEN} may not", times=99)
    with pytest.raises(kind, match=r"GitHub did not [a-z' ]+ in o/r: ") as caught:
        call(reader)
    words = {401: "check `read-token`", 403: permission, 500: ""}[status]
    assert words in caught.value.hint
    assert READ_TOKEN not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "subject"),
    [("pull_request", "pull request"), ("review_threads", "pull request"), ("failed_jobs", "run or job")],
)
def test_what_does_not_exist_is_said_by_its_name(reader: GitHubReader, name: str, subject: str) -> None:
    with pytest.raises(InputError, match="answered 404") as caught:
        READ_CALLS[name][0](reader)
    assert f"There is no such {subject}" in caught.value.hint


def test_an_answer_without_the_pull_request_is_not_githubs(reader: GitHubReader, github: GitHubServer) -> None:
    github.fail("POST", "/graphql", 200, content='{"data": {"repository": {"pullRequest": null}}}')
    with pytest.raises(BoundaryError, match="no usable answer"):
        reader.review_threads(8)
