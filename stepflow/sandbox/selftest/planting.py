"""Plants canaries where no tool may get, for as long as the self-test takes (security.md)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.sandbox.selftest.canaries import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CANARY = b"canary\n"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Something that the probe tries: its kind, and what it is tried on. `shown` is where, in words without chance."""

    location: Location
    kind: str
    target: str | int
    shown: str


class Planting(contextlib.ExitStack):
    """What is planted while the `with` block lasts. `files` are for the file tools, `planted` must stay as they are.
    `expect` is called with each path before anything can be there."""

    def __init__(self, *, checkout: Path, uid: int, gid: int, expect: Callable[[Path], None] = lambda _: None) -> None:
        super().__init__()
        self.checkout, self.uid, self.gid, self.expect = checkout, uid, gid, expect
        self.attempts: list[Attempt] = []
        self.files: list[Attempt] = []
        self.planted: list[Attempt] = []
        self._name = f"stepflow-canary-{secrets.token_hex(8)}"
        self._folders: set[Path] = set()

    def try_all(
        self, location: Location, kinds: Iterable[str], target: str | int, shown: str, *, by_file_tool: bool = False
    ) -> None:
        """Something that is there. `by_file_tool`: a file that the tool `read` must not read either."""
        self.attempts += (Attempt(location=location, kind=kind, target=target, shown=shown) for kind in kinds)
        if by_file_tool:
            self.files.append(Attempt(location=location, kind="read", target=target, shown=shown))

    def plant_in(self, location: Location, folder: Path) -> None:
        """A file that is the tools' own, so that nothing but the folder and the kernel keeps it from them."""
        path = folder / self._name
        with contextlib.suppress(OSError):
            self._new(path, lambda: path.write_bytes(CANARY))
            path.chmod(0o666)
            if os.geteuid() == 0:
                os.chown(path, self.uid, self.gid)
            self._try_planted(location, path, str(folder))

    def plant_temporary(self, location: Location) -> None:
        """A folder such as the parent makes for itself alone, with a file such as it may hold."""
        above = Path(tempfile.gettempdir())
        folder = above / f"{self._name}-private"
        with contextlib.suppress(OSError):
            self._new(folder, lambda: folder.mkdir(mode=0o700))
            path = folder / self._name
            self._new(path, lambda: path.write_bytes(CANARY))
            self._try_planted(location, path, str(above))

    def listen(self, location: Location, kind: str, address_family: int, host: str) -> None:
        """A socket of the parent: `@` in the abstract namespace, a host on a free port otherwise."""
        abstract = f"@{self._name}"
        with contextlib.suppress(OSError):
            server = socket.socket(address_family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
            self.callback(server.close)
            server.bind(abstract.replace("@", "\0") if host == "@" else (host, 0))
            if kind != "udp":
                server.listen(8)
            if host == "@":
                self.try_all(location, (kind,), abstract, "one of the parent")
            else:
                self.try_all(location, (kind,), f"{host}:{server.getsockname()[1]}", host)

    def changed(self) -> tuple[Attempt, ...]:
        """The planted files that are no longer what they were."""
        changed = (planted for planted in self.planted if _bytes_of(str(planted.target)) != CANARY)
        return tuple(replace(planted, kind="write") for planted in changed)

    def _try_planted(self, location: Location, path: Path, shown: str) -> None:
        """By its own path, and by one that begins inside the checkout."""
        self.planted.append(Attempt(location=location, kind="read", target=str(path), shown=shown))
        made = path.with_name(f"{path.name}-made")
        self.expect(made)
        self.callback(_remove, made)
        self.try_all(location, ("list",), str(path.parent), shown)
        self.try_all(location, ("read", "write"), str(path), shown, by_file_tool=True)
        self.try_all(location, ("make",), str(made), shown)
        link = self.checkout / f".{self._name}-{len(self.planted)}"
        with contextlib.suppress(OSError):
            self._new(link, lambda: link.symlink_to(path))
            self.try_all(location, ("read",), str(link), f"a link to {shown}", by_file_tool=True)

    def _new(self, path: Path, make: Callable[[], object]) -> None:
        """Make something that is not there yet. How to undo it is known first: a signal may come at any moment."""
        folder = path.parent
        if folder not in self._folders:
            self._folders.add(folder)
            info = folder.stat()
            self.callback(_put_times_back, folder, (info.st_atime_ns, info.st_mtime_ns))
        self.expect(path)
        self.callback(_remove, path)
        make()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _put_times_back(folder: Path, times: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):
        os.utime(folder, ns=times)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
