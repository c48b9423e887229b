"""Answers the sandbox's calls for sockets and connections, which the kernel hands to the parent (seccomp_unotify)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepflow.sandbox.child.seccomp import NUMBERS

# linux/seccomp.h: struct seccomp_notif with its seccomp_data, seccomp_notif_resp, seccomp_notif_addfd.
_CALL = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_DESCRIPTOR = struct.Struct("=QIIII")
_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_AND_ANSWER, _CONTINUE = 1 << 1, 1 << 0
_FAMILY = struct.Struct("=H")
# asm-generic/socket.h and linux/filter.h, a struct sock_filter and a struct sock_fprog.
_ATTACH_FILTER, _LOCK_FILTER = 26, 44
_INSTRUCTION, _PROGRAM = struct.Struct("=HBBI"), struct.Struct("HP")
_LOAD_HALF, _LOAD_BYTE, _EQUAL, _HAS_BIT, _RETURN = 0x28, 0x30, 0x15, 0x45, 0x06
#: Of a TCP header: where the sender's port and the flags stand, and the flag of a connection that begins.
_SOURCE_PORT, _FLAGS, _SYN = 0, 13, 0x02
#: Of a line of /proc/net/unix (proc_net(5)).
_INODE = 6
_TYPE_BITS = 0xF
_INTERNET = (socket.AF_INET, socket.AF_INET6)
#: For one connection on this machine.
_CONNECT_SECONDS = 10.0
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, kw_only=True)
class SocketCall:
    """A process of the sandbox waits in `socket(family, kind, …)`."""

    id: int
    family: int
    kind: int

    @property
    def is_tcp(self) -> bool:
        """Whether a connection of TCP stands for what is asked for."""
        return self.family in _INTERNET and self.kind & _TYPE_BITS == socket.SOCK_STREAM

    @property
    def description(self) -> str:
        """What else is asked for, in the words of the report; empty for what leads nowhere but to the kernel."""
        if self.family == getattr(socket, "AF_NETLINK", None):
            return ""
        if self.family not in _INTERNET:
            return "(other sockets)"
        return "(UDP)" if self.kind & _TYPE_BITS == socket.SOCK_DGRAM else "(raw IP)"


@dataclass(frozen=True, kw_only=True)
class ConnectCall:
    """A process of the sandbox waits in `connect`, whose address is as long as one of the internet."""

    id: int
    pid: int
    address: int


@dataclass(frozen=True, kw_only=True)
class ListenCall:
    """A process of the sandbox waits in `listen`."""

    id: int
    pid: int
    descriptor: int


def is_over(listener: int) -> bool:
    """Whether no process is left that could call."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return any(event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN for _, event in poll.poll(0))


def receive_call(listener: int) -> SocketCall | ConnectCall | ListenCall:
    """The next call. Raises `OSError` when its process was killed meanwhile."""
    # The kernel wants the buffer to be empty.
    buffer = bytearray(_CALL.size)
    fcntl.ioctl(listener, _RECEIVE, buffer)
    call_id, pid, _flags, number, _machine, _pointer, first, second, *_ = _CALL.unpack(buffer)
    numbers = NUMBERS[os.uname().machine]
    if number == numbers["connect"]:
        return ConnectCall(id=call_id, pid=pid, address=second)
    if number == numbers["listen"]:
        return ListenCall(id=call_id, pid=pid, descriptor=first & 0xFFFFFFFF)
    return SocketCall(id=call_id, family=first & 0xFFFFFFFF, kind=second & 0xFFFFFFFF)


def answer_connect(listener: int, call: ConnectCall) -> None:
    """Leave a connection to a socket file to the kernel; any other stands already. The process may change the address
    after it was read: a connection that the kernel then makes is one that Landlock decides about. Raises `OSError`
    when nobody waits any more."""
    flags = _CONTINUE if _family_of(call) == socket.AF_UNIX else 0
    fcntl.ioctl(listener, _SEND, _ANSWER.pack(call.id, 0, 0, flags))


def answer_listen(listener: int, call: ListenCall) -> None:
    """Leave a socket file to the kernel; no other socket listens. A process with several threads may put another one in
    its place after it was looked at: where the kernel allows it, no connection reaches that one (`connected_pair`).
    Raises `OSError` when nobody waits any more."""
    error, flags = (0, _CONTINUE) if _is_socket_file(call) else (-errno.EACCES, 0)
    fcntl.ioctl(listener, _SEND, _ANSWER.pack(call.id, 0, error, flags))


def _is_socket_file(call: ListenCall) -> bool:
    process = Path(f"/proc/{call.pid}")
    try:
        with _as_user_of(process):
            link = (process / f"fd/{call.descriptor}").readlink().name
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return False
    return link.encode() in {b"socket:[%b]" % line.split()[_INODE] for line in lines}


def _family_of(call: ConnectCall) -> int | None:
    """None where the process does not let it be read, or has given no address."""
    process = Path(f"/proc/{call.pid}")
    try:
        with _as_user_of(process):
            memory = (process / "mem").open("rb", buffering=0)
        with memory:
            return int(_FAMILY.unpack(os.pread(memory.fileno(), _FAMILY.size, call.address))[0])
    except (OSError, OverflowError, struct.error):
        return None


@contextlib.contextmanager
def _as_user_of(process: Path) -> Iterator[None]:
    """Let this thread alone open what is open to that process: a root user without CAP_SYS_PTRACE, as in a container,
    may not read the memory of others (ptrace(2), setfsuid(2))."""
    owner = process.stat()
    group, user = _LIBC.setfsgid(owner.st_gid), _LIBC.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        _LIBC.setfsuid(user)
        _LIBC.setfsgid(group)


def refuse_call(listener: int, call: SocketCall, error: int) -> None:
    """Let the call fail. Raises `OSError` when nobody waits any more."""
    fcntl.ioctl(listener, _SEND, _ANSWER.pack(call.id, 0, -error, 0))


def give_socket(listener: int, call: SocketCall, given: socket.socket) -> None:
    """Let the call succeed with this socket. Raises `OSError` when it cannot take one or nobody waits any more."""
    given.setblocking(not call.kind & socket.SOCK_NONBLOCK)
    flags = call.kind & socket.SOCK_CLOEXEC
    fcntl.ioctl(listener, _ADD_DESCRIPTOR, _DESCRIPTOR.pack(call.id, _AND_ANSWER, given.fileno(), 0, flags))


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """A socket for the sandbox and its other end. For as long as the first one lives it can reach this machine alone:
    the kernel lets nobody without CAP_NET_RAW take it off the loopback device. Raises `OSError`.

    A process can dissolve the connection. It never has another one: where the kernel lets this process filter what the
    socket receives, which newer ones do only with CAP_NET_ADMIN, nobody can remove that, and no connection begins."""
    ours = socket.socket()
    try:
        ours.settimeout(_CONNECT_SECONDS)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours.connect(server.getsockname())
            server.settimeout(_CONNECT_SECONDS)
            while True:
                other, address = server.accept()
                if address == ours.getsockname():
                    with contextlib.suppress(PermissionError):
                        _receive_only_from(ours, other.getsockname()[1])
                    return ours, other
                # Somebody else on this machine was quicker.
                other.close()
    except BaseException:
        ours.close()
        raise


def _receive_only_from(end: socket.socket, port: int) -> None:
    """Let the socket receive from this port alone, and nothing with which a connection begins (socket(7))."""
    instructions = (
        (_LOAD_HALF, 0, 0, _SOURCE_PORT),
        (_EQUAL, 0, 3, port),
        (_LOAD_BYTE, 0, 0, _FLAGS),
        (_HAS_BIT, 1, 0, _SYN),
        (_RETURN, 0, 0, 0xFFFFFFFF),
        (_RETURN, 0, 0, 0),
    )
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _PROGRAM.pack(len(instructions), ctypes.addressof(buffer))
    end.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    end.setsockopt(socket.SOL_SOCKET, _LOCK_FILTER, 1)
