"""Snapshots as the supervisor serves them: each by a worker, which may hang or die without harm.

Takes: requests. Gives: answers; a snapshot's records as raw frames before them. Keeps what the last worker remembered.
May touch: processes; a file without a name in the private folder, while a snapshot is put back.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import struct
import tempfile
import time
from typing import TYPE_CHECKING

from .places import Refusal
from .plumbing import Git
from .snapshot_restore import Restoring
from .snapshot_take import Taking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .family import Family, Sink

    Work = Callable[[Callable[[bytes], object]], tuple[dict[str, object], bytes]]

#: What a worker may hold in memory: a file and the facts of all of them.
_MEMORY = 2 * 1024 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_RESULT_LIMIT = 512 * 1024 * 1024


class Snapshots:
    """The checkout's snapshots. `token` names what is remembered; whoever does not know it gets a whole snapshot."""

    def __init__(self, family: Family, checkout: str) -> None:
        self._family, self._checkout = family, checkout
        self._token = 0
        self._remembered = b""

    def take(self, request: Mapping[str, object], hand_on: Callable[[bytes], None]) -> dict[str, object]:
        """Hand on the records of a snapshot. Raises `Refusal` when none can be taken."""
        remembered = self._remembered if request["token"] == self._token else b""

        def work(feed: Callable[[bytes], object]) -> tuple[dict[str, object], bytes]:
            return Taking(self._checkout, Git(self._family), request, feed).take(remembered)

        answer, kept = _run(self._family, work, float(str(request["timeout"])), hand_on)
        if kept:
            self._remembered, self._token = kept, self._token + 1
        return {**answer, "token": self._token}

    def restore(self, request: Mapping[str, object], wait: Callable[[], bytes]) -> dict[str, object]:
        """Put a snapshot back, whose records `wait` gives. Raises `Refusal` when it does not fit the checkout."""
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

            def work(_: Callable[[bytes], object]) -> tuple[dict[str, object], bytes]:
                spool.seek(0)
                return Restoring(self._checkout, Git(self._family), request, spool).restore(), b""

            return _run(self._family, work, float(str(request["timeout"])), _refuse)[0]


class _Collected:
    def __init__(self) -> None:
        self.data = bytearray()

    def feed(self, data: bytes) -> None:
        """A worker of ours with that much to say is no worker of ours."""
        self.data += data
        if len(self.data) > _RESULT_LIMIT:
            raise Refusal("a snapshot has more to remember than there is room for")


class _HandedOn:
    def __init__(self, hand_on: Callable[[bytes], None]) -> None:
        self.feed = hand_on


def _run(
    family: Family, work: Work, timeout: float, hand_on: Callable[[bytes], None]
) -> tuple[dict[str, object], bytes]:
    """Fork a worker, hand its stream on, and give its answer. Raises `Refusal` for one that is too slow or dies."""
    stream, stream_end = os.pipe()
    result, result_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_exit(family, work, stream_end, result_end)
    os.close(stream_end)
    os.close(result_end)
    collected = _Collected()
    in_time = False
    try:
        sinks: dict[int, Sink] = {stream: _HandedOn(hand_on), result: collected}
        in_time = family.pump(sinks, deadline=time.monotonic() + timeout)
    finally:
        os.close(stream)
        os.close(result)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
    if not in_time:
        raise Refusal(f"it took longer than {timeout:g} s")
    return _read(bytes(collected.data))


def _work_and_exit(family: Family, work: Work, stream_end: int, result_end: int) -> None:
    """The child's whole life; it never returns, so that no error of ours makes a second supervisor of it."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # It lives for a moment and makes many small objects: looking for rings among them would take most of it.
        gc.disable()
        family.limit_child(resource.getrlimit(resource.RLIMIT_NPROC)[1])
        # Only the soft limit, so that git need not live within it.
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with os.fdopen(stream_end, "wb") as stream:
            answer, remembered = _answer(work, stream.write)
        said = json.dumps(answer).encode()
        with os.fdopen(result_end, "wb") as result:
            result.write(_LENGTH.pack(len(said)) + said + remembered)
    finally:
        os._exit(0)


def _answer(work: Work, feed: Callable[[bytes], object]) -> tuple[dict[str, object], bytes]:
    try:
        return work(feed)
    except Refusal as exc:
        return {"problem": str(exc)}, b""
    except OSError as exc:
        return {"problem": exc.strerror or str(exc)}, b""
    except MemoryError:
        return {"problem": "it needs more memory than a snapshot may use"}, b""


def _read(data: bytes) -> tuple[dict[str, object], bytes]:
    if len(data) < _LENGTH.size:
        raise Refusal("it ended without an answer; it ran into one of its limits")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    answer = json.loads(data[_LENGTH.size : end])
    if "problem" in answer:
        raise Refusal(str(answer["problem"]))
    return answer, data[end:]


def _refuse(_: bytes) -> None:
    raise Refusal("nothing was to be streamed")
