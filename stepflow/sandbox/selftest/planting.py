"""Plants canaries where no tool may get, for as long as the self-test takes (security.md)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.sandbox.selftest.canaries import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

CANARY = b"canary\n"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Something that the probe tries: its kind, and what it is tried on. `shown` is where, in words without chance."""

    place: Place
    kind: str
    target: str | int
    shown: str


@dataclass(kw_only=True)
class Planting:
    """What is planted while the `with` block lasts. `files` are for the file tools, `planted` must stay as they are.
    `expect` is told of each path before anything can be there."""

    checkout: Path
    uid: int
    gid: int
    expect: Callable[[Path], None] = lambda _path: None
    attempts: list[Attempt] = field(default_factory=list)
    files: list[Attempt] = field(default_factory=list)
    planted: list[Attempt] = field(default_factory=list)
    _name: str = field(default_factory=lambda: f"stepflow-canary-{secrets.token_hex(8)}")
    _folders: set[Path] = field(default_factory=set)
    _taken_back: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken_back.close()

    def try_all(self, place: Place, kinds: Iterable[str], target: str | int, shown: str) -> None:
        """Something that is there anyway."""
        self.attempts += (Attempt(place=place, kind=kind, target=target, shown=shown) for kind in kinds)

    def try_file(self, place: Place, path: Path) -> None:
        """A file of the job: nothing is written into it, opening it says enough."""
        self.try_all(place, ("read", "append"), str(path), str(path))
        self.give_to_file_tools(place, str(path), str(path))

    def give_to_file_tools(self, place: Place, path: str, shown: str) -> None:
        """A file that the tool `read` must not read, by a path as a model would write it."""
        self.files.append(Attempt(place=place, kind="read", target=path, shown=shown))

    def plant_in(self, place: Place, folder: Path) -> None:
        """A file that is the tools' own, so that nothing but the folder and the kernel keeps it from them."""
        path = folder / self._name
        with contextlib.suppress(OSError):
            self._new(path, lambda: path.write_bytes(CANARY))
            path.chmod(0o666)
            if os.geteuid() == 0:
                os.chown(path, self.uid, self.gid)
            self._try_planted(place, path, str(folder))

    def plant_temporary(self, place: Place) -> None:
        """A folder such as the parent makes for itself alone, with a file such as it may hold."""
        above = Path(tempfile.gettempdir())
        folder = above / f"{self._name}-private"
        with contextlib.suppress(OSError):
            self._new(folder, lambda: folder.mkdir(mode=0o700))
            path = folder / self._name
            self._new(path, lambda: path.write_bytes(CANARY))
            self._try_planted(place, path, str(above))

    def listen(self, place: Place, kind: str, *, family: int, address: str, shown: str) -> None:
        """A socket of the parent: `@` in the abstract namespace, a host on a free port otherwise."""
        server = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        self._taken_back.callback(server.close)
        name = f"@{self._name}"
        try:
            server.bind(name.replace("@", "\0") if address == "@" else (address, 0))
            if kind != "udp":
                server.listen(8)
        except OSError:
            return
        target = name if address == "@" else f"{address}:{server.getsockname()[1]}"
        self.try_all(place, (kind,), target, shown)

    def changed(self) -> tuple[Attempt, ...]:
        """The planted files that are no longer what they were."""
        changed = (planted for planted in self.planted if _bytes_of(str(planted.target)) != CANARY)
        return tuple(replace(planted, kind="write") for planted in changed)

    def _try_planted(self, place: Place, path: Path, shown: str) -> None:
        planted = Attempt(place=place, kind="read", target=str(path), shown=shown)
        self.planted.append(planted)
        self.give_to_file_tools(place, str(path), shown)
        made = path.with_name(f"{path.name}-made")
        self.expect(made)
        self._taken_back.callback(_remove, made)
        self.try_all(place, ("list",), str(path.parent), shown)
        self.try_all(place, ("read", "write"), str(path), shown)
        self.try_all(place, ("make",), str(made), shown)
        self._link(planted)

    def _link(self, planted: Attempt) -> None:
        """The same file by a way that begins inside the checkout."""
        link = self.checkout / f".{self._name}-{len(self.planted)}"
        with contextlib.suppress(OSError):
            self._new(link, lambda: link.symlink_to(str(planted.target)))
            shown = f"a link to {planted.shown}"
            self.try_all(planted.place, ("read",), str(link), shown)
            self.give_to_file_tools(planted.place, link.name, shown)

    def _new(self, path: Path, make: Callable[[], object]) -> None:
        """Make something that is not there yet. How to undo it is known first: a signal may come at any moment."""
        folder = path.parent
        if folder not in self._folders:
            self._folders.add(folder)
            info = folder.stat()
            self._taken_back.callback(_put_times_back, folder, (info.st_atime_ns, info.st_mtime_ns))
        self.expect(path)
        self._taken_back.callback(_remove, path)
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
