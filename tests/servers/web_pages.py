"""A web server on loopback that has one page for everything."""

from __future__ import annotations

import http.server

from tests.servers.loopback import LoopbackServer


class _Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(b"canary")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, page: bytes) -> None:
        self.server.came.append((self.path, self.headers["Host"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Pages(LoopbackServer):
    """A web server; gives what was asked for, and under which name."""

    def __init__(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
        self.came = server.came = []
        super().__init__(server)
