"""Snapshots as a toolbox sends them: real packs of git, and what is said of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from stepflow.domain.checkout import SnapshotInfo
from stepflow.journal.snapshots import SnapshotStore


class SentSnapshots:
    """Fills a store. `folder` holds the repository that the packs come from."""

    def __init__(self, store: SnapshotStore, folder: Path) -> None:
        self.store, self._files, self._git_dir = store, folder / "files", folder / "sent.git"
        self._files.mkdir(parents=True)
        self._git("init", "-q")
        self._tree = ""

    def add(self, files: Mapping[str, bytes], **fields: object) -> str:
        """Store a snapshot with these files; gives its name. `fields` are said of it instead of what is true."""
        stored = self.send(files, **fields)
        assert isinstance(stored, SnapshotInfo)
        return stored.name

    def send(
        self, files: Mapping[str, bytes], *, withheld: tuple[str, ...] = (), **fields: object
    ) -> SnapshotInfo | tuple[str, ...]:
        """The same, for what may be withheld."""
        for path in self._files.iterdir():
            path.unlink()
        for name, data in files.items():
            (self._files / name).write_bytes(data)
        self._git("add", "-A")
        tree, before = self._git("write-tree").decode().strip(), self._tree
        excluded = [f"^{before}"] if before else []
        objects = self._git("rev-list", "--objects", "--no-object-names", tree, *excluded).decode().split()
        names = "".join(f"{name}\n" for name in objects if name not in withheld).encode()
        pack = self._git("pack-objects", "--stdout", "-q", "--window=0", given=names)
        empty = {"base": "", "head": "refs/heads/main", "commit": "", "index": "", "left_out": {}, "bare": {}}
        with self.store.incoming() as coming:
            for start in range(0, len(pack) if tree != before else 0, 1000):
                coming.feed(pack[start : start + 1000])
            stored = self.store.store(coming, {**empty, "tree": tree, "files": 1, **fields}, withheld=withheld)
        self._tree = tree
        return stored

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        env = {
            "PATH": os.environ["PATH"],
            "GIT_DIR": str(self._git_dir),
            "GIT_WORK_TREE": str(self._files),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": "/nonexistent",
        }
        return subprocess.run(["git", *words], env=env, input=given, capture_output=True, check=True).stdout
