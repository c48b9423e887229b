"""The command at a terminal of its own, into which somebody may type."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

#: What the terminal of the tests themselves would bring along.
OUTER = ("COLUMNS", "LINES", "NO_COLOR", "CI")
#: Longer than it takes until a terminal shows that something is being done.
THINKS_SECONDS = 3


def at_terminal(
    *words: str,
    keys: str = "",
    thinks_at: str = "",
    columns: int = 80,
    code: int | None = 0,
    cwd: Path | None = None,
    **environ: str,
) -> str:
    """All that `stepflow` writes to the terminal; it ends with this exit code (None: with any). Keys are typed
    at once, or some seconds after `thinks_at` is shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in OUTER} | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "stepflow", *words],
        cwd=cwd,
        env=variables | environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = bytearray()
    while thinks_at.encode() not in written and (part := _read(ours)):
        written += part
    time.sleep(THINKS_SECONDS if thinks_at else 0)
    os.write(ours, keys.encode())
    while part := _read(ours):
        written += part
    os.close(ours)
    ended = process.wait(60)
    assert code in (None, ended), written.decode()
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the terminal is gone with the last process that had it
        return b""
