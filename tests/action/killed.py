"""The action in processes that are killed right after a line of their journal, each forked from a loaded one.

Takes: on stdin, one JSON object per line: environment, log file, the line to die after. Gives: exit codes, one a line.
May touch: what the action touches. `Nursery` is the other end, in the test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

KILLED = -signal.SIGKILL


class Nursery:
    """Starts calls of the action; each is a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        )

    def run(self, environ: dict[str, str], log: Path, *, die_after: int = 0) -> int:
        """The exit code of one call; `KILLED` when it died after so many lines."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"environ": environ, "log": str(log), "die_after": die_after}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def die_after(number: int) -> None:
    """Let this process die as soon as the journal has so many lines."""
    from stepflow.journal.file import JournalFile

    record = JournalFile.record

    def recorded(self: JournalFile, event: Any) -> Any:
        entry = record(self, event)
        if entry.seq == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return entry

    JournalFile.record = recorded  # type: ignore[method-assign]


def child(order: dict[str, Any]) -> int:
    """One call of the action, in a process of its own."""
    from stepflow.action import act

    os.environ.clear()
    os.environ.update(order["environ"])
    if order["die_after"]:
        die_after(order["die_after"])
    with Path(order["log"]).open("a") as log:
        return act(os.environ, log)


def leave(order: dict[str, Any]) -> None:
    """Do what is ordered and end this process, without anything of its parent's."""
    code = 99
    try:
        code = child(order)
    finally:
        # What goes wrong has no other way out of a process that must not return.
        if sys.exc_info()[0]:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Fork a child for each order; everything that costs time is loaded before."""
    import anthropic  # noqa: F401
    import github  # noqa: F401

    import stepflow.action
    import stepflow.boundary.github_writer  # noqa: F401

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            leave(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
