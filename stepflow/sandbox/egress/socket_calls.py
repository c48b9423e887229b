"""Answers the sandbox's calls for sockets, which the kernel hands to the parent (seccomp_unotify(2))."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
from dataclasses import dataclass

# linux/seccomp.h: struct seccomp_notif with its seccomp_data, seccomp_notif_resp, seccomp_notif_addfd.
_CALL = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_DESCRIPTOR = struct.Struct("=QIIII")
_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_AND_ANSWER = 1 << 1
_TYPE_BITS = 0xF
_INTERNET = (socket.AF_INET, socket.AF_INET6)
#: For one connection on this machine.
_CONNECT_SECONDS = 10.0


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


def is_over(listener: int) -> bool:
    """Whether no process is left that could call."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return any(event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN for _, event in poll.poll(0))


def receive_call(listener: int) -> SocketCall:
    """The next call. Raises `OSError` when its process was killed meanwhile."""
    # The kernel wants the buffer to be empty.
    buffer = bytearray(_CALL.size)
    fcntl.ioctl(listener, _RECEIVE, buffer)
    call_id, _pid, _flags, _number, _machine, _pointer, family, kind, *_ = _CALL.unpack(buffer)
    return SocketCall(id=call_id, family=family & 0xFFFFFFFF, kind=kind & 0xFFFFFFFF)


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
    the kernel lets nobody without CAP_NET_RAW take it off the loopback device. Raises `OSError`."""
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
                    return ours, other
                # Somebody else on this machine was quicker.
                other.close()
    except BaseException:
        ours.close()
        raise
