"""Where GitHub keeps the logs of jobs: an address of its own, which lets everybody in who knows it."""

from __future__ import annotations

from http.server import ThreadingHTTPServer

from tests.servers.loopback import Handler, LoopbackServer


class LogStore(LoopbackServer):
    """Gives the text of each path in `logs`. `violations` names the requests that brought a credential along, which is
    none of this server's business; each of `statuses` takes the place of one answer."""

    def __init__(self) -> None:
        self.logs: dict[str, bytes] = {}
        self.statuses: list[int] = []
        self.requests: list[str] = []
        self.violations: list[str] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.store = self  # type: ignore[attr-defined]
        super().__init__(server)

    def keep(self, name: int | str, log: bytes) -> str:
        """The address of a job's log, or of an artifact, as GitHub signs it."""
        path = f"/logs/{name}?sig=signed"
        self.logs[path] = log
        return f"{self.url}{path}"


class _Handler(Handler):
    def do_GET(self) -> None:
        store: LogStore = self.server.store  # type: ignore[attr-defined]
        store.requests.append(self.path)
        if secrets := {"Authorization", "Cookie"} & set(self.headers):
            store.violations.append(f"GET {self.path}: {secrets} went to where the logs are kept")
        status = store.statuses.pop(0) if store.statuses else 200 if self.path in store.logs else 404
        content = store.logs[self.path] if status == 200 else b"<Error/>"
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{store.url}{self.path}")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
