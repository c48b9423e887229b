"""Gives the checkout to the tools' user and takes it back as it was (security.md "At the end")."""

from __future__ import annotations

import base64
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, Self, cast

from stepflow.errors import IsolationError
from stepflow.sandbox.identity import Identity
from stepflow.sandbox.tree_walk import noted, walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepflow.domain.json import JsonObject
    from stepflow.sandbox.tree_walk import Entry

    Facts = tuple[int, int, int]


class Ownership:
    """Who owns the checkout. `was` holds owner, group and mode of every path at the start; equals share one tuple."""

    def __init__(self, root: Path, identity: Identity) -> None:
        info = root.stat()
        self.root = root
        self.identity = identity
        self.owner = (info.st_uid, info.st_gid)
        self.was: dict[bytes, Facts] = {}
        left: list[str] = []
        shared: dict[Facts, Facts] = {}
        for entry in walk(root, left):
            with noted(entry.path, left):
                info = entry.info()
                facts = (info.st_uid, info.st_gid, info.st_mode)
                self.was[entry.path] = shared.setdefault(facts, facts)
        _demand_nothing_left(left, "lent to the tools' user")

    @classmethod
    def of_record(cls, root: Path, record: Mapping[str, object]) -> Self:
        """The ownership that a run could not take back."""
        ownership = cls.__new__(cls)
        ownership.root = root
        ownership.identity = Identity(**cast("dict[str, Any]", record["identity"]))
        ownership.owner = cast("tuple[int, int]", tuple(cast("list[int]", record["owner"])))
        ownership.was = {}
        for uid, gid, mode, names in cast("list[tuple[int, int, int, str]]", record["was"]):
            paths = zlib.decompress(base64.b64decode(names)).split(b"\0")
            ownership.was.update(dict.fromkeys(paths, (uid, gid, mode)))
        return ownership

    def record(self) -> JsonObject:
        """All that `of_record` needs; a fiftieth of the paths' own length."""
        by_facts: dict[Facts, list[bytes]] = {}
        for path, facts in self.was.items():
            by_facts.setdefault(facts, []).append(path)
        packed = {facts: base64.b64encode(zlib.compress(b"\0".join(paths), 1)) for facts, paths in by_facts.items()}
        return {
            "identity": dict(vars(self.identity)),
            "owner": list(self.owner),
            "was": [[*facts, names.decode()] for facts, names in packed.items()],
        }

    def hand_over(self) -> None:
        """Give the checkout to the tools' user if it was root's.

        A file with several hard links is not given: its other names may lie outside.
        """
        if not self.identity.given:
            return
        left: list[str] = []
        for entry in walk(self.root, left):
            with noted(entry.path, left):
                info = entry.info()
                if info.st_uid == self.owner[0] and (stat.S_ISDIR(info.st_mode) or info.st_nlink == 1):
                    os.chown(
                        entry.name, self.identity.uid, self.identity.gid, dir_fd=entry.folder, follow_symlinks=False
                    )
        _demand_nothing_left(left, "lent to the tools' user")

    def take_back(self) -> None:
        """Put owners, groups and modes back; call it when nothing of the tools is alive."""
        left: list[str] = []
        for entry in walk(self.root, left):
            with noted(entry.path, left):
                self._restore(entry)
        self.was = {}
        _demand_nothing_left(left, "taken back")

    def _restore(self, entry: Entry) -> None:
        now, before = entry.info(), self.was.get(entry.path)
        if now.st_uid != self.identity.uid and now.st_gid != self.identity.gid:
            return
        if before and stat.S_IFMT(before[2]) != stat.S_IFMT(now.st_mode):
            before = None
        uid = self.owner[0] if self.identity.given else now.st_uid
        gid = before[1] if before else self.owner[1]
        moved = (now.st_uid, now.st_gid) != (uid, gid)
        mode = stat.S_IMODE(before[2]) if before else stat.S_IMODE(now.st_mode) & ~stat.S_IWOTH
        if not stat.S_ISDIR(now.st_mode):
            # The content may be the tools' by now, so no file gets its owner's rights back for whoever runs it.
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
        # The owner comes last: it is what tells, after a kill, that there is still something to do.
        if not stat.S_ISLNK(now.st_mode) and mode != stat.S_IMODE(now.st_mode):
            os.chmod(entry.name, mode, dir_fd=entry.folder)
        if moved:
            os.chown(entry.name, uid, gid, dir_fd=entry.folder, follow_symlinks=False)


def _demand_nothing_left(left: list[str], what: str) -> None:
    if left:
        raise IsolationError(
            f"The checkout could not be {what} whole: {'; '.join(left[:5])}.",
            hint="Look at these files, and do not use this checkout in later steps of the job.",
        )
