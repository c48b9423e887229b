"""One run of one program: how long it took, when it first asked the model, and what it held in memory.

Takes: a command. Gives: `Watched`.
May touch: the process it starts and, to read, /proc.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two looks at the memory; each look may take at most this share of the time.
PAUSE, SHARE = 0.03, 0.1
LONGEST = 180.0


@dataclass(frozen=True, kw_only=True)
class Watched:
    """`peak_kb` is the largest proportional set size of the whole process tree; `begun` is of the monotonic clock."""

    code: int
    begun: float
    seconds: float
    peak_kb: int
    said: str


def watch(words: list[str], *, environment: dict[str, str], folder: Path, log: Path) -> Watched:
    """Run to the end, or to the end of patience."""
    peak = 0
    over = threading.Event()
    with log.open("w+") as said:
        begun = time.monotonic()
        process = subprocess.Popen(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )

        def look() -> None:
            nonlocal peak
            while not over.is_set():
                at = time.monotonic()
                peak = max(peak, tree_kb(process.pid))
                over.wait(max(PAUSE, (time.monotonic() - at) / SHARE))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        seconds = time.monotonic() - begun
        over.set()
        looking.join()
        said.seek(0)
        return Watched(code=code, begun=begun, seconds=seconds, peak_kb=peak, said=said.read()[-3000:])


def tree_kb(root: int) -> int:
    """The proportional set size of a process and all below it, in KiB: what many share counts once."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read(f"/proc/{name}/stat").rpartition(b")")[2].split()):
            children.setdefault(int(fields[1]), []).append(int(name))
    total, waiting = 0, [(root, b"")]
    while waiting:
        pid, above = waiting.pop()
        mapped = _read(f"/proc/{pid}/smaps_rollup")
        waiting += [(child, mapped) for child in children.get(pid, [])]
        if not _is_same_memory(mapped, above):
            total += _figures(mapped).get(b"Pss:", 0)
    return total


def _is_same_memory(mapped: bytes, above: bytes) -> bool:
    """Whether a process still runs in the memory of the one that starts it (vfork), which would count twice."""
    if not mapped or mapped.partition(b" ")[0] != above.partition(b" ")[0]:
        return False
    # After a real fork the pages are shared by two, so the share of each is about half.
    own = _figures(mapped)
    return own.get(b"Private_Dirty:", 0) + own.get(b"Private_Clean:", 0) > own.get(b"Rss:", 0) // 2


def _figures(mapped: bytes) -> dict[bytes, int]:
    lines = (line.split() for line in mapped.splitlines()[1:])
    return {words[0]: int(words[1]) for words in lines}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
