"""What Python's standard library has no call for: prctl and the capability sets.

Takes: nothing. Gives: functions that tell whether the kernel did it.
May touch: attributes of the calling process.
"""

from __future__ import annotations

import ctypes
import os

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63

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
