"""The store of snapshots: whole or not there, and nothing is believed that is not what its name says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepflow.errors import InputError, StepflowError
from stepflow.journal.snapshots import SnapshotStore
from tests.journal.sent_snapshots import SentSnapshots

SECRET = b"ghs_0123456789"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def sent(folder: Path, tmp_path: Path) -> SentSnapshots:
    return SentSnapshots(SnapshotStore(folder, secrets=(SECRET,)), tmp_path / "sent")


def read(folder: Path, name: str, at: Path) -> dict[str, bytes]:
    """The files of a snapshot, unpacked by another process from the one pack that a toolbox is sent."""
    resolved = SnapshotStore(folder).resolve(name)
    pack, words = b"".join(resolved.pack()), ["git", f"--git-dir={at}"]
    assert len(pack) == resolved.size
    subprocess.run(["git", "init", "-q", "--bare", str(at)], check=True)
    subprocess.run([*words, "index-pack", "--stdin", "--strict"], input=pack, capture_output=True, check=True)
    listed = subprocess.check_output([*words, "ls-tree", resolved.manifests[name].tree], text=True)
    files = {line.split("\t")[1]: line.split()[2] for line in listed.splitlines()}
    return {path: subprocess.check_output([*words, "cat-file", "blob", blob]) for path, blob in files.items()}


def test_what_came_can_be_read_back_by_another_process(sent: SentSnapshots, folder: Path, tmp_path: Path) -> None:
    first = sent.add({"a": b"one", "b": b""})
    second = sent.add({"a": b"one", "b": b"two", "c": b"three"})
    assert read(folder, second, tmp_path / "2") == {"a": b"one", "b": b"two", "c": b"three"}
    assert read(folder, first, tmp_path / "1") == {"a": b"one", "b": b""}


def test_a_tree_in_which_nothing_changed_keeps_its_name(sent: SentSnapshots, folder: Path) -> None:
    first = sent.add({"a": b"one"})
    assert sent.add({"a": b"one"}) == first
    assert sent.add({"a": b"one"}, head="refs/heads/other") != first
    assert len(list(folder.glob("*.pack"))) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tree": "1" * 40}, "did not come"),
        ({"tree": "../../journal.jsonl"}, "is no snapshot"),
        ({"commit": "--all"}, "is no snapshot"),
        ({"bare": {"x": [1, "large"]}}, "is no snapshot"),
        ({"more": 1}, "is no snapshot"),
    ],
)
def test_nonsense_leaves_nothing_behind(
    sent: SentSnapshots, folder: Path, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        sent.add({"a": b"one"}, **fields)
    assert list(folder.glob("*")) == []


@pytest.mark.parametrize("pack", [b"no pack", b"PACK\0\0\0\2\0\0\0\1", b"PACK\0\0\0\2\0\0\0\1\x33x"])
def test_what_is_no_pack_leaves_nothing_behind(folder: Path, pack: bytes) -> None:
    store = SnapshotStore(folder)
    answer = {"base": "", "tree": "1" * 40, "head": "", "commit": "", "index": "", "left_out": {}, "bare": {}}
    with store.incoming() as coming, pytest.raises(InputError, match="cannot be read"):
        coming.feed(pack)
        store.store(coming, {**answer, "files": 1})
    assert list(folder.glob("*")) == []


def test_a_content_with_a_secret_may_be_withheld_and_is_never_kept(sent: SentSnapshots, folder: Path) -> None:
    name = hashlib.sha1(b"blob %d\0" % len(SECRET) + SECRET, usedforsecurity=False).hexdigest()
    assert sent.send({"a": SECRET, "b": b"two"}) == (name,)
    with pytest.raises(StepflowError, match="A file of the working tree holds a secret"):
        # It is not an old content, so it comes again.
        SentSnapshots(sent.store, folder.parent / "again").send({"a": b"x" + SECRET}, withheld=(name,))
    assert list(folder.glob("*")) == []


def test_a_name_with_a_secret_is_not_kept(sent: SentSnapshots, folder: Path) -> None:
    with pytest.raises(StepflowError, match="A name in the working tree holds a secret"):
        sent.send({SECRET.decode(): b"x"})
    with pytest.raises(StepflowError, match="A name in the working tree holds a secret"):
        sent.send({"a": b"x"}, head=f"refs/heads/{SECRET.decode()}")
    assert list(folder.glob("*")) == []


def test_a_folder_that_cannot_be_written_is_told_when_everything_was_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sent = SentSnapshots(SnapshotStore(tmp_path / "file"), tmp_path / "sent")
    with pytest.raises(StepflowError, match="cannot be written"):
        sent.add({"a": b"one"})


def test_a_store_has_a_limit_and_says_what_room_is_left(folder: Path, tmp_path: Path) -> None:
    store = SnapshotStore(folder, limit=2000)
    SentSnapshots(store, tmp_path).add({"a": b"x"})
    assert 0 < store.free_bytes < 1800
    assert SnapshotStore(folder, limit=2000).free_bytes == store.free_bytes
    assert SnapshotStore(folder, limit=10).free_bytes == 0


def test_a_snapshot_of_another_version_is_refused_with_what_to_do(folder: Path) -> None:
    data = json.dumps({"v": 1, "base": "", "set": {}}).encode()
    folder.mkdir()
    (folder / f"{hashlib.sha256(data).hexdigest()}.json").write_bytes(data)
    with pytest.raises(InputError, match="has version 1; this stepflow reads version 2") as raised:
        SnapshotStore(folder).resolve(hashlib.sha256(data).hexdigest())
    assert "Start a new run" in raised.value.hint


#: Reads a store, or what became of it, and prints how many megabytes that took, in this process or in git's.
READ = """
import contextlib, re, resource, sys
from pathlib import Path
from stepflow.errors import InputError
from stepflow.journal.snapshot_history import SnapshotHistory
folder, name = sys.argv[1:]
with contextlib.suppress(InputError), SnapshotHistory(Path(folder), (name,)):
    pass
# What getrusage says of a process itself counts what its parent had before.
print(int(re.search("VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
MANIFEST = {
    **{"v": 2, "base": "", "tree": "a" * 40, "head": "", "commit": "", "index": ""},
    **{"left_out": {}, "bare": {}, "parent": None, "pack": None},
}
MANY = {f"{number:x}": 1 for number in range(200_000)}


def megabytes(folder: Path, name: str) -> tuple[int, int]:
    """At most used by the process that reads the snapshot, and by one that it starts."""
    own, started = subprocess.check_output([sys.executable, "-c", READ, str(folder), name]).split()
    return int(own), int(started)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in another unit")
@pytest.mark.parametrize("forged", [{"left_out": MANY}, {"bare": MANY}, MANY], ids=["left out", "bare", "unknown keys"])
def test_a_forged_manifest_takes_memory_of_the_order_of_its_size(folder: Path, forged: dict[str, object]) -> None:
    data = json.dumps({**MANIFEST, **forged}).encode()
    name = hashlib.sha256(data).hexdigest()
    folder.mkdir()
    (folder / f"{name}.json").write_bytes(data)
    with pytest.raises(InputError, match="is no snapshot"):
        SnapshotStore(folder).resolve(name)
    # Half of that is Python with what it has loaded.
    assert megabytes(folder, name)[0] < 150


def test_a_manifest_that_is_nested_without_end_is_refused(folder: Path) -> None:
    data = b'{"v": 2, "tree": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    name = hashlib.sha256(data).hexdigest()
    folder.mkdir()
    (folder / f"{name}.json").write_bytes(data)
    with pytest.raises(InputError, match="is no snapshot: it is no JSON"):
        SnapshotStore(folder).resolve(name)


@pytest.mark.whole
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in another unit")
def test_a_large_file_in_a_small_pack_is_not_unpacked_in_memory(sent: SentSnapshots, folder: Path) -> None:
    name = sent.add({"large": bytes(120_000_000)})
    assert (folder / f"{name}.pack").stat().st_size < 1_000_000
    assert megabytes(folder, name)[1] < 100
