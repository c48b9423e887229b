"""A company's network on loopback: servers with certificates of its own authority, and a proxy that leads to them."""

from __future__ import annotations

import base64
import select
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import trustme

from tests.servers.loopback import LoopbackServer

_PIECE = 65536
Address = tuple[str, int]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    serve: Callable[[socket.socket], None]

    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet: what a client does not like it says itself."""


class _Serving(LoopbackServer):
    """A TCP server whose connections `serve` answers."""

    def __init__(self) -> None:
        server = _Server(("127.0.0.1", 0), _Handler)
        server.serve = self.serve
        super().__init__(server)

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(OSError, ValueError):
            self.server.serve(self.request)  # type: ignore[attr-defined]


class TlsFront(_Serving):
    """TLS with a certificate for `names`; the path of a connection's first request chooses the backend behind it. With
    a `curve`, a client that guesses another one is asked to begin again."""

    def __init__(self, authority: trustme.CA, *names: str, to: Callable[[str], Address], curve: str = "") -> None:
        super().__init__()
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if curve:
            self._context.set_ecdh_curve(curve)
        authority.issue_cert(*names).configure_cert(self._context)
        self._to = to

    def serve(self, client: socket.socket) -> None:
        with self._context.wrap_socket(client, server_side=True) as wrapped:
            first = _head(wrapped)
            path = first.split(b" ", 2)[1].decode()
            with socket.create_connection(self._to(path)) as backend:
                backend.sendall(first)
                _pump(wrapped, backend)


class Recorder(_Serving):
    """Keeps what each connection brings, and answers the first bytes with `answer`."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__()
        self.answer, self.came = answer, list[bytes]()

    def serve(self, client: socket.socket) -> None:
        number, answer = len(self.came), self.answer
        self.came.append(b"")
        while piece := client.recv(_PIECE):
            self.came[number] += piece
            client.sendall(answer)
            answer = b""

    def bytes_since(self, connection: int, *, at_least: int) -> bytes:
        """All that came from this connection on, once it is so much or ten seconds are over."""
        ends = time.monotonic() + 10
        while len(came := b"".join(self.came[connection:])) < at_least and time.monotonic() < ends:
            time.sleep(0.01)
        return came


@dataclass(frozen=True)
class ProxiedRequest:
    """One request to the proxy: its method, what it names, and its whole head."""

    method: str
    target: str
    head: str


class Proxy(_Serving):
    """A CONNECT proxy. `hosts` are the names that it knows and where they are. With a `login` ("user:password") it
    wants one; `refuses` answers every request with that status line; `silent` never answers."""

    def __init__(
        self, hosts: Mapping[str, Address], *, login: str = "", refuses: str = "", silent: bool = False
    ) -> None:
        super().__init__()
        self.hosts, self.login, self.refuses, self.silent = dict(hosts), login, refuses, silent
        self.requests: list[ProxiedRequest] = []
        self._over = threading.Event()

    @property
    def url_with_login(self) -> str:
        return f"http://{self.login}@127.0.0.1:{self.port}"

    def targets(self) -> set[str]:
        """What was asked for."""
        return {requests.target for requests in self.requests}

    def __exit__(self, *_: object) -> None:
        self._over.set()
        super().__exit__()

    def serve(self, client: socket.socket) -> None:
        head = _head(client).decode("latin-1")
        method, target, _ = head.split(" ", 2)
        self.requests.append(ProxiedRequest(method, target, head))
        if self.silent:
            self._over.wait()
            return
        if self.refuses or (self.login and not self._is_let_in(head)):
            line = self.refuses or "407 Proxy Authentication Required"
            client.sendall(
                f'HTTP/1.1 {line}\r\nProxy-Authenticate: Basic realm="proxy"\r\n'
                "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            return
        host = urlsplit(f"//{target}").hostname or ""
        if method != "CONNECT" or host not in self.hosts:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        with socket.create_connection(self.hosts[host]) as backend:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _pump(client, backend)

    def _is_let_in(self, head: str) -> bool:
        return f"Basic {base64.b64encode(self.login.encode()).decode()}" in head


def address_of(url: str) -> Address:
    """Where a server on loopback is."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def closed_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pem_of(authority: trustme.CA) -> str:
    """The authority's certificate, as `ca-certificates` takes it."""
    return authority.cert_pem.bytes().decode()


def _head(client: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = client.recv(_PIECE)
        if not piece:
            raise ValueError("no request came")
        head += piece
    return head


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    while True:
        ready = [one] if isinstance(one, ssl.SSLSocket) and one.pending() else select.select([one, other], [], [])[0]
        for source in ready:
            piece = source.recv(_PIECE)
            if not piece:
                return
            (other if source is one else one).sendall(piece)
