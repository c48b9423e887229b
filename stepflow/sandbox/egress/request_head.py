"""Reads where a program in the sandbox wants to go, from the first bytes that it sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.sandbox.egress.allowed_hosts import describe_host, normalize_host, split_host_port
from stepflow.sandbox.egress.client_hello import HANDSHAKE, read_client_hello

if TYPE_CHECKING:
    from asyncio import StreamReader

_HTTPS, _HTTP = 443, 80
_CONNECT = "CONNECT"
_REQUEST_LINE = re.compile(r"([A-Z]+) (\S+) (HTTP/1\.[01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_ABSOLUTE = re.compile(r"http://([^/?#]+)([/?]\S*)?", re.IGNORECASE)
#: What is between a program and its proxy, and what the request is given anew.
_OWN_HEADERS = frozenset(
    {
        *("connection", "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive", "te", "upgrade"),
        "host",
    }
)


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
    headers = [(match[1], match[2]) for match in matches if match]
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
