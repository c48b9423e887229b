"""Reads the first message of TLS, in which a program names the host that it wants (RFC 8446, RFC 6066)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader

#: The first byte of a record that holds a handshake message.
HANDSHAKE = b"\x16"
#: A fatal alert: unrecognized_name.
ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0
_LONGEST = 64 * 1024
_LONGEST_RECORD = 1 << 14


async def read_client_hello(reader: StreamReader) -> tuple[bytes, str]:
    """The records that hold the message, whose first byte was read already, and the name in it, empty without one.
    Raises `ValueError` for anything else."""
    raw, message = b"", b""
    while True:
        header = await reader.readexactly(5 if raw else 4)
        record = header if raw else HANDSHAKE + header
        size = int.from_bytes(record[3:5])
        if record[:1] != HANDSHAKE or not 0 < size <= _LONGEST_RECORD:
            raise ValueError("no handshake of TLS")
        fragment = await reader.readexactly(size)
        raw, message = raw + record + fragment, message + fragment
        if len(message) < 4:
            continue
        length = int.from_bytes(message[1:4])
        if message[0] != _CLIENT_HELLO or length > _LONGEST:
            raise ValueError("no ClientHello")
        if len(message) >= 4 + length:
            return raw, _server_name(_Bytes(message[4 : 4 + length]))


class _Bytes:
    """Takes fields from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        """So many bytes."""
        if size > len(self.data):
            raise ValueError("a message of TLS ends early")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, size: int) -> int:
        """A number of so many bytes."""
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> _Bytes:
        """What follows its own length, which has so many bytes."""
        return _Bytes(self.take(self.number(size)))


def _server_name(hello: _Bytes) -> str:
    hello.take(2 + 32)
    hello.vector(1)
    hello.vector(2)
    hello.vector(1)
    extensions = hello.vector(2) if hello.data else hello
    names: list[str] = []
    while extensions.data:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            entries = content.vector(2)
            while entries.data:
                if entries.number(1) != _HOST_NAME:
                    raise ValueError("a server name of an unknown kind")
                names.append(entries.vector(2).data.decode("ascii"))
    if len(names) > 1:
        raise ValueError("more than one server name")
    return names[0] if names else ""
