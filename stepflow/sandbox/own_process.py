"""The parent closes itself to everybody else on the machine (security.md "Start-up")."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import TYPE_CHECKING

from stepflow.sandbox.child.enter_sandbox import become_undumpable
from stepflow.sandbox.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIBC = ctypes.CDLL(None)
_LIBC.getenv.restype = ctypes.c_void_p


def close_process() -> None:
    """Keep other processes of the same user out of our /proc entries and our memory, and leave no core file.

    From here on PATH is the fixed one, also for what libraries start: Python's `platform` runs `uname`.
    """
    become_undumpable()
    os.environ["PATH"] = os.pathsep.join(SYSTEM_PATH)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def wipe_variables(names: Iterable[str]) -> None:
    """Take these variables out of the environment, and their values out of what /proc shows of it for good.

    Unsetting alone leaves the bytes where the kernel put them when it started this process.
    """
    for name in names:
        address = _LIBC.getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("*"), len(ctypes.string_at(address)))
        os.environ.pop(name, None)
