"""The boundary's own git: bounded in time, output and reach."""

import os
from pathlib import Path

import pytest

from stepflow.boundary.git import LONGEST_STDERR, Git, GitFailed, Remote, TooMuch, git_failed
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer

REMOTE = Remote(url="https://github.com/o/r.git", token=TOKEN)


@pytest.mark.whole
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


@pytest.mark.parametrize("shown", [4, 12, len(TOKEN) - 1])
def test_no_part_of_a_secret_is_left_where_git_s_words_are_cut(tmp_path: Path, shown: int) -> None:
    git = Git(tmp_path / "r.git", REMOTE)
    before = LONGEST_STDERR - len("fatal: Not a valid object name ") - shown
    with pytest.raises(GitFailed) as caught:
        git.run("cat-file", "-e", "x" * before + TOKEN + "y" * 2_000)
    assert TOKEN[:4] not in str(caught.value)


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


RULES = "[remote rejected] (push declined due to repository rule violations)"
WORKFLOW = "[remote rejected] (refusing to allow a GitHub App to create or update workflow `x.yml` without `workflows`)"
LOCKED = "[remote rejected] (cannot lock ref 'refs/heads/stepflow/workflow': 'refs/heads/stepflow' exists)"
HOOK, PROTECTION = "[remote rejected] (pre-receive hook declined)", "[remote rejected] (protected branch hook declined)"
NOT_THERE = "fatal: repository 'https://x/o/workflow.git/' not found"
PREFIX = "`runner.integrations.github.pullRequest.branchPrefix`"
LOCATIONS = "\n".join(f"remote:          - commit: {number:040x}\nremote:            path: a:1" for number in range(30))
PUSH_PROTECTION = f"""remote: error: GH013: Repository rule violations found for refs/heads/stepflow/fixer/issue-7.
remote:
remote: - GITHUB PUSH PROTECTION
remote:   —————————————————————————————————————————
remote:     Resolve the following violations before pushing again
remote:
remote:     - Push cannot contain secrets
remote:
remote:      (?) Learn how to resolve a blocked push
remote:
remote:       —— Amazon AWS Access Key ID ——————————————————
remote:        locations:
{LOCATIONS}
remote:        (?) To push, remove secret from commit(s) or follow this URL to allow the secret.
remote:        https://github.com/o/r/security/secret-scanning/unblock-secret/2abc
error: failed to push some refs to 'https://github.com/o/r.git'"""
PROTECTED = """remote: error: GH006: Protected branch update failed for refs/heads/stepflow/fixer/issue-7.
remote: error: You're not authorized to push to this branch.
error: failed to push some refs to 'https://github.com/o/r.git'"""
SIGNED = """remote: error: GH013: Repository rule violations found for refs/heads/workflow.
remote: - Commits must have verified signatures.
remote:   Found 1 violation:"""
FORBIDDEN = "fatal: unable to access 'x': The requested URL returned error: 403"
DENIED = f"remote: Permission to o/workflow.git denied to bot.\n{FORBIDDEN}"
ARCHIVED = f"remote: This repository was archived so it is read-only.\n{FORBIDDEN}"
IN_A_HOOK = "remote: the workflow of our hooks: GH-ISSUE 13, returned error: 503, early EOF"


@pytest.mark.parametrize(
    ("command", "written", "rejected", "says", "never"),
    [
        ("push", PUSH_PROTECTION, RULES, "a secret in the commits", PREFIX),
        ("push", PROTECTED, PROTECTION, PREFIX, "workflow files"),
        ("push", SIGNED, RULES, "`commits: verified`", "workflow files"),
        ("push", "", WORKFLOW, "workflow files", PREFIX),
        ("push", "", LOCKED, PREFIX, "workflow files"),
        ("push", IN_A_HOOK, HOOK, "A server hook", "workflow files"),
        ("push", DENIED, "", "may not push", "workflow files"),
        ("fetch", DENIED, "", "may not read", "push"),
        ("push", ARCHIVED, "", "archived", "contents: write"),
        ("ls-remote", NOT_THERE, "", "does not exist", "workflow files"),
    ],
)
def test_facts_decide_the_advice(command: str, written: str, rejected: str, says: str, never: str) -> None:
    failed = git_failed(command, written, rejected=[rejected] if rejected else [])
    assert says in failed.hint
    assert never not in failed.hint
    assert not failed.passes


def test_of_a_long_refusal_both_ends_are_shown_and_no_decoration() -> None:
    failed = git_failed("push", PUSH_PROTECTION)
    assert "GH013: Repository rule violations found" in failed.message
    assert "unblock-secret/2abc" in failed.message
    assert "remote:" not in failed.message
    assert len(failed.message) < 1_500
