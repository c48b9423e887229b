"""A run's commits come into the user's own repository as a new branch, whatever branches are there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

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
