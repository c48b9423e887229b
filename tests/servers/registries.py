"""The registries of pip and npm in one web server on loopback, with one package, `canary`."""

from __future__ import annotations

import http.server
import io
import json
import tarfile
import zipfile

from tests.servers.loopback import LoopbackServer

_WHEEL = "canary-1.0-py3-none-any.whl"


class _Requests(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.came.append(self.headers["Host"])
        pages = {
            "/simple/canary/": (f'<a href="/{_WHEEL}">{_WHEEL}</a>'.encode(), "text/html"),
            f"/{_WHEEL}": (_wheel(), "application/octet-stream"),
            "/canary": (json.dumps(_npm_document(self.headers["Host"])).encode(), "application/json"),
            "/canary/-/canary-1.0.0.tgz": (_npm_package(), "application/octet-stream"),
            "/": (b"canary", "text/plain"),
        }
        body, kind = pages.get(self.path, (b"", "text/plain"))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Registries(LoopbackServer):
    """`came` are the hosts that requests were for, in order."""

    def __init__(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Requests)
        self.came: list[str] = []
        server.came = self.came  # type: ignore[attr-defined]
        super().__init__(server)


def _wheel() -> bytes:
    """What pip installs (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    info = "canary-1.0.dist-info"
    files = {
        "canary.py": "SONG = 'sung by pip'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: canary\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return written.getvalue()


def _npm_package() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        files = {
            "package.json": '{"name": "canary", "version": "1.0.0"}',
            "index.js": "module.exports = 'sung by npm'\n",
        }
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return written.getvalue()


def _npm_document(host: str) -> dict[str, object]:
    """What npm asks first (https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md)."""
    dist = {"tarball": f"https://{host}/canary/-/canary-1.0.0.tgz"}
    version = {"name": "canary", "version": "1.0.0", "dist": dist}
    return {"name": "canary", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
