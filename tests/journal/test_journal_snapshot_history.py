"""Walking along a run's snapshots: what changed from one to the next, with nothing believed that is damaged."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from stepflow.domain.checkout import LINK, PLAIN, PROGRAM, FileSide
from stepflow.errors import InputError
from stepflow.journal.snapshot_history import SnapshotHistory
from stepflow.journal.snapshots import SnapshotStore

SECRET = b"ghs_0123456789"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(data: bytes, mode: int = 0o644) -> list[object]:
    return ["file", mode, digest(data), len(data)]


class RunSnapshots:
    """A store with snapshots that a toolbox sent."""

    def __init__(self, folder: Path, secrets: tuple[bytes, ...] = ()) -> None:
        self.folder = folder
        self.store = SnapshotStore(folder, secrets=secrets)

    def add(self, entries: dict[str, object], *blobs: bytes, base: tuple[bytes, ...] = (), **fields: object) -> str:
        head = {"base": "a" * 40, "modes": [0o644, 0o755, 0o755], "whole": not self.store.last}
        sent = {**head, "set": entries, "drop": [], "packs": [], **fields}
        with self.store.incoming() as coming:
            for needed, data in (*((True, data) for data in blobs), *((False, data) for data in base)):
                coming.begin_blob(len(data), needed=needed)
                coming.feed(data)
            return self.store.store(coming, json.dumps(sent).encode()).name

    def changes(self, *names: str) -> list[dict[str, tuple[FileSide | None, FileSide | None]]]:
        """What each step from one name to the next changed."""
        history = SnapshotHistory(self.folder)
        steps = []
        for name in names:
            was = history.move(name)
            steps.append(
                {path: (history.side(path, one), history.side(path, history.entry(path))) for path, one in was.items()}
            )
        return steps


def text(data: bytes, mode: int = PLAIN) -> FileSide:
    return FileSide(mode=mode, size=len(data), content=data)


@pytest.fixture
def snapshots(tmp_path: Path) -> RunSnapshots:
    return RunSnapshots(tmp_path / "snapshots", (SECRET,))


def test_each_step_tells_what_became_of_its_paths(snapshots: RunSnapshots) -> None:
    first = snapshots.add({"dirty": file(b"dirty")}, b"dirty")
    second = snapshots.add(
        {"a": file(b"two"), "new": file(b"new", 0o755), "link": ["link", "a"], "gone": ["gone"]},
        *(b"two", b"new"),
        base=(b"one", b"g"),
        origins={"a": file(b"one"), "gone": file(b"g", 0o755)},
    )
    third = snapshots.add({"new": file(b"newer")}, b"newer", drop=["a", "link"], origins={})
    steps = snapshots.changes(first, second, third)
    assert steps[0] == {}
    assert steps[1] == {
        "a": (text(b"one"), text(b"two")),
        "new": (None, text(b"new", PROGRAM)),
        "link": (None, text(b"a", LINK)),
        "gone": (text(b"g", PROGRAM), None),
    }
    assert steps[2] == {
        "new": (text(b"new", PROGRAM), text(b"newer")),
        "a": (text(b"two"), text(b"one")),
        "link": (text(b"a", LINK), None),
    }


def test_the_base_s_content_with_a_secret_is_not_kept_and_the_snapshot_is(snapshots: RunSnapshots) -> None:
    old = b"token = " + SECRET
    first = snapshots.add({})
    second = snapshots.add({"a": file(b"token = ...")}, b"token = ...", base=(old,), origins={"a": file(old)})
    assert SECRET not in b"".join(path.read_bytes() for path in snapshots.folder.iterdir())
    (before, after) = snapshots.changes(first, second)[1]["a"]
    assert before == FileSide(mode=PLAIN, size=len(old), why="a secret of the run is in it")
    assert after == text(b"token = ...")


def test_a_file_with_a_secret_still_ends_the_snapshot_when_the_base_has_it_too(snapshots: RunSnapshots) -> None:
    snapshots.add({})
    with pytest.raises(Exception, match="holds a secret"):
        snapshots.add({"b": file(SECRET)}, SECRET, base=(SECRET,), origins={})


def test_what_the_base_holds_may_be_told_without_its_content(snapshots: RunSnapshots) -> None:
    bare = ["bare", 0o755, 9_000_000, "large"]
    first = snapshots.add({})
    second = snapshots.add(
        {"a": file(b"x"), "m": ["base", 0o755]}, b"x", base=(b"m",), origins={"a": bare, "m": file(b"m")}
    )
    steps = snapshots.changes(first, second)[1]
    assert steps["a"][0] == FileSide(mode=PROGRAM, size=9_000_000, why="too large to be shown")
    assert steps["m"] == (text(b"m"), text(b"m", PROGRAM))


@pytest.mark.parametrize("fields", [{}, {"origins": None}], ids=["an older store", "git could not tell"])
def test_what_nobody_told_is_unknown_and_not_taken_for_nothing(
    snapshots: RunSnapshots, fields: dict[str, object]
) -> None:
    first = snapshots.add({})
    second = snapshots.add({"a": file(b"x")}, b"x", **fields)
    before, after = snapshots.changes(first, second)[1]["a"]
    assert before is not None
    assert (before.content, before.why) == (None, "it is not kept what the base holds there")
    assert after == text(b"x")


def test_going_back_to_an_earlier_snapshot_undoes_what_came_after_it(snapshots: RunSnapshots) -> None:
    first = snapshots.add({})
    second = snapshots.add({"a": file(b"x")}, b"x", origins={})
    assert snapshots.changes(first, second, first)[2] == {"a": (text(b"x"), None)}


def test_a_toolbox_that_was_started_anew_makes_nothing_unsure_that_was_sure(snapshots: RunSnapshots) -> None:
    first = snapshots.add({"dirty": file(b"d")}, b"d")
    second = snapshots.add({"a": file(b"x"), "c": file(b"c")}, b"x", b"c", base=(b"one",), origins={"a": file(b"one")})
    third = snapshots.add({"b": file(b"b")}, b"b", whole=True, origins={})
    steps = snapshots.changes(first, second, third)[2]
    assert steps["a"] == (text(b"x"), text(b"one"))
    assert steps["b"] == (None, text(b"b"))
    assert steps["c"] == (text(b"c"), None)
    after = steps["dirty"][1]
    assert after is not None
    assert after.content is None


def cut(snapshots: RunSnapshots, name: str) -> None:
    (snapshots.folder / f"{name}.blobs").write_bytes(b"")


def forged(snapshots: RunSnapshots, name: str) -> None:
    (snapshots.folder / f"{name}.json").write_bytes(b"{}")


def removed(snapshots: RunSnapshots, name: str) -> None:
    (snapshots.folder / f"{name}.json").unlink()


def linked(snapshots: RunSnapshots, name: str) -> None:
    removed(snapshots, name)
    (snapshots.folder / f"{name}.json").symlink_to("/dev/zero")


def piped(snapshots: RunSnapshots, name: str) -> None:
    cut(snapshots, name)
    (snapshots.folder / f"{name}.blobs").unlink()
    os.mkfifo(snapshots.folder / f"{name}.blobs")


def elsewhere(snapshots: RunSnapshots, name: str) -> None:
    moved = snapshots.folder.rename(snapshots.folder.with_name("moved"))
    snapshots.folder.symlink_to(moved)


def gone(snapshots: RunSnapshots, name: str) -> None:
    snapshots.folder.rename(snapshots.folder.with_name("moved"))


@pytest.mark.parametrize("damage", [cut, forged, removed, linked, piped, elsewhere, gone])
def test_a_store_that_is_damaged_or_leads_elsewhere_is_refused(snapshots: RunSnapshots, damage) -> None:
    first = snapshots.add({})
    second = snapshots.add({"a": file(b"x")}, b"x", origins={})
    damage(snapshots, second)
    with pytest.raises(InputError, match=r"damaged|cannot be read|is a link or no file"):
        snapshots.changes(first, second)


def test_a_content_of_another_size_than_told_is_refused(snapshots: RunSnapshots) -> None:
    first = snapshots.add({})
    second = snapshots.add({"a": ["file", 0o644, digest(b"x"), 7]}, b"x", origins={})
    with pytest.raises(InputError, match="damaged"):
        snapshots.changes(first, second)
