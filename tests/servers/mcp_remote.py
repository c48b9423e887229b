"""The same MCP server on loopback, behind a token; in a process of its own, since its package sets logging up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self


class RemoteMcp:
    """Serves as long as its context is open. Who comes without `token` is refused."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __enter__(self) -> Self:
        argv = [sys.executable, "-W", "ignore", __file__]
        environment = {**os.environ, "TOKEN": self.token}
        self._process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/mcp"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def checked(app: Any, token: str) -> Any:
    """The app, for those who have the token."""

    async def check(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and given != f"Bearer {token}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await app(scope, receive, send)

    return check


def main() -> None:
    """Serve on a free port, which is the first line of the output."""
    sys.path.insert(0, str(Path(__file__).parent))
    import uvicorn
    from mcp_docs import server

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = checked(server.streamable_http_app(), os.environ["TOKEN"])
    uvicorn.Server(uvicorn.Config(app, log_level="critical", interface="asgi3")).run(sockets=[listening])


if __name__ == "__main__":
    main()
