"""Does work in forked children, bounded in memory and time, so that a hang or a crash ends only that child."""

from __future__ import annotations

import json
import os
import resource
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from . import wire
from .commands import HeadTail
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .child_processes import ChildProcesses

    Feed = Callable[[bytes], object]
    #: A request and a sink for the stream; the answer, and what to keep.
    Work = Callable[[Mapping[str, object], Feed], tuple[dict[str, object], bytes]]

#: What one file tool may hold in memory, beside the program itself.
_FILE_TOOL_MEMORY = 1024 * 1024 * 1024
#: Above everything that a tool gives, also when each character is escaped.
_ANSWER_LIMIT = 16 * 1024 * 1024
#: What a worker may hold in memory: a file and the facts of all of them.
_SNAPSHOT_MEMORY = 2 * 1024 * 1024 * 1024
_KEPT_LIMIT = 512 * 1024 * 1024
_PIECE = 65536
_STDERR = 2


def run_worker(children: ChildProcesses, work: Callable[[], str], timeout: float) -> str:
    """The text that `work` gives. Raises `Refusal` with the reason when it gives none in time."""
    answer_fd, answer_end = os.pipe()
    pid = children.fork(partial(_work, work, answer_end))
    os.close(answer_end)
    answer = HeadTail(_ANSWER_LIMIT)
    try:
        in_time = children.pump({answer_fd: answer}, deadline=time.monotonic() + timeout)
    finally:
        os.close(answer_fd)
    if not in_time:
        children.kill(pid)
        raise Refusal(f"took longer than {timeout:g} s and was stopped; narrow the pattern or the path")
    return _read_answer(answer.text())


def _work(work: Callable[[], str], answer_end: int) -> None:
    """The child's whole life."""
    resource.setrlimit(resource.RLIMIT_AS, (_FILE_TOOL_MEMORY, _FILE_TOOL_MEMORY))
    answer = json.dumps(_file_tool_answer(work)).encode()
    with os.fdopen(answer_end, "wb") as pipe:
        pipe.write(answer)


def _file_tool_answer(work: Callable[[], str]) -> dict[str, str]:
    try:
        return {"text": work()}
    except Refusal as exc:
        return {"refusal": str(exc)}
    except OSError as exc:
        return {"refusal": exc.strerror or str(exc)}
    except MemoryError:
        return {"refusal": "needs more memory than a file tool may use; narrow it"}


def _read_answer(text: str) -> str:
    try:
        answer: dict[str, str] = json.loads(text)
    except ValueError:
        raise Refusal("the tool ended without an answer; it ran into one of its limits") from None
    if "refusal" in answer:
        raise Refusal(answer["refusal"])
    return answer["text"]


class LastingWorker:
    """A forked worker; it lives until `close`, the end of all children, or its first failure. `holds` are descriptors
    that it needs beside its pipes.
    """

    def __init__(self, children: ChildProcesses, work: Work, *, holds: tuple[int, ...] = ()) -> None:
        self._children = children
        asked, self._asked = os.pipe()
        self._said, said = os.pipe()
        try:
            self._pid = children.fork(partial(_live, children, work, asked, said, holds))
        except OSError:
            os.close(self._asked)
            os.close(self._said)
            raise
        finally:
            os.close(asked)
            os.close(said)
        self._failed = False
        # It reads each request before it answers, so what fits into a pipe never blocks.
        os.set_blocking(self._asked, False)

    @property
    def alive(self) -> bool:
        """False once it has failed, or ended as far as `reap` has seen."""
        return not self._failed and self._children.has(self._pid)

    def ask(self, request: Mapping[str, object], timeout: float, hand_on: Feed) -> tuple[dict[str, object], bytes]:
        """Its answer and what to keep. Raises `Refusal` for one that fails, is too slow or dies; it is ended then, and
        so it is by whatever else happens meanwhile.
        """
        coming = _Coming(hand_on)
        try:
            _send(self._asked, dict(request))
            in_time = self._children.pump(
                {self._said: coming},
                until=lambda: coming.whole or not self.alive,
                deadline=time.monotonic() + timeout,
            )
            return coming.result(f"it took longer than {timeout:g} s" if not in_time else "")
        except BaseException:
            self._failed = True
            self._children.kill(self._pid)
            raise

    def close(self) -> None:
        """End it, and let go of the pipes."""
        self._children.kill(self._pid)
        os.close(self._asked)
        os.close(self._said)


class _Coming:
    """What the worker says: its stream, its answer, and after that what to keep."""

    def __init__(self, hand_on: Feed) -> None:
        self._hand_on = hand_on
        self._frames = wire.Frames()
        self._answer: dict[str, object] | None = None
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._frames.feed(data)
        while frame := self._frames.take():
            kind, payload = frame
            if kind == wire.JSON:
                self._answer = wire.unpack(payload)
            elif self._answer is None:
                self._hand_on(payload)
            else:
                self._kept += payload

    @property
    def whole(self) -> bool:
        """Whether nothing more is to come."""
        return self._answer is not None and len(self._kept) >= cast("int", self._answer["kept"])

    def result(self, slow: str) -> tuple[dict[str, object], bytes]:
        """Answer and kept; raises `Refusal`."""
        if slow:
            raise Refusal(slow)
        if self._answer is None or not self.whole:
            raise Refusal("it ended without an answer; it ran into one of its limits")
        if "problem" in self._answer:
            raise Refusal(str(self._answer["problem"]))
        return {name: value for name, value in self._answer.items() if name != "kept"}, bytes(self._kept)


class _Stream:
    """Gathers small pieces into frames, and cuts large ones."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Send it, now or with what follows."""
        if len(self._waiting) + len(data) > _PIECE:
            self.flush()
            _send_raw(self._fd, data)
        else:
            self._waiting += data

    def flush(self) -> None:
        """Send what waits."""
        _send_raw(self._fd, bytes(self._waiting))
        self._waiting.clear()


def _live(children: ChildProcesses, work: Work, asked: int, said: int, holds: tuple[int, ...]) -> None:
    """The child's whole life."""
    _hold_only((asked, said, *holds))
    # Only the soft limit, so that git need not live within it.
    resource.setrlimit(resource.RLIMIT_AS, (_SNAPSHOT_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    frames = wire.Frames()
    while data := os.read(asked, _PIECE):
        frames.feed(data)
        while frame := frames.take():
            stream = _Stream(said)
            answer, kept = _answer(work, wire.unpack(frame[1]), stream.write)
            stream.flush()
            wire.send(said, {**answer, "kept": len(kept)})
            _send_raw(said, kept)
            children.reap()


def _answer(work: Work, request: Mapping[str, object], feed: Feed) -> tuple[dict[str, object], bytes]:
    try:
        answer, kept = work(request, feed)
    except Refusal as exc:
        return {"problem": str(exc)}, b""
    except OSError as exc:
        return {"problem": exc.strerror or str(exc)}, b""
    except MemoryError:
        return {"problem": "it needs more memory than a snapshot may use"}, b""
    if len(kept) > _KEPT_LIMIT:
        return {"problem": "a snapshot has more to remember than there is room for"}, b""
    return answer, kept


def _hold_only(fds: Iterable[int]) -> None:
    """Let go of everything else: the parent's pipes must end with the supervisor, and the shell's with the shell."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for low, high in pairwise((_STDERR, *sorted(fds), resource.getrlimit(resource.RLIMIT_NOFILE)[0])):
        os.closerange(low + 1, high)


def _send_raw(fd: int, data: bytes) -> None:
    for start in range(0, len(data), _PIECE):
        wire.send_raw(fd, data[start : start + _PIECE])


def _send(fd: int, request: dict[str, object]) -> None:
    frame = wire.pack(wire.JSON, json.dumps(request).encode())
    try:
        written = os.write(fd, frame)
    except OSError:
        written = 0
    if written < len(frame):
        raise Refusal("its worker cannot be asked")
