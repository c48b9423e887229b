"""The loopback servers themselves: what they must refuse, and that they run as processes too."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.boundary.checkout import Checkout
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.servers.openapi import load_contract

ROOT = Path(__file__).parents[2]


def get(url: str, token: str | None = TOKEN) -> object:
    request = Request(url, headers={"Authorization": f"token {token}"} if token else {})
    with urlopen(request) as answer:
        return json.load(answer)


def status(url: str, token: str | None = TOKEN, **headers: str) -> int:
    request = Request(url, headers={**({"Authorization": f"token {token}"} if token else {}), **headers})
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_the_api_knows_its_token_and_hides_the_user(github: GitHubServer) -> None:
    issue = f"{github.api_url}/repos/o/r/issues/7"
    assert [status(issue), status(issue, "other"), status(issue, None)] == [200, 401, 404]
    assert status(f"{github.api_url}/user") == 403
    assert status(f"{github.api_url}/repos/other/r/issues/7") == 404
    assert [request.token for request in github.requests] == [True, False, False, True, True]


def test_issues_are_listed_by_label_and_state(github: GitHubServer) -> None:
    github.state.add_issue(8, "Other", "", labels=["bug"])
    issues = get(f"{github.api_url}/repos/o/r/issues?labels=bug,agent:fixer&state=open&per_page=100")
    assert isinstance(issues, list)
    assert [issue["number"] for issue in issues] == [7]


def test_the_contract_notices_what_github_would_not_understand() -> None:
    contract = load_contract()
    path = "/repos/o/r/issues/7/comments"
    assert contract.violations("POST", path, [], b'{"text": "x"}', 422, b'{"message": "no"}')
    assert contract.violations("GET", path, [], b"", 200, b'[{"id": "x"}]')
    assert contract.violations("GET", "/repos/o/r/nowhere", [], b"", 200, b"[]")
    assert contract.violations("GET", path, [], b"", 200, b"[]") == []


def test_the_git_server_wants_the_credential(git_server: GitServer, tmp_path: Path) -> None:
    Checkout(tmp_path / "checkout", git_server.create("o/r"))
    refs = f"{git_server.url}/o/r.git/info/refs?service=git-upload-pack"
    basic = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert status(refs, None) == 401
    assert status(refs, None, Authorization=f"Basic {basic}") == 200
    assert [request.credential for request in git_server.requests] == [False, True]


@contextmanager
def process(module: str, *args: str) -> Iterator[str]:
    """A server in a process of its own; its URL."""
    command = [sys.executable, "-m", module, "--token", TOKEN, *args]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def test_both_servers_run_as_processes(tmp_path: Path) -> None:
    issue = json.dumps({"number": 3, "title": "T", "body": "B", "labels": ["agent:x"]})
    with process("tests.servers.github_api", "--repository", "o/r", "--issue", issue) as url:
        shown = get(f"{url}/repos/o/r/issues/3")
        assert isinstance(shown, dict)
        assert shown["title"] == "T"
        state = get(url.removesuffix("/api/v3") + "/_state", None)
        assert isinstance(state, dict)
        assert state["issues"]["3"]["labels"] == ["agent:x"]
    with process("tests.servers.git_http", "--root", str(tmp_path)) as url:
        assert status(f"{url}/o/r.git/info/refs?service=git-upload-pack", None) == 401


@pytest.mark.parametrize("after_write", [False, True])
def test_a_dropped_connection_can_come_before_or_after_the_write(state: State, after_write: bool) -> None:
    with GitHubServer(state, TOKEN) as server:
        server.fail("POST", "/comments$", 0, after_write=after_write)
        request = Request(
            f"{server.api_url}/repos/o/r/issues/7/comments",
            data=b'{"body": "x"}',
            headers={"Authorization": f"token {TOKEN}"},
        )
        with pytest.raises(OSError):  # noqa: PT011 - urllib tells dropped connections in several ways
            urlopen(request)
        assert len(state.comments) == after_write
