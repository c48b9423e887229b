"""Reading along a run's snapshots: what changed from one to another, with nothing believed that is damaged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.domain.checkout import PLAIN, FileSide
from stepflow.errors import InputError
from stepflow.journal.snapshot_history import UNKNOWN, SnapshotHistory
from stepflow.journal.snapshots import SnapshotStore
from tests.journal.sent_snapshots import SentSnapshots

Sides = tuple[FileSide | None, FileSide | None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def sent(folder: Path, tmp_path: Path) -> SentSnapshots:
    return SentSnapshots(SnapshotStore(folder), tmp_path / "sent")


def changes(folder: Path, before: str, after: str) -> dict[str, Sides]:
    with SnapshotHistory(folder, (before, after)) as history:
        shown = {path: history.change(path, *both) for path, both in history.changes(before, after).items()}
    return {path: (change.before, change.after) for path, change in shown.items()}


def text(data: bytes) -> FileSide:
    return FileSide(mode=PLAIN, size=len(data), content=data)


def test_any_two_snapshots_tell_what_became_of_their_files(sent: SentSnapshots, folder: Path) -> None:
    first = sent.add({"a": b"one", "gone": b"g"})
    second = sent.add({"a": b"two", "new": b"n"})
    there = {"a": (text(b"one"), text(b"two")), "gone": (text(b"g"), None), "new": (None, text(b"n"))}
    assert changes(folder, first, second) == there
    assert changes(folder, second, first) == {path: both[::-1] for path, both in there.items()}


def test_what_was_left_out_says_why(sent: SentSnapshots, folder: Path) -> None:
    first = sent.add({"a": b"one", "b": b"b"})
    second = sent.add({"b": b"b"}, left_out={"a": "has more bytes", "c": "permission denied"})
    assert changes(folder, first, second) == {
        "a": (text(b"one"), FileSide(why="has more bytes")),
        "c": (None, FileSide(why="permission denied")),
    }


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ("large", "too large to be shown"),
        ("many", "too much changed at once"),
        ("missing", "the repository does not have it"),
        ("secret", "a secret of the run is in it"),
    ],
)
def test_a_content_that_is_not_kept_says_why(sent: SentSnapshots, folder: Path, why: str, shown: str) -> None:
    name = hashlib.sha1(b"blob 3\0one", usedforsecurity=False).hexdigest()
    first = sent.send({"a": b"one"}, withheld=(name,)).name
    second = sent.add({"a": b"two"}, bare={name: [3, why]})
    assert changes(folder, first, second)["a"][0] == FileSide(mode=PLAIN, size=3, why=shown)
    third = sent.add({})
    assert changes(folder, second, third)["a"] == (text(b"two"), None)


def test_a_content_of_which_nothing_is_known_is_not_taken_for_nothing(sent: SentSnapshots, folder: Path) -> None:
    name = hashlib.sha1(b"blob 3\0one", usedforsecurity=False).hexdigest()
    first = sent.send({"a": b"one"}, withheld=(name,)).name
    assert changes(folder, first, sent.add({"a": b"two"}))["a"][0] == UNKNOWN


def cut(folder: Path, name: str) -> None:
    (folder / f"{name}.pack").write_bytes(b"")


def forged(folder: Path, name: str) -> None:
    (folder / f"{name}.json").write_bytes(b"{}")


def removed(folder: Path, name: str) -> None:
    (folder / f"{name}.json").unlink()


def linked(folder: Path, name: str) -> None:
    removed(folder, name)
    (folder / f"{name}.json").symlink_to("/dev/zero")


def piped(folder: Path, name: str) -> None:
    (folder / f"{name}.pack").unlink()
    os.mkfifo(folder / f"{name}.pack")


def elsewhere(folder: Path, _: str) -> None:
    folder.symlink_to(folder.rename(folder.with_name("moved")))


def gone(folder: Path, _: str) -> None:
    folder.rename(folder.with_name("moved"))


@pytest.mark.parametrize("damage", [cut, forged, removed, linked, piped, elsewhere, gone])
def test_a_store_that_is_damaged_or_leads_elsewhere_is_refused(
    sent: SentSnapshots, folder: Path, damage: Callable[[Path, str], None]
) -> None:
    first = sent.add({})
    second = sent.add({"a": b"x"})
    damage(folder, second)
    with pytest.raises(InputError, match=r"damaged|cannot be read|is a link or no file"):
        changes(folder, first, second)
