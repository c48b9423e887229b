"""`mode: prove` on a pull request: without an agent, a key or a token, from the event to summary and annotations."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import Invocation, Runner, git
from tests.cli.prove_cases import COMMAND, FAKES, FIXED, FIXES, TESTS, Case, Files
from tests.servers.github_api import GitHubServer, State

TOKEN = "ghs_tokenofatest0123456789"
LOOSE = FAKES["more than the tests hold"]
ONE_LINE = FIXES["one line"]


def write(folder: Path, files: Files, subject: str) -> str:
    """Commit these files; gives the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text or "")
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--message", subject, cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder).strip()


class Jobs:
    """A checkout and the jobs that run on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.checkout = root, root / "checkout"
        (root / "runner").mkdir()
        inputs = {"mode": "prove", "prove": COMMAND, "isolation": "best-effort"}
        environ = {"GITHUB_SERVER_URL": "https://github.com"}
        self.runner = Runner(checkout=self.checkout, folder=root / "runner", inputs=inputs, environ=environ)

    def merge(self, case: Case, *, fork: bool = True) -> dict[str, Any]:
        """Check the merge commit of a pull request out, as actions/checkout does; gives the event."""
        self.checkout.mkdir()
        git("init", "--quiet", "--template=", cwd=self.checkout)
        base = write(self.checkout, case.base, "base")
        git("switch", "--quiet", "--create", "fix", cwd=self.checkout)
        head = write(self.checkout, case.change, "change")
        git("switch", "--quiet", "main", cwd=self.checkout)
        write(self.checkout, {"README.md": "The base has moved on.\n"}, "more")
        git("merge", "--quiet", "--no-ff", "fix", cwd=self.checkout)
        git("switch", "--quiet", "--detach", cwd=self.checkout)
        repository = {"full_name": "o/r"}
        ends = {"base": {"sha": base, "repo": repository}, "head": {"sha": head, "repo": repository}}
        if fork:
            ends["head"]["repo"] = {"full_name": "stranger/r"}
        return {"action": "opened", "pull_request": {"number": 7, **ends}, "repository": repository}

    def run(self, event: dict[str, Any], *, name: str = "pull_request", **inputs: str) -> Invocation:
        return self.runner.run(event, name=name, **inputs)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


@pytest.fixture
def github(jobs: Jobs) -> Iterator[GitHubServer]:
    """A GitHub with the pull request, whose token may comment."""
    state = State("o/r")
    state.add_issue(7, "Understand days", "")
    with GitHubServer(state, TOKEN) as server:
        jobs.runner.inputs |= {
            "github-api-url": server.plain_url,
            "github-server-url": server.plain_url,
            "github-token": TOKEN,
            "prove": f"command: {COMMAND}\ncomment: true",
        }
        yield server


@pytest.mark.whole
def test_a_pull_request_from_a_fork_is_proven_and_what_is_not_held_is_named(jobs: Jobs) -> None:
    event = jobs.merge(LOOSE)
    before = git("status", "--porcelain", cwd=jobs.checkout), git("for-each-ref", cwd=jobs.checkout)
    done = jobs.run(event)
    outputs = done.outputs
    assert (done.exit_code, outputs["outcome"], outputs["success"], outputs["proven"]) == (
        0,
        *("completed", "true", "true"),
    )
    said = (
        "1 test fails without the change and passes with it. 1 of 2 changes is held by a test; durations.py:9 is not."
    )
    assert outputs["reason"] == said
    assert done.annotations == [
        "::warning file=durations.py,line=9,endLine=9,title=Not held by a test::No test fails without this."
    ]
    digest = hashlib.sha256(b"durations.py").hexdigest()
    link = f"https://github.com/o/r/pull/7/files#diff-{digest}R9"
    assert done.summary.startswith(f"## Proof of fix\n\n✅ **Proven.** {said}\n")
    assert f"| [durations.py:9]({link}) | ⚠️ no test fails without it |" in done.summary
    assert "✅ `test_days`" in done.summary
    assert "KeyError: 'd'" in done.summary
    proof = json.loads(Path(outputs["report"]).read_text())["proof"]
    assert (proof["verdict"], proof["summary"], len(proof["hunks"])) == ("proven", said, 2)
    assert Path(outputs["report"]).parent == Path(outputs["run-folder"])
    assert (git("status", "--porcelain", cwd=jobs.checkout), git("for-each-ref", cwd=jobs.checkout)) == before


@pytest.mark.whole
def test_the_head_may_be_checked_out_instead(jobs: Jobs) -> None:
    event = jobs.merge(ONE_LINE)
    git("switch", "--quiet", "--detach", event["pull_request"]["head"]["sha"], cwd=jobs.checkout)
    done = jobs.run(event)
    assert (done.outputs["proven"], done.annotations) == ("true", []), done.log
    assert "1 of 1 change is held by a test." in done.outputs["reason"]


@pytest.mark.whole
@pytest.mark.sample
@pytest.mark.parametrize(("network", "reached"), [("", False), ("full", True)])
def test_what_a_change_runs_has_no_network_unless_it_is_given(jobs: Jobs, network: str, reached: bool) -> None:
    event = jobs.merge(ONE_LINE)
    with socket.create_server(("127.0.0.1", 0)) as heard:
        heard.setblocking(False)
        connects = f"import socket; socket.create_connection(('127.0.0.1', {heard.getsockname()[1]}), 2)"
        done = jobs.run(event, prove=f'python3 -c "{connects}"', network=network)
        if reached:
            heard.accept()[0].close()
        else:
            with pytest.raises(BlockingIOError):
                heard.accept()
    assert done.outputs["proven"] == "false", done.log
    assert ("with the network closed" in done.log) == (not reached)
    assert ("set the input `network`" in done.log) == (not reached)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["push", "workflow_dispatch"])
def test_without_a_pull_request_it_is_what_is_checked_out_beyond_the_main_branch(jobs: Jobs, name: str) -> None:
    event = jobs.merge(ONE_LINE)
    git("branch", "--force", "main", event["pull_request"]["base"]["sha"], cwd=jobs.checkout)
    git("switch", "--quiet", "fix", cwd=jobs.checkout)
    done = jobs.run({"repository": {"full_name": "o/r"}}, name=name)
    assert done.outputs["proven"] == "true", done.log
    assert "/files#diff-" not in done.summary


@pytest.mark.parametrize(
    ("case", "inputs", "expected"),
    [
        ("a test of something else", {}, (1, "validation_failed", "Not proven")),
        pytest.param("no test", {}, (1, "validation_failed", "No tests"), marks=pytest.mark.whole),
        pytest.param(
            *("more than the tests hold", {"prove": f"command: {COMMAND}\nhunks: require"}),
            (1, "validation_failed", "Not every part is held"),
            marks=pytest.mark.whole,
        ),
    ],
)
def test_a_change_that_is_not_proven_fails_the_job_and_says_why(
    jobs: Jobs, case: str, inputs: dict[str, str], expected: tuple[int, str, str]
) -> None:
    done = jobs.run(jobs.merge(FAKES[case]), **inputs)
    code, outcome, title = expected
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (code, outcome, "false")
    assert done.outputs["proven"] == "false"
    assert f"## Proof of fix\n\n❌ **{title}.** " in done.summary
    assert done.annotations[-1] == f"::error title={title}::{done.outputs['reason']}"


@pytest.mark.whole
def test_test_files_and_the_most_parts_are_as_the_map_says(jobs: Jobs) -> None:
    change = {
        **LOOSE.change,
        "notes.txt": "Days.\n",
        "verify_days.py": LOOSE.change["tests/test_durations.py"],
        "tests/test_durations.py": TESTS,
    }
    event = jobs.merge(Case(change=change, verdict="proven", says=""))
    done = jobs.run(event, prove=f"command: {COMMAND}\ntests: [verify_*.py]\nmax-hunks: 1")
    assert done.outputs["proven"] == "true", done.log
    assert "1 change was not tried: at most 1 is tried." in done.summary
    assert "| not tried |" in done.summary


@pytest.mark.parametrize("name", ["pull_request_target", "issue_comment", "workflow_run", ""])
def test_events_whose_jobs_have_secrets_are_refused(jobs: Jobs, name: str) -> None:
    done = jobs.run(jobs.merge(ONE_LINE), name=name)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert f"does not run on the event {name or '(none)'}." in done.outputs["reason"]
    assert "on pull_request." in done.log
    assert done.outputs["proven"] == ""


@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_a_clone_that_is_too_shallow_says_what_to_fetch(jobs: Jobs, depth: int) -> None:
    event = jobs.merge(ONE_LINE)
    shallow = jobs.root / "shallow"
    git("clone", "--quiet", f"--depth={depth}", f"file://{jobs.checkout}", str(shallow), cwd=jobs.root)
    jobs.runner.checkout = shallow
    done = jobs.run(event)
    if depth == 1:
        assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
        assert "`fetch-depth: 0`" in done.log
    else:
        assert done.outputs["proven"] == "true", done.log


@pytest.mark.parametrize(
    ("inputs", "says"),
    [({"prove": ""}, "needs a command"), ({"prove": "tests: [a]"}, "input prove.command: must be given")],
)
def test_a_missing_command_is_named(jobs: Jobs, inputs: dict[str, str], says: str) -> None:
    done = jobs.run(jobs.merge(ONE_LINE), **inputs)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert says in done.outputs["reason"]


def test_a_commit_that_is_not_the_pull_requests_is_named(jobs: Jobs) -> None:
    event = jobs.merge(ONE_LINE)
    event["pull_request"]["head"]["sha"] = "1" * 40
    done = jobs.run(event)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "neither the pull request's merge commit nor its head 111111111111" in done.outputs["reason"]


@pytest.mark.whole
def test_one_comment_is_posted_and_updated_by_the_next_job(jobs: Jobs, github: GitHubServer) -> None:
    event = jobs.merge(LOOSE, fork=False)
    first = jobs.run(event)
    (comment,) = github.state.comments
    assert first.outputs["comment-url"].endswith(f"#issuecomment-{comment['id']}")
    assert "✅ **Proven.** 1 test fails without the change" in comment["body"]
    assert f"[durations.py:9]({github.plain_url}/o/r/pull/7/files#diff-" in comment["body"]
    git("branch", "--force", "main", "HEAD^", cwd=jobs.checkout)
    second = jobs.run(event, prove=f"command: {COMMAND}\ncomment: true\nhunks: require")
    (comment,) = github.state.comments
    assert second.outputs["comment-url"] == first.outputs["comment-url"]
    assert "❌ **Not every part is held.**" in comment["body"]


@pytest.mark.whole
def test_a_comment_that_cannot_be_written_is_one_notice_and_no_failure(jobs: Jobs, github: GitHubServer) -> None:
    event = jobs.merge(ONE_LINE)
    github.fail("POST", "/comments", 403, "Resource not accessible by integration")
    done = jobs.run(event)
    assert (done.exit_code, github.state.comments) == (0, [])
    (notice,) = done.annotations
    assert notice.startswith("::notice title=There is no comment about the proof::")
    assert "which a job has on no pull request from a fork" in notice
    for inputs, why in (
        ({"github_token": ""}, "the input `github-token`"),
        ({"boundary": "dry-run"}, "writes nothing"),
    ):
        (notice,) = jobs.run(event, **inputs).annotations
        assert why in notice
    assert github.state.comments == []


@pytest.mark.whole
def test_nothing_of_the_runner_reaches_the_tests(jobs: Jobs, github: GitHubServer) -> None:
    leaks = TESTS.replace("import unittest\n", "import os, unittest\nprint('has', *os.environ.items())\n", 1)
    red = "\n    def test_red(self):\n        self.fail()\n"
    event = jobs.merge(
        Case(change={"durations.py": FIXED, "tests/test_durations.py": leaks + red}, verdict="", says="")
    )
    jobs.runner.environ |= {"ACTIONS_RUNTIME_TOKEN": "runtime-token-0123456789", "MY_SECRET": "a-secret-0123456789"}
    done = jobs.run(event)
    assert done.outputs["outcome"] == "validation_failed"
    log = "".join(line for line in done.log.splitlines() if not line.startswith("::add-mask::"))
    shown = done.summary + log + Path(done.outputs["report"]).read_text() + str(github.state.comments)
    assert "has (" in shown
    assert [
        word for word in (TOKEN, "runtime-token", "MY_SECRET", "a-secret", "INPUT_", "GITHUB_") if word in shown
    ] == []
