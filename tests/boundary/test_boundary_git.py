"""The boundary's own git: bounded in time and output, and a diff of trees that agrees with git's."""

import os
import shutil
from pathlib import Path

import pytest

from stepflow.boundary.bundle_push import MOST_ENTRIES, REMOVED, compare_trees
from stepflow.boundary.git import Git, GitFailed, Remote, TooMuch
from tests.boundary.checkout import Checkout
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer

REMOTE = Remote(url="https://github.com/o/r.git", token=TOKEN)


def test_a_git_that_hangs_is_stopped(tmp_path: Path) -> None:
    git = Git(tmp_path / "r.git", REMOTE, local_seconds=2)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb"), pytest.raises(GitFailed, match="longer than 2 seconds"):
        git.run_on_file("hash-object", "--stdin", file=file)


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


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Checkout, Git]:
    """A checkout, and a `Git` that sees its objects."""
    origin = tmp_path / "origin.git"
    git = Git(origin, REMOTE)
    return Checkout(tmp_path / "checkout", origin), git


def differing(checkout: Checkout, git: Git) -> list[tuple[str, str]]:
    checkout.commit()
    checkout.git("push", "--quiet", "--force", str(checkout.origin), "HEAD:work")
    base, tip = (checkout.git("rev-parse", f"{commit}^{{tree}}") for commit in (checkout.base, "HEAD"))
    raw = checkout.git("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base, tip).split("\0")
    expected = [(path, head.split(" ")[1], head.split(" ")[3]) for head, path in zip(raw[::2], raw[1::2], strict=False)]
    changes = compare_trees(git, base, [tip])
    assert [(entry.path, entry.mode, entry.oid) for entry in changes] == sorted(expected)
    return [(entry.path, entry.mode) for entry in changes]


def test_the_diff_of_trees_agrees_with_gits(trees: tuple[Checkout, Git]) -> None:
    checkout, git = trees
    shutil.rmtree(checkout.folder / ".github")
    (checkout.folder / ".github").symlink_to("src")
    (checkout.folder / "src" / "parser.py").chmod(0o755)
    (checkout.folder / "README.md").unlink()
    checkout.write("README.md/now/a/folder.txt", "x\n")
    checkout.write("deep/er/ü ü.txt", "x\n")
    assert differing(checkout, git) == [
        (".github", "120000"),
        (".github/workflows/ci.yml", REMOVED),
        ("README.md", REMOVED),
        ("README.md/now/a/folder.txt", "100644"),
        ("deep/er/ü ü.txt", "100644"),
        ("src/parser.py", "100755"),
    ]


def test_nothing_differs_from_itself(trees: tuple[Checkout, Git]) -> None:
    checkout, git = trees
    assert differing(checkout, git) == []


def test_a_diff_of_very_many_paths_is_too_much(trees: tuple[Checkout, Git]) -> None:
    checkout, git = trees
    blob = checkout.git("hash-object", "-w", "--stdin", stdin=b"x")
    entries = "".join(f"100644 blob {blob}\tf{number}\n" for number in range(MOST_ENTRIES + 1))
    checkout.git(
        "update-ref", "HEAD", checkout.git("commit-tree", checkout.git("mktree", stdin=entries.encode()), "-m", "x")
    )
    checkout.git("push", "--quiet", str(checkout.origin), "HEAD:work")
    base, tip = (checkout.git("rev-parse", f"{commit}^{{tree}}") for commit in (checkout.base, "HEAD"))
    with pytest.raises(TooMuch, match="more than 20000 paths"):
        compare_trees(git, base, [tip])


def test_a_diff_of_very_deep_folders_is_too_much(trees: tuple[Checkout, Git]) -> None:
    checkout, git = trees
    checkout.write("/".join(["d"] * 101) + "/f", "x\n")
    with pytest.raises(TooMuch, match="more than 100 deep"):
        differing(checkout, git)
