"""The parent's end of the channel to the sandbox's program: starts it, sends requests, and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepflow.errors import IsolationError
from stepflow.sandbox.child import wire
from stepflow.sandbox.child.child_processes import kill_descendants, kill_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from stepflow.domain.json import JsonObject

_PROGRAM = Path(__file__).parent / "child" / "__main__.py"
_PIECE = 65536
#: Seconds that the program may take to end by itself after its pipe is closed: on a busy machine it may wait that long
#: for a processor. One that owes an answer has had its time.
_FAREWELL = 20.0
_OVERDUE_FAREWELL = 1.0
_LAST_WORDS = 2000
_LOOK_EVERY = 5.0


class ChildChannel:
    """A running toolbox program. `group` is one that nothing but the tools has, None where there is none. `inherited`
    are descriptors that it is given besides its standard ones."""

    def __init__(
        self,
        *,
        checkout: Path,
        environment: Mapping[str, str],
        group: int | None = None,
        inherited: tuple[int, ...] = (),
        program: Path = _PROGRAM,
    ) -> None:
        self._group = group
        self._killed_all = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        # A socket, since it also carries descriptors.
        self._requests, requests = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program, by its absolute path
                [sys.executable, "-I", "-S", str(program)],
                cwd=checkout,
                env=dict(environment),
                stdin=requests.fileno(),
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                pass_fds=inherited,
            )
        except OSError as exc:
            self._errors.close()
            self._requests.close()
            raise IsolationError(
                f"The toolbox could not be started in {checkout}: {exc.strerror}.",
                hint="Check the folder and its rights.",
            ) from exc
        finally:
            requests.close()
        if not self._process.stdout:
            raise IsolationError("The toolbox was started without a pipe.")
        self._answers = self._process.stdout.fileno()
        self._requests.setblocking(False)
        os.set_blocking(self._answers, False)
        self._frames = wire.Frames()
        self._broken = ""
        self._overdue = False
        #: What an answer is waited for in: a signal may interrupt it.
        self.waiting: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        #: What is called every few seconds meanwhile; the time that it takes is no waiting.
        self.look: Callable[[], None] | None = None
        self._looked = 0.0

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def ended_all(self) -> bool:
        """Whether nothing of what the program has started is alive: it said so at its end, or we looked after it."""
        return self._process.returncode == 0 or self._killed_all

    @property
    def usable(self) -> bool:
        """False once it was interrupted, failed or closed."""
        return not self._broken

    def ask(
        self,
        request: JsonObject,
        *,
        timeout: float,
        sink: Callable[[bytes], object] | None = None,
        payload: Iterable[bytes] = (),
        descriptors: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """Send a request with raw bytes after it, and wait for its answer; raw bytes before that go to the sink. The
        program gets duplicates of the `descriptors`.

        An exception that arrives meanwhile, a cancellation above all, leaves a channel that can only be closed.
        """
        if self._broken:
            raise IsolationError(self._broken, hint="Start the run again.")
        self._broken = f"The toolbox was interrupted during `{request['op']}` and cannot be asked any more."
        deadline, self._looked = time.monotonic() + timeout, 0.0
        op = str(request["op"])
        try:
            with self.waiting():
                self._send(wire.pack(wire.JSON, json.dumps(request).encode()), deadline, op, descriptors)
                for piece in payload:
                    self._send(wire.pack(wire.RAW, piece), deadline, op)
                answer = self._receive(deadline, op, sink)
        except wire.WireError as exc:
            raise self._failed(f"The pipe to the toolbox cannot carry `{op}`: {exc}.") from exc
        self._broken = ""
        return answer

    def close(self) -> None:
        """End the program and everything that it has started. May be called again."""
        self._broken = "The toolbox is closed."
        self._requests.close()
        # It may be writing an answer that nobody reads any more.
        if self._process.stdout:
            self._process.stdout.close()
        try:
            self._wait_or_kill()
            if self._process.returncode != 0 and self._group is not None:
                self._killed_all = kill_group(self._group)
        finally:
            self._errors.close()

    def _send(self, frame: bytes, deadline: float, op: str, descriptors: tuple[int, ...] = ()) -> None:
        view = memoryview(frame)
        while view:
            self._await(self._requests.fileno(), selectors.EVENT_WRITE, deadline, op)
            try:
                view = view[socket.send_fds(self._requests, [view], descriptors) :]
            except (BrokenPipeError, ConnectionResetError):
                raise self._ended(op) from None
            descriptors = ()

    def _receive(self, deadline: float, op: str, sink: Callable[[bytes], object] | None) -> dict[str, Any]:
        while True:
            match self._frames.take():
                case (wire.JSON, payload):
                    return wire.unpack(payload)
                case (_, payload) if sink:
                    sink(payload)
                case None:
                    self._await(self._answers, selectors.EVENT_READ, deadline, op)
                    if not (data := os.read(self._answers, _PIECE)):
                        raise self._ended(op)
                    self._frames.feed(data)
                case _:
                    raise wire.WireError("raw bytes came that were not asked for")

    def _await(self, fd: int, event: int, deadline: float, op: str) -> None:
        with selectors.PollSelector() as selector:
            selector.register(fd, event)
            # The time left is looked at first: one that sends without end is always ready.
            while (left := deadline + self._looked - time.monotonic()) > 0:
                if selector.select(left if self.look is None else min(left, _LOOK_EVERY)):
                    return
                if self.look is not None:
                    begun = time.monotonic()
                    self.look()
                    self._looked += time.monotonic() - begun
        self._overdue = True
        raise self._failed(f"The toolbox gave no whole answer to `{op}` in time.")

    def _ended(self, op: str) -> IsolationError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL)
        status = f"exit status {self._process.returncode}" if self._process.returncode is not None else "no status"
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _LAST_WORDS, 0))
        words = self._errors.read().decode("utf-8", "replace").strip()
        last_words = f" Its last words: {words}" if words else ""
        return self._failed(f"The toolbox ended during `{op}` ({status}).{last_words}")

    def _failed(self, message: str) -> IsolationError:
        self._broken = message
        return IsolationError(message, hint="Nothing more is run. Look at what the tools did last, then run it again.")

    def _wait_or_kill(self) -> None:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_OVERDUE_FAREWELL if self._overdue else _FAREWELL)
        finally:
            if self._process.poll() is None:
                # It is its descendants' subreaper for as long as it lives, so they go first.
                kill_descendants(self._process.pid, reap=lambda: True, timeout=0.5)
                self._process.kill()
                self._process.wait()
