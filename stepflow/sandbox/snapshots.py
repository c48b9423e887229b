"""Snapshots of the workspace, as the engine asks for them; `child/snapshots.py` takes them in the sandbox."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepflow.domain.json import JsonObject
from stepflow.sandbox.box import Toolbox

_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may have: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
_TAKE_SECONDS, _RESTORE_SECONDS = 120.0, 600.0
#: Bytes of a difference that are read; far fewer are shown.
_DIFF_LIMIT = 8 * _MIB


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot:
    """`name` is the commit; so many `files` differ from the snapshot before. `texts` are what people have named. How
    many bytes the pack has, and each difference, with whether that is all of it; or the problem with these."""

    name: str
    files: int
    left_out: Mapping[bytes, str]
    texts: bytes
    pack: int
    diffs: tuple[tuple[int, bool], ...]
    problem: str


class WorkspaceSnapshots:
    """The snapshots in the sandbox's private repository. `base` is the commit that a fresh clone has, or HEAD's at the
    start if it is empty. `packs` are those of all snapshots that were kept so far."""

    def __init__(self, toolbox: Toolbox, base: str, packs: Callable[[], Iterable[Path]]) -> None:
        self._toolbox, self._base, self._packs = toolbox, base, packs
        self._is_open = False

    def take(
        self, last: str, *, anew: bool, limit: int, starts: Sequence[str], sink: Callable[[bytes], object]
    ) -> TakenSnapshot | None:
        """Commit what is there, on top of the `last` snapshot; None where nothing has changed since, unless it shall be
        made `anew`. At most `limit` bytes of files are taken in. The sink gets the pack of what it has beyond the base
        and the last one, then how the files went from each of the `starts` to it, as git shows it. Raises
        `StepflowError`."""
        request: JsonObject = {"last": last, "anew": anew, "starts": [*starts]}
        request |= {"limit": limit, "file_limit": FILE_LIMIT, "diff_limit": _DIFF_LIMIT}
        most = limit + len(starts) * _DIFF_LIMIT
        with self._open_repository(_TAKE_SECONDS):
            answer = self._toolbox.ask_snapshots("take_snapshot", request, seconds=_TAKE_SECONDS, sink=sink, limit=most)
        if not answer["name"]:
            return None
        left_out = _read_left_out(answer)
        return TakenSnapshot(
            name=answer["name"],
            files=answer["files"],
            left_out=left_out,
            texts=b"\0".join((os.fsencode(answer["branch"]), *left_out)),
            pack=answer["pack"],
            diffs=tuple((size, is_whole) for size, is_whole in answer["diffs"]),
            problem=answer["problem_of_diffs"],
        )

    def restore(self, name: str) -> Mapping[bytes, str]:
        """Bring files, HEAD and index to what they were, with nothing of the tools alive; gives why which paths were
        left out. What can be refused is refused before anything is changed. Raises `StepflowError`."""
        self._toolbox.end_step()
        request: JsonObject = {"name": name, "limit": SNAPSHOT_LIMIT}
        with self._open_repository(_RESTORE_SECONDS):
            return _read_left_out(self._toolbox.ask_snapshots("restore_snapshot", request, seconds=_RESTORE_SECONDS))

    @contextlib.contextmanager
    def _open_repository(self, seconds: float) -> Iterator[None]:
        """Where the last operation in such a block has failed, the repository is made anew, with everything that was
        kept so far."""
        if not self._is_open:
            folder = str(self._toolbox.private / "snapshots/tree.git")
            request: JsonObject = {"folder": folder, "base": self._base}
            self._base = self._toolbox.ask_snapshots("open_snapshots", request, seconds=seconds)["base"]
            for path in self._packs():
                self._toolbox.ask_snapshots("receive_snapshot", {}, seconds=seconds, given=path.read_bytes())
        self._is_open = False
        yield
        self._is_open = True


def _read_left_out(answer: Mapping[str, Any]) -> dict[bytes, str]:
    return {path.encode("latin-1"): why for path, why in answer["left_out"].items()}
