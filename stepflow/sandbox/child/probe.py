"""Tries, as a tool would, to reach what no tool may reach, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial

#: linux/ptrace.h. Seizing asks for the same right as attaching, but does not stop the process.
_PTRACE_SEIZE = 0x4206
_TIMEOUT = 0.5
_MOST_BYTES = 128 * 1024
_HIGHEST_DESCRIPTOR = 256
#: Found on the tools' PATH, as a tool would.
_GIT = ("git", "config", "--list", "--show-origin", "--includes")


def main() -> int:
    """Try everything that the first argument lists, as JSON of `[kind, target]`, and print the results as JSON.

    A result is empty when an attempt got through, `:` and bytes in hex when the parent must judge them, else the error.
    """
    attempts = json.loads(sys.argv[1])
    answer = {
        "descriptors": _descriptors(),
        "environment": {os.fsencode(name).hex(): os.fsencode(value).hex() for name, value in os.environ.items()},
        "results": [_try(kind, target) for kind, target in attempts],
    }
    sys.stdout.write(json.dumps(answer))
    return 0


def _try(kind: str, target: str) -> str:
    try:
        answer = _KINDS[kind](target)
        return f":{answer.hex()}" if isinstance(answer, bytes) else ""
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, "") or str(exc) or type(exc).__name__
    except subprocess.SubprocessError as exc:
        return str(exc)


def _make(folder: str) -> None:
    path = os.path.join(folder, f"stepflow-self-test-{os.urandom(8).hex()}")
    _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with contextlib.suppress(OSError):
        # A file that was made is a reach, whether or not it can be removed again.
        os.unlink(path)


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))


def _connect(name: str) -> None:
    """To the socket at a path, or with `@name` in the abstract namespace, of whatever type it is."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as end:
            end.setblocking(False)
            code = end.connect_ex("\0" + name[1:] if name.startswith("@") else name)
        if code in (0, errno.EAGAIN, errno.EINPROGRESS):
            # A full queue, too, lies behind the check of rights.
            return
        if code != errno.EPROTOTYPE:
            raise OSError(code, os.strerror(code))


def _tcp(target: str) -> bytes:
    address_family, address, mark = _destination(target)
    with socket.socket(address_family, socket.SOCK_STREAM) as end:
        end.setblocking(False)
        code = end.connect_ex(address)
        if code == errno.EINPROGRESS:
            ready = select.select([], [end], [], _TIMEOUT)[1]
            code = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ready else errno.ETIMEDOUT
        if code:
            raise OSError(code, os.strerror(code))
        end.send(mark)
    # Somebody else may have answered: the listener itself says whether the mark came.
    return b""


def _udp(target: str) -> None:
    address_family, address, mark = _destination(target)
    with socket.socket(address_family, socket.SOCK_DGRAM) as end:
        end.sendto(mark, address)


def _destination(target: str) -> tuple[int, tuple[str, int], bytes]:
    """The address family, the address, and the mark by which the listener knows this program."""
    where, _, mark = target.partition(" ")
    host, _, port = where.rpartition(":")
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, int(port)), mark.encode()


def _trace(pid: str) -> None:
    """Seize the process; the kernel lets go of it when this program ends, a moment later."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    if ptrace(_PTRACE_SEIZE, int(pid), None, None) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _peek(pid: str) -> None:
    """Ask for the process's memory at address 0, where none is: who may not ask at all is told that first."""
    peek = ctypes.CDLL(None, use_errno=True).process_vm_readv
    vector, count = ctypes.c_void_p, ctypes.c_ulong
    peek.argtypes = (ctypes.c_int, vector, count, vector, count, count)
    peek.restype = ctypes.c_ssize_t
    buffer = ctypes.create_string_buffer(8)
    here, there = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8), (ctypes.c_size_t * 2)(0, 8)
    peek(int(pid), ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
    if ctypes.get_errno() != errno.EFAULT:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES)


def _git_config(_target: str) -> bytes:
    done = subprocess.run(_GIT, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)  # noqa: S603
    return done.stdout[:_MOST_BYTES]


def _descriptors() -> list[str]:
    """What this process has open beyond the standard three."""
    targets = []
    for fd in range(3, _HIGHEST_DESCRIPTOR):
        try:
            os.fstat(fd)
        except OSError:
            continue
        targets.append(_leads_to(fd))
    return targets


def _leads_to(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"


#: What each kind of attempt does with its target. Bytes are for the parent to judge, anything else is a reach. Files
#: are only opened: some must not be read from, such as another process's memory.
_KINDS: Mapping[str, Callable[[str], object]] = {
    "read": partial(_open, flags=os.O_RDONLY | os.O_NONBLOCK),
    "append": partial(_open, flags=os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK),
    "make": _make,
    "list": os.listdir,
    "follow": os.readlink,
    "connect": _connect,
    "tcp": _tcp,
    "udp": _udp,
    "signal": lambda pid: os.kill(int(pid), 0),
    "trace": _trace,
    "peek": _peek,
    "bytes": _bytes,
    "git-config": _git_config,
}

if __name__ == "__main__":
    sys.exit(main())
