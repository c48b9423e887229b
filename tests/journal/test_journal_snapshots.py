"""The store of snapshots: whole or not there, and nothing is believed that is not what its name says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from stepflow.errors import InputError, StepflowError
from stepflow.journal.snapshots import SnapshotStore


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sent(files: dict[str, bytes], **fields: object) -> bytes:
    entries = {path: ["file", 0o644, digest(data), len(data)] for path, data in files.items()}
    whole = {"base": "", "modes": [0o644, 0o755, 0o755], "whole": True, "set": entries, "drop": [], "packs": []}
    return json.dumps({**whole, **fields}).encode()


def keep(store: SnapshotStore, blobs: list[bytes], manifest: bytes) -> str:
    with store.incoming() as coming:
        for blob in blobs:
            coming.begin_blob(len(blob))
            for byte in range(0, len(blob), 3):
                coming.feed(blob[byte : byte + 3])
        return store.store(coming, manifest).name


def read(folder: Path, name: str) -> list[bytes]:
    store = SnapshotStore(folder)
    return [b"".join(pieces) for _, pieces in store.blobs(store.resolve(name))]


def test_what_came_can_be_read_back_by_another_process(tmp_path):
    name = keep(SnapshotStore(tmp_path / "s"), [b"", b"one", b"three"], sent({"a": b"one", "b": b"three", "c": b""}))
    assert read(tmp_path / "s", name) == [b"one", b"three", b""]


def test_a_whole_snapshot_after_a_resume_is_stored_as_what_changed(tmp_path):
    store = SnapshotStore(tmp_path)
    first = keep(store, [b"one"], sent({"a": b"one"}))
    assert keep(store, [b"one"], sent({"a": b"one"})) == first
    second = keep(store, [b"one", b"two"], sent({"a": b"one", "b": b"two"}))
    assert (tmp_path / f"{second}.blobs").read_bytes() == b"two"
    assert read(tmp_path, second) == [b"one", b"two"]
    assert read(tmp_path, first) == [b"one"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (sent({"a": b"never came"}), "did not come"),
        (b"{}", "is no snapshot"),
        (b"\xff", "is no snapshot"),
        (sent({}, set={"a": ["file", 0o4755, digest(b"one"), 3]}), "is no snapshot"),
        (sent({}, set={"a": ["file", 0o644, "../../journal.jsonl", 3]}), "is no snapshot"),
        (sent({}, more=1), "is no snapshot"),
        (sent({"a": b"one"}, whole=False), "builds on one that is not there"),
    ],
)
def test_nonsense_leaves_nothing_behind(tmp_path, manifest, said):
    with pytest.raises(InputError, match=said):
        keep(SnapshotStore(tmp_path), [b"one"], manifest)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_when_everything_was_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StepflowError, match="cannot be written"):
        keep(SnapshotStore(tmp_path / "file"), [b"one"], sent({"a": b"one"}))


def test_a_store_has_a_limit_and_says_what_room_is_left(tmp_path):
    store = SnapshotStore(tmp_path, limit=2000)
    keep(store, [b"x" * 1000], sent({"a": b"x" * 1000}))
    assert 0 < store.free_bytes < 1000
    assert SnapshotStore(tmp_path, limit=2000).free_bytes == store.free_bytes
    assert SnapshotStore(tmp_path, limit=10).free_bytes == 0
