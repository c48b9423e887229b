"""A git server on loopback: git's own `http-backend` behind a check of the credential.

`python -m tests.servers.git_http --root DIR --token T` serves until it is killed.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class GitRequest:
    """One request to the git server; `credential`: the right token came along; `size` of its body in bytes."""

    method: str
    path: str
    credential: bool
    size: int
    time: float


@dataclass
class GitFault:
    """What goes wrong at the next `times` requests that fit. `status` 0 drops the connection; `after_write` lets the
    request have its effect first; `headers` and `content` are sent as they are."""

    path: str
    status: int
    times: int = 1
    after_write: bool = False
    content: str = "injected"
    headers: tuple[tuple[str, str], ...] = ()
    method: str = ""

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and method.startswith(self.method) and re.search(self.path, path) is not None


class GitServer:
    """Serves on a free port of 127.0.0.1 as a context manager. `url` is what a server URL is for GitHub."""

    def __init__(self, root: Path, token: str, *, anonymous_reads: bool = False, port: int = 0) -> None:
        self.root, self.token, self.anonymous_reads = root, token, anonymous_reads
        self.requests: list[GitRequest] = []
        self.faults: list[GitFault] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.git = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, path: str, status: int, **more: Any) -> None:
        """Let the next request that fits fail; `path` is a regular expression and may name the query too."""
        self.faults.append(GitFault(path, status, **more))

    def refuse_pushes(self, repository: str, said: str) -> Path:
        """A hook that lets no push in and says why; delete the file to let them in again."""
        hook = self.root / f"{repository}.git" / "hooks" / "pre-receive"
        lines = "".join(f"echo '{line}' >&2\n" for line in said.splitlines())
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{lines}exit 1\n")
        hook.chmod(0o755)
        return hook

    def create(self, repository: str, default_branch: str = "main") -> Path:
        """An empty repository that may be pushed to."""
        path = self.root / f"{repository}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        run = ["git", "init", "--quiet", "--bare", f"--initial-branch={default_branch}", str(path)]
        subprocess.run(run, check=True, env=environment)
        subprocess.run(["git", "-C", str(path), "config", "http.receivepack", "true"], check=True, env=environment)
        return path

    def __enter__(self) -> GitServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve_forever(self) -> None:
        self._server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    @property
    def _git(self) -> GitServer:
        return self.server.git  # type: ignore[attr-defined,no-any-return]

    def _serve(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        credential = self._has_credential()
        self._git.requests.append(GitRequest(self.command, self.path, credential, len(body), time.time()))
        writes = "git-receive-pack" in self.path
        if not credential and (writes or not self._git.anonymous_reads):
            self._answer(401, [("WWW-Authenticate", 'Basic realm="GitHub"')], b"Authentication required\n")
            return
        fault = next((fault for fault in self._git.faults if fault.fits(self.command, self.path)), None)
        if fault:
            fault.times -= 1
        if fault and not fault.after_write:
            self._fail(fault)
            return
        environment = {
            "PATH": PATH,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROJECT_ROOT": str(self._git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "x-access-token" if credential else "",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        if fault:
            self._fail(fault)
            return
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200 if head else 500)
        self._answer(status, [(name, value) for name, value in headers if name != "Status"], content)

    def _fail(self, fault: GitFault) -> None:
        if fault.status == 0:
            self.close_connection = True
            self.connection.close()
            return
        self._answer(fault.status, list(fault.headers), fault.content.encode())

    def _has_credential(self) -> bool:
        expected = base64.b64encode(f"x-access-token:{self._git.token}".encode()).decode()
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "basic" and given == expected

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Serve from a process of its own; the first line of stdout is the URL."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    server = GitServer(given.root, given.token, port=given.port)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
