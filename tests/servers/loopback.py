"""What all servers on loopback share: a free port, a thread, and an end."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Self


class LoopbackServer:
    """Serves as long as its context is open. `server` is bound to a free port of 127.0.0.1."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)

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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, and is quiet."""

    protocol_version = "HTTP/1.1"
    # Many small writes on a connection that stays open would wait for each other.
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Requests are recorded, not printed."""
