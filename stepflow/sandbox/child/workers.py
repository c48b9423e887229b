"""Does work in forked children, bounded in memory and time, so that a hang or a crash ends only that child."""

from __future__ import annotations

import os
import resource
import time
from functools import partial
from typing import TYPE_CHECKING

from . import wire
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from .child_processes import ChildProcesses

_STDERR = 2
#: Bytes of address space that a worker may have.
_MEMORY = 1024 * 1024 * 1024


def run_worker(children: ChildProcesses, work: Callable[[], str], timeout: float) -> str:
    """The text that `work` gives. Raises `Refusal` with the reason when it gives none in time."""
    answers, answers_end = os.pipe()
    frames = wire.Frames()
    try:
        try:
            worker = children.fork(partial(_serve, work, answers_end))
        finally:
            os.close(answers_end)
        try:
            in_time = children.pump({answers: frames.feed}, deadline=time.monotonic() + timeout)
        finally:
            children.kill(worker)
    finally:
        os.close(answers)
    if not in_time:
        raise Refusal(f"took longer than {timeout:g} s and was stopped; narrow the pattern or the path")
    if not (frame := frames.take()):
        raise Refusal("the tool ended without an answer; it ran into one of its limits")
    answer = wire.unpack(frame[1])
    if "problem" in answer:
        raise Refusal(str(answer["problem"]))
    return str(answer["text"])


def _serve(work: Callable[[], str], answers: int) -> None:
    """The child's whole life."""
    _close_all_but(answers)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        answer: dict[str, object] = {"text": work()}
    except Refusal as exc:
        answer = {"problem": str(exc)}
    except OSError as exc:
        answer = {"problem": exc.strerror or str(exc)}
    except MemoryError:
        answer = {"problem": "needs more memory than a file tool may use; narrow it"}
    wire.send(answers, answer)


def _close_all_but(fd: int) -> None:
    """The parent's pipes must end with the supervisor, and the shell's with the shell."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(_STDERR + 1, fd)
    os.closerange(fd + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
