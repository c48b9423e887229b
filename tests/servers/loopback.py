"""What all servers on loopback share: a free port, a thread, and an end."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Self


class LoopbackServer:
    """Serves as long as its context is open. `server` is bound to a free port of 127.0.0.1.

    It waits for the next connection without looking up in between: a test has several servers, and runs programs
    beside them that need the processor.
    """

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        # A last connection, which ends the wait for one.
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        while not self._closing:
            self._server.handle_request()


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, and is quiet."""

    protocol_version = "HTTP/1.1"
    # Many small writes on a connection that stays open would wait for each other.
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Requests are recorded, not printed."""
