"""Landlock: which files this process and everything below it can still open (docs/threat-model.md)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterator, Sequence

# No library: this side is started with -I -S and sees the standard library alone. Every number in this module stands in
# linux/landlock.h and asm/unistd_64.h of linux-libc-dev 6.12, the same for x86_64 and for aarch64.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_MACHINES = ("x86_64", "aarch64")
_CREATE_RULESET_VERSION = 1 << 0
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1

_FIRST_RIGHTS = (1 << 13) - 1
#: From which ABI on the kernel knows what the first one did not.
ABI_REFER, ABI_TRUNCATE, ABI_TCP, ABI_IOCTL, ABI_SCOPES = 2, 3, 4, 5, 6
_LATER_RIGHTS = ((ABI_REFER, _REFER), (ABI_TRUNCATE, _TRUNCATE), (ABI_IOCTL, _IOCTL_DEV))
#: The kernel takes no other rights than these for a rule about a file.
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

READ = _EXECUTE | _READ_FILE | _READ_DIR
#: Nobody makes device nodes, and a device is spoken to where devices are.
WRITE = (_FIRST_RIGHTS | _REFER | _TRUNCATE) & ~(_MAKE_CHAR | _MAKE_BLOCK)
DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV

#: landlock_ruleset_attr: files, network, scopes; landlock_path_beneath_attr, which is packed: rights, descriptor.
_RULESET = struct.Struct("=QQQ")
_PATH_BENEATH = struct.Struct("=Qi")
_LIBC = ctypes.CDLL(None, use_errno=True)


def restrict(
    *,
    write: Sequence[str] = (),
    read: Sequence[str] = (),
    devices: Sequence[str] = (),
    close_tcp: bool,
    highest_abi: int = 1 << 16,
) -> tuple[int, str]:
    """Close everything but these paths; what does not exist is passed over. Gives the ABI that is in force, 0 with a
    problem where none is.

    `highest_abi` makes a newer kernel behave like an older one.
    """
    try:
        abi = min(kernel_abi(), highest_abi)
        with _ruleset(abi, close_tcp=close_tcp) as ruleset:
            for paths, rights in ((read, READ), (write, WRITE), (devices, DEVICE)):
                for path in paths:
                    _allow(ruleset, path, rights & _handled_rights(abi))
            _call(_RESTRICT_SELF, ruleset, 0)
    except OSError as exc:
        return 0, exc.strerror or str(exc)
    return abi, ""


def kernel_abi() -> int:
    """The version of Landlock that the running kernel speaks; raises OSError where it has none."""
    if os.uname().machine not in _MACHINES or not hasattr(_LIBC, "syscall"):
        raise OSError(0, f"this version does not know it on {os.uname().sysname} {os.uname().machine}")
    return _call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)


def _handled_rights(abi: int) -> int:
    rights = _FIRST_RIGHTS
    for since, right in _LATER_RIGHTS:
        rights |= right if abi >= since else 0
    return rights


@contextlib.contextmanager
def _ruleset(abi: int, *, close_tcp: bool) -> Iterator[int]:
    # A TCP right that is handled and that no rule allows is closed for every port.
    ruleset = _call(
        _CREATE_RULESET,
        _RULESET.pack(
            _handled_rights(abi),
            _BIND_TCP | _CONNECT_TCP if close_tcp and abi >= ABI_TCP else 0,
            _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if abi >= ABI_SCOPES else 0,
        ),
        _RULESET.size,
        0,
    )
    try:
        yield ruleset
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        # O_PATH opens nothing, so a place that this user may not read can be named as well.
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, _PATH_BENEATH.pack(rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: int | bytes | None) -> int:
    """One system call; raises OSError with the kernel's reason."""
    words = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    result = int(_LIBC.syscall(ctypes.c_long(number), *words))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
