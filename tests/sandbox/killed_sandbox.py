"""A sandbox in processes that are killed right before some change to the file system, each forked from a loaded one.

Takes: on stdin, one JSON object per line: where, and before which change to die. Gives: on stdout, how many changes
there were, or that it died.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

#: What Python tells of before it does it (https://docs.python.org/3/library/audit_events.html).
CHANGES = frozenset(
    {
        *("os.chmod", "os.chown", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link"),
        *("os.truncate", "os.utime", "subprocess.Popen"),
    }
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVIL = """
git config core.fsmonitor 'touch /tmp/evil; false'; printf '#!/bin/sh\\ntouch /tmp/evil\\n' > .git/hooks/post-checkout
chmod 777 . hello.txt .git/hooks/post-checkout; echo x > .git/info/attributes; ln -s /x .git/modules
mkdir -p .git/refs/replace; git rev-parse HEAD > .git/refs/replace/$(git rev-parse HEAD)
"""


class Nursery:
    """Starts sandboxes; each is a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def run(self, place: Path, *, die_before: int = 0) -> str:
        """What came of it: the count of changes, or `killed`."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"place": str(place), "die_before": die_before}) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

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


class Changes:
    """Counts, and dies in time."""

    def __init__(self, die_before: int) -> None:
        self.count, self._die_before = 0, die_before

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if event in CHANGES or writes:
            self.count += 1
            if self.count == self._die_before:
                os.kill(os.getpid(), signal.SIGKILL)


def request_in(place: Path) -> Any:
    """A run in the place."""
    from stepflow.run.inputs import read_inputs
    from stepflow.run.request import RunRequest, Trigger

    environment = {"RUNNER_TEMP": str(place / "temp"), "HOME": str(place / "home")}
    environment["GITHUB_OUTPUT"] = str(place / "temp/commands/output")
    return RunRequest(
        run_id="r-1",
        inputs=read_inputs({"provider": "scripted"}),
        trigger=Trigger(agent="fixer", actor="bob", actor_is_bot=False),
        root=place / "checkout",
        folder=place / "run",
        environment=environment,
        runner_temp=place / "temp",
    )


def sandbox(place: Path) -> None:
    """Mend, open, test, let tools do harm, close."""
    from stepflow.domain.command import CommandRequest
    from stepflow.run.cancel import Cancellation
    from stepflow.run.parts import toolbox_options
    from stepflow.run.sandbox import open_sandbox, outside_of
    from stepflow.sandbox.restore import mend_checkouts
    from stepflow.sandbox.selftest.trial import try_canaries

    request = request_in(place)
    notes: list[str] = []
    for _told, more in mend_checkouts(request.restore_folder, request.root):
        notes += more
    with open_sandbox(request, toolbox_options(request), Cancellation(), warn=notes.append) as opened:
        try_canaries(opened.toolbox, outside_of(request))
        opened.toolbox.run_command(CommandRequest(argv=("sh", "-c", EVIL), timeout=20))
    if notes:
        raise RuntimeError(notes)


def child(order: dict[str, Any], answers: int) -> None:
    """One sandbox, in a process of its own."""
    place = Path(order["place"])
    os.environ.update(TMPDIR=str(place / "tmp"), HOME=str(place / "home"))
    # Python itself tries once whether it can write there.
    tempfile.tempdir = None
    tempfile.gettempdir()
    changes = Changes(order["die_before"])
    sys.addaudithook(changes)
    sandbox(place)
    os.write(answers, f"{changes.count}\n".encode())


def serve() -> None:
    """Fork a child for each order; what it needs is loaded before."""

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line), 1)
            except BaseException:  # noqa: BLE001 - it has no other way out of a process that must not return
                traceback.print_exc()
                os.write(1, b"failed\n")
            finally:
                sys.stderr.flush()
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
            os.write(1, b"killed\n")


if __name__ == "__main__":
    serve()
