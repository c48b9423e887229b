"""The container's entry point as a process of its own, and what its tools have left running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.checkout import Invocation
from tests.world import World

#: How long tools sleep that nobody else's on this machine sleep.
SLEEP = f"86399.{os.getpid()}"
ENTRYPOINT = Path(__file__).parents[2] / "entrypoint.py"


class EntryProcess:
    """The action as a process, begun at once; its job log is a file."""

    def __init__(self, world: World, environ: dict[str, str]) -> None:
        self._world, self._environ, self._log = world, environ, world.runner.folder / "log"
        with self._log.open("wb") as log:
            self.running = subprocess.Popen(
                [sys.executable, "-I", str(ENTRYPOINT)],
                env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environ},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until something is so, or it has ended."""
        deadline = time.monotonic() + 60
        while not condition() and self.running.poll() is None:
            assert time.monotonic() < deadline, self.log
            time.sleep(0.002)

    def end(self, timeout: float = 60) -> Invocation:
        """What came of it."""
        try:
            code = self.running.wait(timeout=timeout)
        finally:
            self.running.kill()
            self.running.wait()
        return self._world.runner.collect(self._environ, code, self.log)


def sleepers() -> list[str]:
    """Processes of this test's tools that still sleep."""
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if words == f"sleep\0{SLEEP}\0".encode():
            names.append(process.name)
    return names
