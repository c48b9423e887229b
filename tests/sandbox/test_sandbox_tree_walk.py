"""Folders in which somebody else works while they are walked, copied or removed: what vanishes is no failure."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.sandbox.copies import copy_checkout
from stepflow.sandbox.credentials.files import Budget, opened_folder, read_tree
from stepflow.sandbox.tree_walk import noted, remove_path, walk


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/file", "b/c/d/file", "b/e/file", "last"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("here")
    return tmp_path / "tree"


#: When the walk is at this path, that one vanishes.
VANISHING = [("/a", "a"), ("/a", "last"), ("/b/c/d", "b/c/d"), ("/b/c/d/file", "b/c"), ("/b/c/d/file", "b")]


@pytest.mark.parametrize(("at", "vanishes"), VANISHING)
def test_what_vanishes_during_a_walk_is_left_out(tree: Path, at: str, vanishes: str) -> None:
    left: list[str] = []
    seen = set()
    for entry in walk(tree, left):
        if entry.path.decode() == at:
            gone = tree / vanishes
            gone.unlink() if gone.is_file() else shutil.rmtree(gone)
        with noted(entry.path, left):
            entry.info()
            seen.add(entry.path.decode())
    assert left == []
    there = {f"/{path.relative_to(tree)}" for path in tree.rglob("*")}
    assert there <= seen


def test_a_folder_that_is_moved_away_during_a_walk_leads_nowhere_else(tree: Path) -> None:
    elsewhere = tree.parent / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    (elsewhere / "secret").write_text("not in the tree")
    left: list[str] = []
    seen = []
    for entry in walk(tree, left):
        seen.append(entry.path.decode())
        if entry.path == b"/b/c/d/file":
            (tree / "b/c").rename(elsewhere / "inner/c")
    assert left == []
    assert {"/b/e/file", "/a/file"} <= set(seen)
    assert not any("secret" in path for path in seen)


def test_a_closed_folder_is_still_a_failure(tree: Path) -> None:
    left: list[str] = []
    with noted(b"/a", left):
        raise PermissionError(13, "Permission denied")
    assert left == ["a: Permission denied"]


def test_what_vanishes_is_no_part_of_what_is_remembered(tree: Path) -> None:
    with opened_folder(tree.parent.resolve()) as folder:
        assert read_tree(folder, "nothing", tree, Budget()) == ()
        (tree / "link").symlink_to("last")
        names = {node.path for node in read_tree(folder, "tree", tree, Budget())}
    assert {"", "/a/file", "/link"} <= names


def test_files_that_vanish_while_a_checkout_is_copied_are_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for number in range(2000):
        (source / f"{number:04}").write_text("here")

    def remove_last() -> None:
        while not (target / "0000").exists():
            pass
        for number in range(1999, 1900, -1):
            (source / f"{number:04}").unlink()

    remover = threading.Thread(target=remove_last)
    remover.start()
    copy_checkout(source, target)
    remover.join()
    assert {f"{number:04}" for number in range(1900)} <= {path.name for path in target.iterdir()}


def nest(top: Path, depth: int) -> None:
    """So many folders, one in the other, which no path can name."""
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


def calls_of(work: Callable[[], object]) -> list[str]:
    """The names of the functions that the work calls, in their order: what it costs, whatever else the machine does."""
    called: list[str] = []

    def follow(frame: object, event: str, function: object) -> None:
        if event in ("call", "c_call"):
            called.append(getattr(function, "__name__", ""))

    sys.setprofile(follow)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.parametrize("work", [lambda top: list(walk(top, [])), remove_path], ids=["walk", "remove"])
def test_the_cost_of_a_folder_does_not_grow_with_its_depth(open_folder: Path, work: Callable[[Path], object]) -> None:
    for name, depth in (("short", 300), ("long", 900)):
        nest(open_folder / name, depth)
    short, long = (len(calls_of(lambda name=name: work(open_folder / name))) for name in ("short", "long"))
    assert long < 3.1 * short
    remove_path(open_folder / "long")
    remove_path(open_folder / "short")
    assert list(open_folder.iterdir()) == []


def test_a_folder_is_read_once_however_many_are_in_it(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"top/{number}").mkdir(parents=True)
    assert calls_of(lambda: remove_path(tmp_path / "top")).count("scandir") == 301
    assert list(tmp_path.iterdir()) == []
