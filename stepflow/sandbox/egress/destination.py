"""Reads where a program in the sandbox wants to go, from the first bytes that it sends: an HTTP request, or how a TLS
connection begins (RFC 8446, RFC 6066)."""

from __future__ import annotations

import hashlib
import re
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass

from stepflow.sandbox.egress.allowed_hosts import describe_host, normalize_host, split_host_port

_HTTPS, _HTTP = 443, 80
_CONNECT = "CONNECT"
_REQUEST_LINE = re.compile(r"([A-Z]+) (\S+) (HTTP/1\.[01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([^\r\n\0]*)")
_ABSOLUTE = re.compile(r"http://([^/?#]+)([/?]\S*)?", re.IGNORECASE)
#: What is between a program and its proxy, and what the request is given anew.
_OWN_HEADERS = frozenset(
    {
        *("connection", "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive", "te", "upgrade"),
        "host",
    }
)
#: The first byte of a record that holds a handshake message, and of those that may stand before a second ClientHello:
#: change_cipher_spec, an alert, and early data that the server passes over.
HANDSHAKE = b"\x16"
_BETWEEN_HELLOS = (b"\x14", b"\x15", b"\x17")
#: A fatal alert: unrecognized_name.
ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
_CLIENT_HELLO, _SERVER_HELLO, _SERVER_NAME, _HOST_NAME = 1, 2, 0, 0
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
#: Of a record that is not encrypted, and of any.
_LONGEST_PLAIN, _LONGEST = 1 << 14, (1 << 14) + 256
#: What stands for the random bytes of a ServerHello that asks for another ClientHello, a HelloRetryRequest.
_RETRY = hashlib.sha256(b"HelloRetryRequest").digest()


@dataclass(frozen=True, kw_only=True)
class Destination:
    """`is_tunnel`: asked for by CONNECT; `is_tls`: named by a ClientHello. `data` is what the host is sent first, and
    `body` how many bytes of the program follow, None for all of them."""

    host: str
    port: int
    is_tunnel: bool = False
    is_tls: bool = False
    data: bytes = b""
    body: int | None = None


async def read_destination(reader: StreamReader) -> Destination | None:
    """None when nothing is sent. Raises `ValueError` or `EOFError` for bytes that name no host."""
    first = await reader.read(1)
    if not first:
        return None
    if first == HANDSHAKE:
        hello, name = await read_client_hello(reader)
        host = normalize_host(name)
        if not host:
            raise ValueError("a ClientHello without a server name")
        return Destination(host=host, port=_HTTPS, is_tls=True, data=hello)
    head = first + await reader.readuntil(b"\r\n\r\n")
    return _parse_head(head.decode("latin-1").removesuffix("\r\n\r\n"))


def _parse_head(head: str) -> Destination:
    line, *fields = head.split("\r\n")
    request, matches = _REQUEST_LINE.fullmatch(line), [_HEADER.fullmatch(field) for field in fields]
    headers = [(match[1], match[2].rstrip(" \t")) for match in matches if match]
    if not request or len(headers) < len(fields):
        raise ValueError("no request of HTTP")
    method, target, version = request.groups()
    if method == _CONNECT:
        host, port = split_host_port(target, None)
        return Destination(host=host, port=port, is_tunnel=True)
    if absolute := _ABSOLUTE.fullmatch(target):
        authority, path = absolute[1], absolute[2] or "/"
        path = path if path.startswith("/") else f"/{path}"
    else:
        authority, path = _only(headers, "host") or "", target
        if not path.startswith("/"):
            raise ValueError("no target that a proxy takes")
    host, port = split_host_port(authority, _HTTP)
    length = _only(headers, "content-length") or "0"
    if _only(headers, "transfer-encoding") is not None or not (length.isascii() and length.isdigit()):
        raise ValueError("a body of unknown length")
    # One request for each connection: a second one could name another host.
    kept = [f"{name}: {value}" for name, value in headers if name.lower() not in _OWN_HEADERS]
    own = (f"Host: {describe_host(host, port, usual=(_HTTP,))}", "Connection: close")
    lines = (f"{method} {path} {version}", *own, *kept, "", "")
    return Destination(host=host, port=port, data="\r\n".join(lines).encode("latin-1"), body=int(length))


def _only(headers: list[tuple[str, str]], name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise ValueError(f"{name} twice")
    return values[0] if values else None


async def read_client_hello(reader: StreamReader) -> tuple[bytes, str]:
    """The record that holds the message and nothing else, whose first byte was read already, and the name in it, empty
    without one. Raises `ValueError` for anything else."""
    record = HANDSHAKE + await reader.readexactly(_RECORD_HEADER - 1)
    size = int.from_bytes(record[3:])
    if record[1] != 3 or not _MESSAGE_HEADER <= size <= _LONGEST_PLAIN:
        raise ValueError("no handshake of TLS")
    message = await reader.readexactly(size)
    if message[0] != _CLIENT_HELLO or int.from_bytes(message[1:_MESSAGE_HEADER]) != size - _MESSAGE_HEADER:
        raise ValueError("not one ClientHello alone")
    return record + message, _server_name(_Bytes(message[_MESSAGE_HEADER:]))


async def read_before_second_hello(reader: StreamReader) -> bytes:
    """The next record before a second ClientHello, empty where that comes next: its first byte is read then. Raises
    `ValueError` for anything else."""
    kind = await reader.readexactly(1)
    if kind == HANDSHAKE:
        return b""
    record = kind + await reader.readexactly(_RECORD_HEADER - 1)
    size = int.from_bytes(record[3:])
    if kind not in _BETWEEN_HELLOS or size > _LONGEST:
        raise ValueError("no record that may stand before a ClientHello")
    return record + await reader.readexactly(size)


async def read_server_answer(reader: StreamReader) -> tuple[bytes, bool]:
    """The server's first record, or the first bytes of what is none, and whether it asks for another ClientHello."""
    record = b""
    try:
        record = await reader.readexactly(_RECORD_HEADER)
        size = int.from_bytes(record[3:])
        if record[:1] != HANDSHAKE or size > _LONGEST_PLAIN:
            return record, False
        message = await reader.readexactly(size)
    except IncompleteReadError as exc:
        return record + exc.partial, False
    is_retry = message[:1] == bytes([_SERVER_HELLO]) and message[6 : 6 + len(_RETRY)] == _RETRY
    return record + message, is_retry


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

    def expect_end(self) -> None:
        """Raise where anything is left."""
        if self.data:
            raise ValueError("a message of TLS continues after its end")


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
            content.expect_end()
    hello.expect_end()
    if len(names) > 1:
        raise ValueError("more than one server name")
    return names[0] if names else ""
