"""Which unix sockets other programs listen on."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Far more than any machine has there; a self-test must end.
_MOST_ENTRIES = 20_000


def sockets_under(folders: Iterable[str]) -> Iterator[Path]:
    """Each socket once, by the name that leads to it without a link."""
    foreign = _provided_by_programs()
    waiting = sorted({os.path.realpath(folder) for folder in folders}, reverse=True)
    seen = 0
    while waiting and seen < _MOST_ENTRIES:
        for path, mode in _entries(waiting.pop()):
            seen += 1
            if stat.S_ISSOCK(mode):
                yield Path(path)
            elif stat.S_ISDIR(mode) and path not in foreign:
                waiting.append(path)


def _entries(folder: str) -> Iterator[tuple[str, int]]:
    """Path and mode of everything in a folder, in order; nothing when it cannot be read."""
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder).iterdir()):
            with contextlib.suppress(OSError):
                yield str(path), path.lstat().st_mode


def _provided_by_programs() -> frozenset[str]:
    """Mount points of FUSE. In mountinfo the fifth field is the place, the one after the dash the type (proc(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    parted = (line.partition(" - ") for line in lines)
    return frozenset(place.split()[4] for place, _, kind in parted if kind.startswith("fuse"))
