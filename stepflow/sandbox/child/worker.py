"""Runs a file tool in a child of its own, so that a hanging disk, a bad pattern or a huge file ends only that child.

Takes: a function that gives text. Gives: its text, or why it was refused.
May touch: processes; limits memory and time of the child.
"""

from __future__ import annotations

import json
import os
import resource
import time
from functools import partial
from typing import TYPE_CHECKING

from .commands import HeadTail
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from .family import Family

#: What one file tool may hold in memory, beside the program itself.
MEMORY = 1024 * 1024 * 1024
#: Above everything that a tool gives, also when each character is escaped.
_ANSWER_LIMIT = 16 * 1024 * 1024


def run_worker(family: Family, work: Callable[[], str], timeout: float) -> str:
    """The text that `work` gives. Raises `Refusal` with the reason when it gives none in time."""
    answer_fd, answer_end = os.pipe()
    pid = family.fork(partial(_work, work, answer_end))
    os.close(answer_end)
    answer = HeadTail(_ANSWER_LIMIT)
    try:
        in_time = family.pump({answer_fd: answer}, deadline=time.monotonic() + timeout)
    finally:
        os.close(answer_fd)
    if not in_time:
        family.kill(pid)
        raise Refusal(f"took longer than {timeout:g} s and was stopped; narrow the pattern or the path")
    return _read_answer(answer.text())


def _work(work: Callable[[], str], answer_end: int) -> None:
    """The child's whole life."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answer = json.dumps(_answer(work)).encode()
    with os.fdopen(answer_end, "wb") as pipe:
        pipe.write(answer)


def _answer(work: Callable[[], str]) -> dict[str, str]:
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
