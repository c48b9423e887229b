"""Does work in forked children, bounded in memory and time, so that a hang or a crash ends only that child."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from . import wire
from .enter_sandbox import die_with_parent
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .child_processes import ChildProcesses

    Feed = Callable[[bytes], object]
    #: Takes a sink for the bytes that it streams, and gives its answer.
    Work = Callable[[Feed], dict[str, object]]

_STDERR = 2


@dataclass(frozen=True, kw_only=True)
class WorkLimits:
    """What a worker may hold in memory beside the program itself, and what is said of one that fails. One that
    `starts_programs` becomes the tools' user for good, as these shall be."""

    memory: int | None
    starts_programs: bool = False
    no_memory: str
    too_slow: str
    no_answer: str


_FILE_TOOL = WorkLimits(
    memory=1024 * 1024 * 1024,
    no_memory="needs more memory than a file tool may use; narrow it",
    too_slow="took longer than {:g} s and was stopped; narrow the pattern or the path",
    no_answer="the tool ended without an answer; it ran into one of its limits",
)


def run_worker(children: ChildProcesses, work: Callable[[], str], timeout: float) -> str:
    """The text that `work` gives. Raises `Refusal` with the reason when it gives none in time."""
    answer = run_streaming_worker(children, lambda _: {"text": work()}, timeout, _refuse, limits=_FILE_TOOL)
    return str(answer["text"])


def run_streaming_worker(
    children: ChildProcesses,
    work: Work,
    timeout: float,
    hand_on: Feed,
    *,
    limits: WorkLimits,
    holds: tuple[int, ...] = (),
) -> dict[str, object]:
    """The answer of `work`, after what it streamed was handed on. `holds` are descriptors that it needs. Raises
    `Refusal` for a worker that fails, is too slow or dies."""
    answers, answers_end = os.pipe()
    reply = _Reply(hand_on)
    try:
        try:
            worker = children.fork(partial(_serve, work, limits, answers_end, holds))
        finally:
            os.close(answers_end)
        try:
            in_time = children.pump({answers: reply.feed}, deadline=time.monotonic() + timeout)
        finally:
            children.kill(worker)
            if limits.starts_programs:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker, signal.SIGKILL)
    finally:
        os.close(answers)
    if not in_time:
        raise Refusal(limits.too_slow.format(timeout))
    if reply.answer is None:
        raise Refusal(limits.no_answer)
    if "problem" in reply.answer:
        raise Refusal(str(reply.answer["problem"]))
    return reply.answer


class _Reply:
    """What the worker sends: its stream, then its answer."""

    def __init__(self, hand_on: Feed) -> None:
        self._hand_on = hand_on
        self._frames = wire.Frames()
        self.answer: dict[str, object] | None = None

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._frames.feed(data)
        while frame := self._frames.take():
            kind, payload = frame
            if kind == wire.JSON:
                self.answer = wire.unpack(payload)
            else:
                self._hand_on(payload)


def _serve(work: Work, limits: WorkLimits, answers: int, holds: tuple[int, ...]) -> None:
    """The child's whole life."""
    _close_all_but((answers, *holds))
    if limits.memory:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if limits.starts_programs:
        os.setpgid(0, 0)
        if os.getuid() != os.geteuid():
            user = os.geteuid()
            os.setresuid(user, user, user)
            # The kernel forgets it with a change of user.
            die_with_parent(signal.SIGKILL)
    try:
        answer = work(partial(wire.send_raw, answers))
    except Refusal as exc:
        answer = {"problem": str(exc)}
    except OSError as exc:
        answer = {"problem": exc.strerror or str(exc)}
    except MemoryError:
        answer = {"problem": limits.no_memory}
    wire.send(answers, answer)


def _close_all_but(fds: Iterable[int]) -> None:
    """The parent's pipes must end with the supervisor, and the shell's with the shell."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for low, high in pairwise((_STDERR, *sorted(fds), resource.getrlimit(resource.RLIMIT_NOFILE)[0])):
        os.closerange(low + 1, high)


def _refuse(_: bytes) -> None:
    raise Refusal("nothing was to be streamed")
