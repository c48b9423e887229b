"""A run's commits come into the user's own repository as a new branch, whatever branches are there."""

from __future__ import annotations

from pathlib import Path

from stepflow.sandbox.local_branch import fetch_branch
from tests.checkout import git

BRANCH = "stepflow/fixer/issue-7"


def bundle_of(repository: Path, folder: Path, message: str) -> Path:
    """One more commit on top of HEAD, which stays where it is, as a bundle."""
    base = git("rev-parse", "HEAD", cwd=repository).strip()
    git("commit", "--quiet", "--allow-empty", "--message", message, cwd=repository)
    git("bundle", "create", "--quiet", str(folder / f"{message}.bundle"), f"{base}..HEAD", cwd=repository)
    git("reset", "--quiet", "--hard", base, cwd=repository)
    return folder / f"{message}.bundle"


def test_every_run_for_an_issue_keeps_its_commits_on_a_branch_of_its_own(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "--quiet", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "--message", "Begin", cwd=repository)
    messages = ("first", "second", "third", "fourth")
    names = [fetch_branch(repository, bundle_of(repository, tmp_path, each), BRANCH) for each in messages]
    assert names == [BRANCH, f"{BRANCH}-2", f"{BRANCH}-3", f"{BRANCH}-4"]
    tips = [git("log", "-1", "--format=%s", name, cwd=repository).strip() for name in names]
    assert tips == list(messages)
