"""The store of snapshots: whole or not there, and nothing is believed that is damaged or leads elsewhere."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.domain.checkout import FileDiff, SnapshotDiffs, StepDiff
from stepflow.errors import InputError, StepflowError
from stepflow.run.snapshots import SnapshotStore

NAME, LONG_NAME = "a" * 40, "b" * 64
DIFFS = SnapshotDiffs(
    step=StepDiff(files=(FileDiff(path="a", text="é\n+1", added=1),), notes=("… 2 more files left out",))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def add(folder: Path, name: str = NAME, *, content: bytes = b"PACK and so on", limit: int = 10_000) -> SnapshotStore:
    """A store with one snapshot, whose pack ends as one of git does."""
    store = SnapshotStore(folder, limit=limit)
    digest = hashlib.new("sha1" if len(name) == 40 else "sha256", content, usedforsecurity=False).digest()
    store.add(name, io.BytesIO(content + digest), DIFFS)
    return store


@pytest.mark.parametrize("name", [NAME, LONG_NAME])
def test_what_was_added_can_be_read_back(folder: Path, name: str) -> None:
    add(folder, name)
    store = SnapshotStore(folder)
    store.check([name])
    assert store.packs() == [folder / f"{name}.pack"]
    assert store.diffs(name) == DIFFS


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StepflowError, match="cannot be written"):
        add(tmp_path / "file")


def test_a_store_has_a_limit_and_says_what_room_is_left(folder: Path) -> None:
    store = add(folder, limit=2000)
    assert 0 < store.free_bytes < 1970
    assert SnapshotStore(folder, limit=2000).free_bytes == store.free_bytes
    assert SnapshotStore(folder, limit=10).free_bytes == 0


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"a", b"\0"))


def removed(path: Path) -> None:
    path.unlink()


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [emptied, cut, changed, removed])
def test_a_pack_that_is_damaged_is_refused(folder: Path, damage: Callable[[Path], None]) -> None:
    store = add(folder)
    damage(folder / f"{NAME}.pack")
    with pytest.raises(InputError, match=r"damaged|cannot be read"):
        store.check([NAME])


@pytest.mark.parametrize("name", ["", "x", "../" + NAME, NAME[1:], NAME + "\n"])
def test_a_name_that_is_none_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="There is no snapshot"):
        add(folder).check([name])


@pytest.mark.parametrize("damage", [emptied, cut, changed, removed, linked, piped])
def test_a_text_that_is_damaged_or_leads_elsewhere_is_refused(folder: Path, damage: Callable[[Path], None]) -> None:
    store = add(folder)
    damage(folder / f"{NAME}.json")
    with pytest.raises(InputError, match=r"damaged|cannot be read"):
        store.diffs(NAME)


@pytest.mark.parametrize("forged", [{"step": []}, {"step": {"files": [{"path": 1}] * 100_000}}, "[" * 1_000_000])
def test_a_forged_text_is_refused(folder: Path, forged: object) -> None:
    store = add(folder)
    (folder / f"{NAME}.json").write_text(forged if isinstance(forged, str) else json.dumps(forged))
    with pytest.raises(InputError, match="damaged"):
        store.diffs(NAME)
