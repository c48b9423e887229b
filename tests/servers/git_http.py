"""A git server on loopback: git's own `http-backend` behind a check of the credential."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.loopback import Handler, LoopbackServer

PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class GitRequest:
    """One request to the git server; `credential`: the right token came along, or the `read_only` one; `size` of its
    body in bytes."""

    method: str
    path: str
    credential: bool
    size: int
    time: float
    read_only: bool = False


@dataclass
class GitFault:
    """What goes wrong at the next `times` requests that fit. `status` 0 drops the connection; `after_write` lets the
    request have its effect first; `headers` and `content` are sent as they are; `skip` so many that fit are spared."""

    path: str
    status: int
    times: int = 1
    after_write: bool = False
    content: str = "injected"
    headers: tuple[tuple[str, str], ...] = ()
    method: str = ""
    skip: int = 0

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and method.startswith(self.method) and re.search(self.path, path) is not None


@dataclass(frozen=True)
class Attachment:
    """What is at an address below the server's own: a file, or where it leads. `announced` is the length that the
    server gives of it, None for the true one; of `fails` the last is the status of the next answer."""

    content: bytes = b""
    type: str = "image/png"
    leads_to: str = ""
    announced: int | None = None
    fails: list[int] = field(default_factory=list)


class GitServer(LoopbackServer):
    """Serves on a free port of 127.0.0.1, or on the `port` given, as a context manager. `url` is what a server URL is
    for GitHub. With `read_token` nothing can be pushed. `attachments` are there for everybody who knows their
    addresses: path and query; `asked` are those that somebody came for, and `leaked` those to which a credential came
    along."""

    def __init__(self, root: Path, token: str, read_token: str = "", port: int = 0) -> None:
        self.root, self.token, self.read_token = root, token, read_token
        self.requests: list[GitRequest] = []
        self.faults: list[GitFault] = []
        self.attachments: dict[str, Attachment] = {}
        self.asked: list[str] = []
        self.leaked: list[str] = []
        #: What happens between a client's last look and its next push.
        self.before_push: Callable[[], object] | None = None
        server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        server.git = self  # type: ignore[attr-defined]
        super().__init__(server)

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
        """An empty repository that may be pushed to, and fetched from without its trees."""
        path = self.root / f"{repository}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        run = ["git", "init", "--quiet", "--bare", f"--initial-branch={default_branch}", str(path)]
        subprocess.run(run, check=True, env=environment)
        for setting in ("http.receivepack", "uploadpack.allowFilter"):
            subprocess.run(["git", "-C", str(path), "config", setting, "true"], check=True, env=environment)
        return path


class _Handler(Handler):
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_GET

    @property
    def _git(self) -> GitServer:
        return self.server.git  # type: ignore[attr-defined,no-any-return]

    def _serve(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        if attachment := self._git.attachments.get(self.path):
            self._attach(attachment)
            return
        read_only = bool(self._git.read_token) and self._has(self._git.read_token)
        credential = read_only or self._has(self._git.token)
        self._git.requests.append(GitRequest(self.command, self.path, credential, len(body), time.time(), read_only))
        if not credential:
            self._answer(401, [("WWW-Authenticate", 'Basic realm="GitHub"')], b"Authentication required\n")
            return
        if read_only and "git-receive-pack" in self.path:
            self._answer(403, [], b"Permission denied\n")
            return
        if parts.query == "service=git-receive-pack" and (happens := self._git.before_push):
            self._git.before_push = None
            happens()
        fault = next((fault for fault in self._git.faults if fault.fits(self.command, self.path)), None)
        if fault and fault.skip:
            fault.skip, fault = fault.skip - 1, None
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
            "REMOTE_USER": "x-access-token",
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

    def _attach(self, attachment: Attachment) -> None:
        self._git.asked.append(self.path)
        self._git.leaked += [self.path] if {"Authorization", "Cookie"} & set(self.headers) else []
        if attachment.fails:
            self._fail(GitFault("", attachment.fails.pop(), headers=(("Retry-After", "37"),)))
            return
        length = len(attachment.content) if attachment.announced is None else attachment.announced
        self.send_response(302 if attachment.leads_to else 200)
        if attachment.leads_to:
            self.send_header("Location", attachment.leads_to)
        self.send_header("Content-Type", attachment.type)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        # Whoever has read enough hangs up.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(attachment.content)

    def _fail(self, fault: GitFault) -> None:
        if fault.status == 0:
            self.close_connection = True
            self.connection.close()
            return
        self._answer(fault.status, list(fault.headers), fault.content.encode())

    def _has(self, token: str) -> bool:
        expected = base64.b64encode(f"x-access-token:{token}".encode()).decode()
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
