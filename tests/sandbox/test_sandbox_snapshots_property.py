"""Whatever a tree looks like: what is put back is what was there, byte for byte (issue 5, acceptance 6).

As in git itself, folders without files, rights but the one to run a file, and what is in a repository inside the
repository are no part of that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snapshot_world import copy_of, listing, worked
from toolbox_world import AS_ROOT, reachable_folder

from stepflow.domain.event import SnapshotTaken

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]

#: Composed and decomposed, line breaks, what git and shells read signs into, bytes that are no text.
PARTS = (
    "a",
    "b",
    "é",
    "e\u0301",
    "x\ny",
    " ",
    "-f",
    ":(top)",
    "*",
    "?[",
    '"',
    "\\",
    "#h",
    "!n",
    "ü.log",
    "\udcff",
    "日本",
)
NAME = st.sampled_from(PARTS) | st.tuples(st.sampled_from(PARTS), st.sampled_from(PARTS)).map("".join)
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)
CONTENT = st.sampled_from(
    [b"", b"one\n", b"one\r\ntwo\r\n", b"one\r\ntwo\n", b"\0\xff\r\n", b"x" * 70_000, b"#!/bin/sh\n"]
) | st.binary(max_size=60)
MODE = st.sampled_from([0o644, 0o600, 0o755, 0o640, 0o666, 0o444, 0o700])
OPERATION = st.one_of(
    st.tuples(st.just("write"), PATH, CONTENT, MODE),
    st.tuples(st.just("write"), PATH, CONTENT, MODE),
    st.tuples(st.just("link"), PATH, st.sampled_from(["/etc/passwd", "nowhere", "..", "a", "é/../b"])),
    st.tuples(st.just("folder"), PATH, st.sampled_from([0o755, 0o700, 0o750])),
    st.tuples(st.just("remove"), PATH),
    st.tuples(st.just("stage"), PATH),
    st.tuples(st.just("unstage"), PATH),
    st.tuples(st.just("nested"), PATH),
    st.tuples(st.just("ignore"), st.sampled_from(["", "*.log\n", "a/\n", "!x\n*b\n"])),
    st.tuples(st.just("attributes"), st.sampled_from(["* text=auto\n", "* text eol=crlf\n", ""])),
    st.tuples(st.just("commit")),
    st.tuples(st.just("branch"), st.sampled_from(["work", "é/x"])),
    st.tuples(st.just("detach")),
    st.tuples(st.just("status")),
)
OPERATIONS = st.lists(OPERATION, max_size=12)


def git(folder: Path, *words: str) -> None:
    """May fail: what is asked for is drawn by lot."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    words = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "safe.directory=*", *words)
    subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, check=False)


def work(root: Path, operations: list[tuple], uid: int = -1, gid: int = -1) -> None:
    """Do all of it, and let everything belong to the tools' user, as if that one had done it."""
    for kind, *rest in operations:
        globals()[f"do_{kind}"](root, *rest)
    if uid >= 0 and AS_ROOT:
        for path in (root, *root.rglob("*")):
            os.chown(path, uid, gid, follow_symlinks=False)


def free(path: Path, root: Path) -> Path | None:
    """The path with nothing there any more, None when a link leads out on the way."""
    for above in reversed(path.parents):
        if root in above.parents and (above.is_symlink() or above.is_file()):
            above.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def do_write(root: Path, path: str, content: bytes, mode: int) -> None:
    target = free(root / path, root)
    target.write_bytes(content)
    target.chmod(mode)


def do_link(root: Path, path: str, target: str) -> None:
    free(root / path, root).symlink_to(target)


def do_folder(root: Path, path: str, mode: int) -> None:
    target = free(root / path, root)
    target.mkdir()
    target.chmod(mode)


def do_remove(root: Path, path: str) -> None:
    free(root / path, root)


def do_stage(root: Path, path: str) -> None:
    git(root, "--literal-pathspecs", "add", "-f", "--", path)


def do_unstage(root: Path, path: str) -> None:
    git(root, "--literal-pathspecs", "rm", "-rq", "--cached", "--", path)


def do_nested(root: Path, path: str) -> None:
    """A snapshot leaves such a folder out, so it never stands in the place of a tracked file."""
    tracked = ["git", "-c", "safe.directory=*", "ls-files", "--error-unmatch", "--", f":(literal){path}"]
    if subprocess.run(tracked, cwd=root, capture_output=True, check=False).returncode == 0:
        return
    target = free(root / path, root)
    target.mkdir()
    git(target, "init", "-q")
    (target / "in.log").write_text("in\n")
    git(target, "add", "-f", "in.log")
    git(target, "commit", "-qm", "inner")


def do_ignore(root: Path, rules: str) -> None:
    (root / ".gitignore").write_text(rules)


def do_attributes(root: Path, rules: str) -> None:
    (root / ".gitattributes").write_text(rules)


def do_commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "more")


def do_branch(root: Path, name: str) -> None:
    git(root, "checkout", "-q", "-B", name)


def do_detach(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")


def do_status(root: Path) -> None:
    git(root, "status")


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(OPERATIONS, OPERATIONS, OPERATIONS, OPERATIONS)
def test_any_tree_comes_back_in_the_same_checkout_and_in_a_fresh_clone(begin, first, second, mess):
    with reachable_folder() as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        git(checkout, "init", "-q", "--initial-branch", "main")
        work(checkout, [*begin, ("write", "kept", b"k\r\n", 0o644), ("commit",)])
        clone = copy_of(checkout, folder / "clone")
        wanted = []
        with worked(checkout, folder / "run") as one:
            user = (one.box.toolbox.uid, one.box.toolbox.gid)
            one.snapshots.take()
            for operations in (first, second):
                work(checkout, operations, *user)
                wanted.append((one.snapshots.take(), listing(checkout)))
            work(checkout, mess, *user)
            for info, before in reversed(wanted):
                assert isinstance(info, SnapshotTaken)
                one.snapshots.restore(info.name)
                assert listing(checkout) == before
        with worked(clone, folder / "run") as two:
            for info, before in wanted:
                two.snapshots.restore(info.name)
                assert listing(clone) == before


def test_the_listing_sees_what_it_must(tmp_path):
    """The comparison above would be worth nothing if it overlooked one of these."""
    git(tmp_path, "init", "-q")
    work(tmp_path, [("write", "a", b"1\n", 0o644), ("commit",)])
    seen = [listing(tmp_path)]
    for operation in (
        ("write", "a", b"1\r\n", 0o644),
        ("write", "a", b"1\r\n", 0o755),
        ("stage", "a"),
        ("link", "é", "a"),
        ("branch", "other"),
        ("commit",),
        ("remove", "a"),
    ):
        work(tmp_path, [operation])
        seen.append(listing(tmp_path))
    assert all(one != next_one for one, next_one in pairwise(seen))
