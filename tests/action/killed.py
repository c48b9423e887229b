"""The action in processes that are killed, each forked from a loaded one: right after a line of their journal, or right
before one of the changes that they make to the file system.

`Nursery` is the other end, in the test.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

KILLED = -signal.SIGKILL
#: What Python tells of before it does it (https://docs.python.org/3/library/audit_events.html).
CHANGES = frozenset(
    {
        *("os.chmod", "os.chown", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link"),
        *("os.truncate", "os.utime", "subprocess.Popen"),
    }
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Came:
    """What came of a call. `changes` are the kinds of the journal's last line at each, empty before the first line."""

    code: int
    changes: tuple[str, ...] = ()


class Nursery:
    """Starts calls of the action; each is a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-IB", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        )

    def run(self, environ: dict[str, str], log: Path, **die: int | str) -> Came:
        """One call, which dies when `Watch` says so."""
        assert self._process.stdin
        assert self._process.stdout
        order = {"environ": environ, "log": str(log), "die": die}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code, changes = json.loads(self._process.stdout.readline())
        return Came(code, tuple(changes))

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


@dataclass(kw_only=True)
class Watch:
    """Follows a call, and kills it after that line of its journal, after the first one of a kind, or before that change
    to the file system, counted since the first line of a kind."""

    die_after: int = 0
    die_after_first: str = ""
    die_before: int = 0
    since: str = ""
    #: Before a line of one of these kinds at the latest: not every run needs as many changes to come there.
    until: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=lambda: [""])
    changes: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """From here on; nothing ends it but the process."""
        from stepflow.journal import JournalFile

        append = JournalFile.append

        def recorded(journal: JournalFile, event: Any) -> Any:
            if event.event in self.until:
                os.kill(os.getpid(), signal.SIGKILL)
            entry = append(journal, event)
            self.lines.append(event.event)
            if self.die_after == entry.seq or self.die_after_first == event.event:
                os.kill(os.getpid(), signal.SIGKILL)
            return entry

        JournalFile.append = recorded  # type: ignore[method-assign]
        sys.addaudithook(self._follow)

    def _follow(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            self.changes.append(self.lines[-1])
            self.die_before -= self.since in self.lines
            if self.die_before == 0 and self.since in self.lines:
                os.kill(os.getpid(), signal.SIGKILL)


def child(order: dict[str, Any], watch: Watch) -> int:
    """One call of the action, in a process of its own."""
    from stepflow.action.main import act

    os.environ.clear()
    os.environ.update(order["environ"])
    # Python itself tries once whether it can write there.
    tempfile.tempdir = None
    tempfile.gettempdir()
    with Path(order["log"]).open("a") as log:
        watch.begin()
        return act(os.environ, log)


def serve_order(order: dict[str, Any]) -> None:
    """Do what is ordered and end this process, without anything of its parent's."""
    code, watch = 99, Watch(**order["die"])
    try:
        code = child(order, watch)
    finally:
        # What goes wrong has no other way out of a process that must not return.
        if sys.exc_info()[0]:
            traceback.print_exc()
        sys.stderr.flush()
        print(json.dumps([code, watch.changes]), flush=True)
        os._exit(0)


def serve() -> None:
    """Fork a child for each order; everything that costs time is loaded before."""
    import anthropic  # noqa: F401
    import github  # noqa: F401

    import stepflow

    for module in pkgutil.walk_packages(stepflow.__path__, "stepflow."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            serve_order(json.loads(line))
        _, status = os.waitpid(pid, 0)
        if ended := os.waitstatus_to_exitcode(status):
            print(json.dumps([ended, []]), flush=True)


if __name__ == "__main__":
    serve()
