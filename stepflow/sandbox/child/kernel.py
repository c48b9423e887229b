"""What Python's standard library has no call for: prctl and the capability sets.

Takes: nothing. Gives: functions that tell whether the kernel did it.
May touch: attributes of the calling process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63
#: What /proc/self/oom_score_adj takes (proc(5)): the most, which stands for all the memory that there is, so that the
#: smallest process with it counts for more than the largest without, and a little less.
_FIRST_TO_END, _NEXT_TO_END = b"1000", b"900"

_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int) -> bool:
    """Be sent the signal when the parent ends. Lost with a change of user: set it after that."""
    return _prctl(_SET_PDEATHSIG, signal_number)


def become_undumpable(*, wanted: bool = True) -> bool:
    """Close this process's memory, environment and descriptors to others of the same user.

    When it is not wanted it is undone: the kernel does it by itself with a change of user.
    """
    return _prctl(_SET_DUMPABLE, 0 if wanted else 1)


def become_subreaper() -> bool:
    """Be the parent of every orphan among the descendants, so that none is lost sight of."""
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def forgo_new_privileges() -> bool:
    """No program started from now on gets more rights by being started."""
    return _prctl(_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> bool:
    """Empty every capability set, the bounding set first, for a process that stays uid 0."""
    if not hasattr(_LIBC, "capset"):
        return False
    for capability in range(_HIGHEST_CAPABILITY + 1):
        _prctl(_CAPBSET_DROP, capability)
    _prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    return bool(_LIBC.capset(header, data) == 0) and not capabilities()


def capabilities() -> int:
    """The effective capability set of this process as bits; 0 where there are none to see."""
    return _status_bits("CapEff") | _status_bits("CapBnd")


class OomScore:
    """Which process the kernel ends first when memory runs out: those of the tools, then the supervisor, never for
    their sake the parent. Open it before the change of user and before Landlock, which both close the file.

    `holds` is false where there is no such thing, or where our parent already stands as high and we may not go lower.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._fd: int | None = None
        if wanted:
            with contextlib.suppress(OSError):
                fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                os.write(fd, _NEXT_TO_END)
                self._fd = fd

    @property
    def holds(self) -> bool:
        """Whether what is started from here is ended before the parent."""
        return self._fd is not None

    @contextlib.contextmanager
    def first_for_children(self) -> Iterator[None]:
        """What is forked meanwhile is ended before us. It inherits the score: its own file is closed to it, and that
        also keeps it from going lower, which the kernel alone would allow.
        """
        self._set(_FIRST_TO_END)
        try:
            yield
        finally:
            self._set(_NEXT_TO_END)

    def let_go(self) -> None:
        """For a child that forks itself: what it starts inherits its own score, and ours is not for it to change."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _set(self, score: bytes) -> None:
        if self._fd is not None:
            os.write(self._fd, score)


def _status_bits(field: str) -> int:
    try:
        with open(f"/proc/{os.getpid()}/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.partition(":")[::2] for line in file)
    except OSError:
        return 0
    return int(lines.get(field, "0").strip(), 16)


def _prctl(option: int, value: int) -> bool:
    if not hasattr(_LIBC, "prctl"):
        return False
    return bool(
        _LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0
    )
