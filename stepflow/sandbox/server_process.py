"""The parent's side of a program that serves in the sandbox: the ends of its standard input, output and error."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of its standard error that a message may show.
_LAST_WORDS = 2000


class CannotStart(Exception):
    """The program cannot be started; the message says why."""


class ServerProcess:
    """A program that serves until its step ends. It reads what is sent to `stdin`, and what it writes comes from
    `stdout`."""

    def __init__(self, start: Callable[[tuple[int, int, int]], str]) -> None:
        """`start` is given the program's own ends, and says what went wrong. Raises `CannotStart`."""
        with ExitStack() as opened:
            self.stdin, stdin = map(opened.enter_context, socket.socketpair())
            self.stdout, stdout = map(opened.enter_context, socket.socketpair())
            self._stderr = opened.enter_context(tempfile.TemporaryFile())
            with stdin, stdout:
                problem = start((stdin.fileno(), stdout.fileno(), self._stderr.fileno()))
            if problem:
                raise CannotStart(problem)
            self._ending = opened.pop_all()

    def last_words(self) -> str:
        """The end of its standard error."""
        size = os.fstat(self._stderr.fileno()).st_size
        words = os.pread(self._stderr.fileno(), _LAST_WORDS, max(size - _LAST_WORDS, 0))
        return words.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of it; ending its processes is the sandbox's part."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
