"""Snapshots as the supervisor serves them: by a worker, which may hang or die without harm.

Takes: requests. Gives: answers; a snapshot's records as raw frames before them. Keeps what the worker remembers.
May touch: processes; a file without a name in the private folder, while a snapshot is put back.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from .paths import Refusal
from .snapshot_git import Git
from .snapshot_restore import Restoring
from .snapshot_state import Memory
from .snapshot_take import Taking
from .workers import LastingWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .family import Family


class Snapshots:
    """The checkout's snapshots. `token` names what is remembered; whoever does not know it gets a whole snapshot."""

    def __init__(self, family: Family, checkout: str) -> None:
        self._family, self._checkout = family, checkout
        self._token = 0
        self._remembered = b""
        self._worker: LastingWorker | None = None

    def take(self, request: Mapping[str, object], hand_on: Callable[[bytes], None]) -> dict[str, object]:
        """Hand on the records of a snapshot. Raises `Refusal` when none can be taken."""
        asked = {**request, "whole": request["token"] != self._token}
        worker = self._living_worker()
        answer, kept = worker.ask(asked, float(str(request["timeout"])), hand_on)
        if kept:
            self._remembered, self._token = kept, self._token + 1
        return {**answer, "token": self._token}

    def restore(self, request: Mapping[str, object], wait: Callable[[], bytes]) -> dict[str, object]:
        """Put a snapshot back, whose records `wait` gives. Raises `Refusal` when it does not fit the checkout."""
        self._drop_worker()
        self._remembered = b""
        self._token += 1
        with tempfile.TemporaryFile() as spool:
            missing = int(str(request["bytes"]))
            while missing > 0:
                piece = wait()
                missing -= len(piece)
                spool.write(piece)
            spool.flush()
            self._family.end()

            def work(request: Mapping[str, object], _: object) -> tuple[dict[str, object], bytes]:
                spool.seek(0)
                return Restoring(self._checkout, Git(self._family), request, spool).restore(), b""

            worker = LastingWorker(self._family, work, holds=(spool.fileno(),))
            try:
                return worker.ask(request, float(str(request["timeout"])), _refuse)[0]
            finally:
                worker.close()

    def _living_worker(self) -> LastingWorker:
        """The worker of the call before, or a new one that begins with what that one remembered."""
        self._family.reap()
        if self._worker and not self._worker.alive:
            self._drop_worker()
        if not self._worker:
            self._worker = LastingWorker(self._family, _Taker(self._family, self._checkout, self._remembered).take)
        return self._worker

    def _drop_worker(self) -> None:
        if self._worker:
            self._worker.close()
            self._worker = None


class _Taker:
    """The worker's part: what was remembered stays at hand from call to call."""

    def __init__(self, family: Family, checkout: str, remembered: bytes) -> None:
        self._family, self._checkout = family, checkout
        self._remembered = remembered
        self._memory: Memory | None = None

    def take(self, request: Mapping[str, object], feed: Callable[[bytes], object]) -> tuple[dict[str, object], bytes]:
        """One snapshot. Gives no bytes to keep where they are what they were."""
        if self._remembered:
            self._memory, self._remembered = Memory.of(self._remembered), b""
        before = None if request["whole"] else self._memory
        answer, now = Taking(self._checkout, Git(self._family), request, feed).take(before)
        if now is None:
            return answer, b""
        self._memory = now
        return answer, now.pack()


def _refuse(_: bytes) -> None:
    raise Refusal("nothing was to be streamed")
