"""The parent's side of a program that serves in the sandbox: the ends of its standard input, output and error."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of its standard error that are kept: much more than a message shows, for what is cut in two cannot be masked.
_LAST_WORDS = 64 * 1024
_PIECE, _MOST_PIECES = 64 * 1024, 64


class ServerProcess:
    """A program that serves until its step ends. It reads what is sent to `stdin`, and what it writes comes from
    `stdout`. Whoever serves it calls `keep_words` whenever `stderr` is readable; else the program waits at its end."""

    def __init__(self, start: Callable[[tuple[int, int, int]], object]) -> None:
        """`start` is given the program's own ends. Raises what it raises."""
        self._words, self._keeping = b"", threading.Lock()
        with ExitStack() as opened:
            self.stdin, stdin = map(opened.enter_context, socket.socketpair())
            self.stdout, stdout = map(opened.enter_context, socket.socketpair())
            self.stderr, stderr = os.pipe()
            opened.callback(os.close, self.stderr)
            os.set_blocking(self.stderr, False)
            with stdin, stdout, os.fdopen(stderr, "wb"):
                start((stdin.fileno(), stdout.fileno(), stderr))
            self._ending = opened.pop_all()

    def keep_words(self) -> bool:
        """Read what has come on its standard error and keep the end of it; false when no more can come."""
        with self._keeping:
            for _ in range(_MOST_PIECES):
                try:
                    piece = os.read(self.stderr, _PIECE)
                except BlockingIOError:
                    return True
                if not piece:
                    return False
                self._words = (self._words + piece)[-_LAST_WORDS:]
        return True

    def last_words(self) -> str:
        """The end of its standard error."""
        self.keep_words()
        return self._words.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of it; ending its processes is the sandbox's part."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
