"""The boundary's own git: bounded in time, output and reach."""

import os
from pathlib import Path

import pytest

from stepflow.boundary.git import Git, GitFailed, Remote, TooMuch
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer

REMOTE = Remote(url="https://github.com/o/r.git", token=TOKEN)


def test_a_git_that_hangs_is_stopped(tmp_path: Path) -> None:
    git = Git(tmp_path / "r.git", REMOTE, local_seconds=2)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb"), pytest.raises(GitFailed, match="longer than 2 seconds"):
        git.run("hash-object", "--stdin", stdin=file)


def test_a_git_that_does_not_stop_writing_is_stopped(tmp_path: Path) -> None:
    git = Git(tmp_path / "r.git", REMOTE, most_output=1_000)
    assert git.run("stripspace", stdin=b"x" * 900) == b"x" * 900 + b"\n"
    with pytest.raises(TooMuch, match="more than 1000 bytes"):
        git.run("stripspace", stdin=b"x" * 9_000_000)


def test_a_local_command_cannot_reach_the_network(tmp_path: Path, git_server: GitServer) -> None:
    git_server.create("o/r")
    git = Git(tmp_path / "r.git", Remote(url=f"{git_server.url}/o/r.git", token=TOKEN))
    with pytest.raises(GitFailed, match="not allowed"):
        git.run("ls-remote", f"{git_server.url}/o/r.git")
    assert git_server.requests == []
    assert git.run_remote("ls-remote", f"{git_server.url}/o/r.git") == b""


def test_the_credential_goes_to_its_own_repository_only(tmp_path: Path, git_server: GitServer) -> None:
    git_server.create("o/r")
    git_server.create("o/other")
    git = Git(tmp_path / "r.git", Remote(url=f"{git_server.url}/o/r.git", token=TOKEN))
    with pytest.raises(GitFailed, match="could not read Username"):
        git.run_remote("ls-remote", f"{git_server.url}/o/other.git")
    assert [request.credential for request in git_server.requests] == [False]
