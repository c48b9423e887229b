"""Run a program of the machine to its end, within bounds of time, output and memory."""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

#: Bytes of a program's errors that are read.
MOST_ERRORS = 8 * 1024 * 1024
_PIECE = 65536
#: Milliseconds of one wait for output. `poll` takes no longer one.
_LONGEST_WAIT = 60_000


class TimedOut(TimeoutError):
    """The program took too long and was ended; `output` is what it wrote until then."""

    def __init__(self, program: str, seconds: float, output: bytes) -> None:
        super().__init__(f"`{program}` took longer than {seconds:g} seconds")
        self.output = output


class TooMuchOutput(Exception):
    """The program wrote more than it may, and was ended."""


def run_program(
    *words: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes | IO[bytes] = b"",
    seconds: float = math.inf,
    most_output: float = math.inf,
    memory: int | None = None,
    new_session: bool = False,
    merge_stderr: bool = False,
) -> CompletedProcess[bytes]:
    """Run a program to its end and return its exit code and output.

    Without an `environment` it has this process's, with messages in English. The input is bytes, or an open file from
    its current position. `memory` is a limit in bytes. With a `new_session`, a Ctrl-C at the terminal does not reach
    the program, and its children end with it. Raises `OSError` if it cannot be started, `TimedOut`, and
    `TooMuchOutput`; after these, and after a signal, nothing is left running.
    """
    deadline = time.monotonic() + seconds
    # A signal that struck inside `Popen` itself would leave a process that nobody knows; only the main thread gets one.
    # It is known before anyone waits for it, since a signal can strike as soon as the thread runs.
    started: list[subprocess.Popen[bytes]] = []
    # Files for input and errors, so that no thread is needed to read and write at the same time.
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as errors,
        ThreadPoolExecutor(max_workers=1) as starter,
    ):
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)

        def start() -> None:
            started.append(
                subprocess.Popen(  # noqa: S603 - no shell
                    words,
                    cwd=folder,
                    env={**os.environ, "LC_ALL": "C"} if environment is None else environment,
                    stdin=given if isinstance(stdin, bytes) else stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if merge_stderr else errors,
                    start_new_session=new_session,
                )
            )

        output = bytearray()
        try:
            starter.submit(start).result()
            if memory:
                resource.prlimit(started[0].pid, resource.RLIMIT_DATA, (memory, memory))
            if not _read(started[0], output, deadline, most_output):
                raise TimedOut(words[0], seconds, bytes(output))
        except BaseException:
            starter.shutdown()
            for process in started:
                _kill(process, group=new_session)
            raise
        finally:
            for process in started:
                assert process.stdout  # noqa: S101 - a pipe
                process.stdout.close()
        errors.seek(0)
        return CompletedProcess(words, started[0].returncode, bytes(output), errors.read(MOST_ERRORS))


def _read(process: subprocess.Popen[bytes], output: bytearray, deadline: float, most: float) -> bool:
    """Read the output until the program ends. Return whether it ended in time."""
    assert process.stdout  # noqa: S101 - a pipe
    pipe = process.stdout.fileno()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(min(1000 * left, _LONGEST_WAIT)):
            continue
        if not (piece := os.read(pipe, _PIECE)):
            break
        output += piece
        if len(output) > most:
            raise TooMuchOutput
    else:
        return False
    try:
        process.wait(None if deadline == math.inf else max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    if group:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
