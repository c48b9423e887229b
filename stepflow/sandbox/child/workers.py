"""Does work in forked children, bounded in memory and time, so that a hang or a crash ends only that child."""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from . import wire
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .child_processes import ChildProcesses

    Feed = Callable[[bytes], object]
    #: A request and a sink for the stream; the answer, and what to keep.
    Work = Callable[[Mapping[str, object], Feed], tuple[dict[str, object], bytes]]

_STATE_LIMIT = 512 * 1024 * 1024
_PIECE = 65536
_STDERR = 2


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What a worker may hold in memory beside the program itself, and what is said of one that fails."""

    memory: int
    no_memory: str
    too_slow: str
    no_answer: str


_FILE_TOOL = _Kind(
    memory=1024 * 1024 * 1024,
    no_memory="needs more memory than a file tool may use; narrow it",
    too_slow="took longer than {:g} s and was stopped; narrow the pattern or the path",
    no_answer="the tool ended without an answer; it ran into one of its limits",
)
#: A file and the facts of all of them.
_SNAPSHOT = _Kind(
    memory=2 * 1024 * 1024 * 1024,
    no_memory="it needs more memory than a snapshot may use",
    too_slow="it took longer than {:g} s",
    no_answer="it ended without an answer; it ran into one of its limits",
)


def run_worker(children: ChildProcesses, work: Callable[[], str], timeout: float) -> str:
    """The text that `work` gives. Raises `Refusal` with the reason when it gives none in time."""
    worker = LastingWorker(children, lambda _request, _feed: ({"text": work()}, b""), kind=_FILE_TOOL)
    try:
        return str(worker.ask({}, timeout, lambda _piece: None)[0]["text"])
    finally:
        worker.close()


class LastingWorker:
    """A forked worker; it lives until `close`, the end of all children, or its first failure. `holds` are descriptors
    that it needs beside its pipes.
    """

    def __init__(
        self, children: ChildProcesses, work: Work, *, holds: tuple[int, ...] = (), kind: _Kind = _SNAPSHOT
    ) -> None:
        self._children = children
        self._kind = kind
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        try:
            self._pid = children.fork(partial(self._serve, work, requests, answers, holds))
        except OSError:
            os.close(self._requests)
            os.close(self._answers)
            raise
        finally:
            os.close(requests)
            os.close(answers)
        self._failed = False
        # It reads each request before it answers, so what fits into a pipe never blocks.
        os.set_blocking(self._requests, False)

    @property
    def alive(self) -> bool:
        """False once it has failed, or ended as far as `reap` has seen."""
        return not self._failed and self._children.has(self._pid)

    def ask(self, request: Mapping[str, object], timeout: float, hand_on: Feed) -> tuple[dict[str, object], bytes]:
        """Its answer and what to keep. Raises `Refusal` for one that fails, is too slow or dies; it is ended then, and
        so it is by whatever else happens meanwhile.
        """
        reply = _Reply(hand_on)
        try:
            _send(self._requests, dict(request))
            in_time = self._children.pump(
                {self._answers: reply.feed},
                until=lambda: reply.whole or not self.alive,
                deadline=time.monotonic() + timeout,
            )
            if not in_time:
                raise Refusal(self._kind.too_slow.format(timeout))
            return reply.result(self._kind.no_answer)
        except BaseException:
            self._failed = True
            self._children.kill(self._pid)
            raise

    def close(self) -> None:
        """End it, and let go of the pipes."""
        self._children.kill(self._pid)
        os.close(self._requests)
        os.close(self._answers)

    def _serve(self, work: Work, requests: int, answers: int, holds: tuple[int, ...]) -> None:
        """The child's whole life."""
        _close_all_but((requests, answers, *holds))
        # Only the soft limit, so that git need not live within it.
        resource.setrlimit(resource.RLIMIT_AS, (self._kind.memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
        frames = wire.Frames()
        while data := os.read(requests, _PIECE):
            frames.feed(data)
            while frame := frames.take():
                stream = _Stream(answers)
                answer, state = _answer(work, self._kind, wire.unpack(frame[1]), stream.write)
                stream.flush()
                wire.send(answers, {**answer, "state_bytes": len(state)})
                _send_raw(answers, state)
                self._children.reap()


class _Reply:
    """What the worker sends: its stream, its answer, and after that what to keep."""

    def __init__(self, hand_on: Feed) -> None:
        self._hand_on = hand_on
        self._frames = wire.Frames()
        self._answer: dict[str, object] | None = None
        self._state = bytearray()

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
                self._state += payload

    @property
    def whole(self) -> bool:
        """Whether nothing more is to come."""
        return self._answer is not None and len(self._state) >= cast("int", self._answer["state_bytes"])

    def result(self, no_answer: str) -> tuple[dict[str, object], bytes]:
        """The answer and what to keep; raises `Refusal`."""
        if self._answer is None or not self.whole:
            raise Refusal(no_answer)
        if "problem" in self._answer:
            raise Refusal(str(self._answer["problem"]))
        return {name: value for name, value in self._answer.items() if name != "state_bytes"}, bytes(self._state)


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


def _answer(work: Work, kind: _Kind, request: Mapping[str, object], feed: Feed) -> tuple[dict[str, object], bytes]:
    try:
        answer, state = work(request, feed)
    except Refusal as exc:
        return {"problem": str(exc)}, b""
    except OSError as exc:
        return {"problem": exc.strerror or str(exc)}, b""
    except MemoryError:
        return {"problem": kind.no_memory}, b""
    if len(state) > _STATE_LIMIT:
        return {"problem": "a snapshot has more to remember than there is room for"}, b""
    return answer, state


def _close_all_but(fds: Iterable[int]) -> None:
    """The parent's pipes must end with the supervisor, and the shell's with the shell."""
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
