"""Looks names up in threads that nobody has to wait for: a name server may stay silent for minutes, and nothing but the
server ends the C library's question."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _AbandonedThreads(ThreadPoolExecutor):
    """Runs each call in a thread of its own. Neither an event loop nor the interpreter waits for it at its end."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin the call."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call(*args, **kwargs)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, it is the caller's
                future.set_exception(exc)
            else:
                future.set_result(result)

        threading.Thread(target=answer, name="name lookup", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""


def abandon_lookups(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop end while it looks names up."""
    loop.set_default_executor(_AbandonedThreads())


@contextmanager
def interruptible_lookups() -> Iterator[None]:
    """Let a signal's handler interrupt the main thread while it looks a name up."""
    look_up, threads = socket.getaddrinfo, _AbandonedThreads()

    def look_up_elsewhere(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the standard library's own
        if threading.current_thread() is not threading.main_thread():
            return look_up(*args, **kwargs)
        return threads.submit(look_up, *args, **kwargs).result()

    socket.getaddrinfo = look_up_elsewhere
    try:
        yield
    finally:
        socket.getaddrinfo = look_up
