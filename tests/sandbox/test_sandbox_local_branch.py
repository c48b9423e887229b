"""A run's commits come into the user's own repository as a new branch, whatever branches are there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.errors import BoundaryError
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import bring_branch, checked_out, move_branch
from tests.checkout import git

AUTHOR = {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
BRANCH = "stepflow/fixer/issue-7"


def bundle_of(repository: Path, folder: Path, message: str) -> Path:
    """One more commit on top of HEAD, which stays where it is, as a bundle."""
    base = git("rev-parse", "HEAD", cwd=repository).strip()
    (repository / message).write_text(f"{message}\n")
    git("add", message, cwd=repository)
    git("commit", "--quiet", "--message", message, cwd=repository)
    git("bundle", "create", "--quiet", str(folder / f"{message}.bundle"), f"{base}..HEAD", cwd=repository)
    git("reset", "--quiet", "--hard", base, cwd=repository)
    return folder / f"{message}.bundle"


def test_every_run_for_an_issue_keeps_its_commits_on_a_branch_of_its_own(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "--quiet", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "--message", "Begin", cwd=repository)
    messages = ("first", "second", "third", "fourth")
    names = [bring_branch(repository, bundle_of(repository, tmp_path, each), BRANCH) for each in messages]
    assert names == [BRANCH, f"{BRANCH}-2", f"{BRANCH}-3", f"{BRANCH}-4"]
    tips = [git("log", "-1", "--format=%s", name, cwd=repository).strip() for name in names]
    assert tips == list(messages)


#: What happens in the user's repository while a run in place works, and whether the branch can still be moved.
MEANWHILE = {
    "nothing": ("true", True),
    "a change elsewhere": ("echo mine > mine", True),
    "a commit": ("git commit -q --allow-empty -m mine", False),
    "another branch at the same commit": ("git checkout -qb other", False),
    "an older commit": ("git reset -q --hard HEAD~1", False),
    "a file in the way": ("echo mine > first", False),
    "no branch": ("git checkout -q --detach", False),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", MEANWHILE)
def test_the_branch_that_is_checked_out_is_moved_where_it_still_stands_there(tmp_path: Path, case: str) -> None:
    meanwhile, moves = MEANWHILE[case]
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "--quiet", "--initial-branch", "main", cwd=repository)
    for message in ("Begin", "Go on"):
        git("commit", "--quiet", "--allow-empty", "--message", message, cwd=repository)
    bundle = bundle_of(repository, tmp_path, "first")
    before = checked_out(repository)
    subprocess.run(["sh", "-e", "-c", meanwhile], cwd=repository, check=True, env=os.environ | AUTHOR)
    now = git("rev-parse", "HEAD", cwd=repository), git("status", "--porcelain", cwd=repository)
    assert move_branch(repository, bundle, before) == ("main" if moves else "")
    if moves:
        assert git("log", "-1", "--format=%s", "main", cwd=repository).strip() == "first"
        assert (repository / "first").read_text() == "first\n"
    else:
        assert (git("rev-parse", "HEAD", cwd=repository), git("status", "--porcelain", cwd=repository)) == now


def _bring(repository: Path, bundle: Path) -> object:
    return bring_branch(repository, bundle, BRANCH)


def _move(repository: Path, bundle: Path) -> object:
    return move_branch(repository, bundle, checked_out(repository))


def _judge(repository: Path, bundle: Path) -> object:
    return ChangeRepository(bundle.with_suffix(".change"), repository).fetch(bundle)


#: Commits that `git fsck` calls an error, as the shell in a workspace writes them on top of HEAD.
UNSOUND = {
    "no space before the date": "git cat-file commit HEAD | sed 's/> [0-9]/>0/' | git hash-object -t commit -w"
    " --literally --stdin",
    "no author": "git cat-file commit HEAD | sed /^author/d | git hash-object -t commit -w --literally --stdin",
    "a folder .git": "tree=$(printf '40000 .git\\0' | cat - raw | git hash-object -t tree -w --literally --stdin);"
    " git commit-tree -p HEAD -m evil $tree",
    "two entries of one name": "entry() { printf '40000 a\\0'; cat raw; }; tree=$( (entry; entry) |"
    " git hash-object -t tree -w --literally --stdin); git commit-tree -p HEAD -m evil $tree",
}


@pytest.mark.parametrize("unsound", UNSOUND)
@pytest.mark.parametrize("way_in", [_bring, _move, _judge], ids=["a new branch", "the branch in place", "a judge"])
def test_a_commit_that_git_calls_an_error_comes_into_no_repository(
    tmp_path: Path, way_in: Callable[[Path, Path], object], unsound: str
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "--quiet", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "--message", "Begin", cwd=repository)
    git("clone", "--quiet", str(repository), "workspace", cwd=tmp_path)
    workspace = tmp_path / "workspace"
    oid = git("rev-parse", "HEAD^{tree}", cwd=workspace).strip()
    (workspace / "raw").write_bytes(bytes.fromhex(oid))
    made = ["sh", "-e", "-c", f"oid=$({UNSOUND[unsound]}); git update-ref refs/heads/evil $oid; echo $oid"]
    done = subprocess.run(made, cwd=workspace, check=True, env=os.environ | AUTHOR, capture_output=True, text=True)
    evil = done.stdout.strip()
    git("update-ref", "--no-deref", "HEAD", evil, cwd=workspace)
    bundle = tmp_path / "evil.bundle"
    git("bundle", "create", "--quiet", str(bundle), "origin/HEAD..HEAD", "HEAD", cwd=workspace)
    before = git("for-each-ref", cwd=repository), git("rev-parse", "HEAD", cwd=repository)
    with pytest.raises(BoundaryError, match="fsck error in packed object"):
        way_in(repository, bundle)
    assert (git("for-each-ref", cwd=repository), git("rev-parse", "HEAD", cwd=repository)) == before
    held = subprocess.run(["git", "cat-file", "-e", evil], cwd=repository, check=False, capture_output=True)
    assert held.returncode != 0, "the object is in the user's repository"


def test_commits_come_into_a_clone_that_lacks_files_of_its_history(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    git("init", "--quiet", cwd=full)
    git("config", "uploadpack.allowFilter", "true", cwd=full)
    (full / "old").write_text("old\n")
    git("add", ".", cwd=full)
    git("commit", "--quiet", "--message", "Begin", cwd=full)
    bundle = bundle_of(full, tmp_path, "first")
    url = full.as_uri()
    git("clone", "--quiet", "--filter=blob:none", "--no-checkout", url, "partial", cwd=tmp_path)
    assert bring_branch(tmp_path / "partial", bundle, BRANCH) == BRANCH
    assert git("log", "-1", "--format=%s", BRANCH, cwd=tmp_path / "partial").strip() == "first"
