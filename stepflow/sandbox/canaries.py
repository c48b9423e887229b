"""What no tool may reach, planted and named for as long as the self-test takes (security.md)."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import stat
import sys
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.domain.words import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

CANARY = b"canary\n"
#: Far more than any machine has below /run; a self-test must end.
_MOST_ENTRIES = 20_000


class Location(StrEnum):
    """Every place that is tried, in the words of the report, and what should stop a tool on its way there, by the names
    of the report's sandbox rows where there is one.

    `always` refuses with `isolation: best-effort` too: who reaches such a place has the secrets.
    """

    layer: str
    always: bool

    def __new__(cls, words: str, layer: str, always: str = "") -> Self:
        """One row of the table below."""
        location = str.__new__(cls, words)
        location._value_ = words
        location.layer, location.always = layer, bool(always)
        return location

    ENVIRONMENT = "a tool's environment", "environment", "always"
    DESCRIPTORS = "a tool's open descriptors", "environment", "always"
    CHECKOUT = "the checkout", "landlock"
    GIT_CONFIG = "git's configuration", "the workspace's own settings", "always"
    PARENT = "the parent in /proc", "uid or landlock", "always"
    MEMORY = "the parent's memory", "uid or landlock", "always"
    FIRST_PROCESS = "process 1 in /proc", "uid or landlock"
    SIGNAL = "signals to the parent", "uid or landlock"
    RUNNER_TEMP = "RUNNER_TEMP", "landlock"
    RUN_FOLDER = "the run folder", "landlock"
    GITHUB_HOME = "/github/home", "landlock"
    WORKFLOW = "/github/workflow and the event", "landlock"
    FILE_COMMANDS = "/github/file_commands", "landlock"
    ACT = "/var/run/act/workflow", "landlock"
    HOME = "the parent's home", "landlock"
    TEMPORARY = "the parent's temporary files", "landlock"
    DOCKER = "the docker socket", "gid, or seccomp for uid 0"
    SOCKETS = "other sockets under /run", "gid, or seccomp for uid 0"
    ABSTRACT = "abstract sockets", "landlock"
    TCP = "TCP", "network"
    TCP6 = "TCP over IPv6", "network"
    UDP = "UDP", "network"


#: Where the runner mounts its folders into a Docker action, and where act keeps its own in place of them.
_MOUNTED = (
    (Location.RUNNER_TEMP, "/github/runner_temp"),
    (Location.GITHUB_HOME, "/github/home"),
    (Location.WORKFLOW, "/github/workflow"),
    (Location.FILE_COMMANDS, "/github/file_commands"),
    (Location.ACT, "/var/run/act/workflow"),
)
#: The files by which a job's steps speak to the runner.
_JOB_FILES = (
    (Location.WORKFLOW, "GITHUB_EVENT_PATH"),
    (Location.FILE_COMMANDS, "GITHUB_ENV"),
    (Location.FILE_COMMANDS, "GITHUB_PATH"),
    (Location.FILE_COMMANDS, "GITHUB_OUTPUT"),
    (Location.FILE_COMMANDS, "GITHUB_STATE"),
    (Location.FILE_COMMANDS, "GITHUB_STEP_SUMMARY"),
)
#: Listeners of the parent on this machine, by the kind of attempt.
_LISTENERS = (
    (Location.TCP, "tcp", socket.AF_INET, "127.0.0.1"),
    (Location.UDP, "udp", socket.AF_INET, "127.0.0.1"),
    (Location.TCP6, "tcp", socket.AF_INET6, "::1"),
)
#: Each asks the kernel for more than that the process is there.
_OF_A_PROCESS = (
    *(("read", "environ"), ("read", "mem"), ("read", "maps")),
    *(("follow", "fd/0"), ("follow", "cwd"), ("follow", "root")),
)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """`environment` is the parent's, with the names that a runner sets; `checkout` is what the workspace was made from;
    `secrets` is everything that it knows; every socket below `socket_folders` is tried, and `docker` are those whose
    reach is root on the machine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    checkout: Path | None = None
    run_folder: Path | None = None
    secrets: Iterable[str] = ()
    socket_folders: tuple[str, ...] = ("/run", "/var/run")
    docker: tuple[str, ...] = ("/run/docker.sock", "/var/run/docker.sock")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Something that the probe tries: its kind, and what it is tried on. `shown` is where, in words without chance.
    `by_file_tool`: a file that the tool `read` must not read either."""

    location: Location
    kind: str
    target: str = ""
    shown: str
    by_file_tool: bool = False


class Planting(contextlib.ExitStack):
    """What is planted while the `with` block lasts, and every attempt on it and on what is there anyway."""

    def __init__(self, *, checkout: Path, uid: int, gid: int) -> None:
        super().__init__()
        self.checkout, self.uid, self.gid = checkout, uid, gid
        self.attempts: list[Attempt] = []
        self._name = f"stepflow-canary-{secrets.token_hex(8)}"
        self._folders: set[Path] = set()
        self._servers: dict[str, socket.socket] = {}

    def try_all(
        self, location: Location, kinds: Iterable[str], target: str | Path, shown: str, *, by_file_tool: bool = False
    ) -> None:
        """Something that is there."""
        self.attempts += (
            Attempt(
                location=location,
                kind=kind,
                target=str(target),
                shown=shown,
                by_file_tool=by_file_tool and kind == "read",
            )
            for kind in kinds
        )

    def plant_in(self, location: Location, folder: Path) -> None:
        """A file that is the tools' own, so that nothing but the folder and the kernel keeps it from them."""
        path = folder / self._name
        with contextlib.suppress(OSError):
            self._new(path, lambda: path.write_bytes(CANARY))
            path.chmod(0o666)
            if os.geteuid() == 0:
                os.chown(path, self.uid, self.gid)
            self._try_planted(location, path, str(folder))

    def plant_temporary(self) -> None:
        """A folder such as the parent makes for itself alone, with a file such as it may hold."""
        above = Path(tempfile.gettempdir())
        folder = above / f"{self._name}-private"
        with contextlib.suppress(OSError):
            self._new(folder, lambda: folder.mkdir(mode=0o700))
            path = folder / self._name
            self._new(path, lambda: path.write_bytes(CANARY))
            self._try_planted(Location.TEMPORARY, path, str(above))

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
                target = f"{host}:{server.getsockname()[1]}"
                self._servers[target] = server
                self.try_all(location, (kind,), target, host)

    def changed(self) -> list[Attempt]:
        """The attempts to write to planted files that are no longer what they were, and to reach listeners to which
        something came."""
        written = [attempt for attempt in self.attempts if attempt.kind == "write"]
        called = select.select(self._servers.values(), [], [], 0)[0]
        return [
            *(attempt for attempt in written if _bytes_of(attempt.target) != CANARY),
            *(attempt for attempt in self.attempts if self._servers.get(attempt.target) in called),
        ]

    def _try_planted(self, location: Location, path: Path, shown: str) -> None:
        """By its own path, and by one that begins inside the workspace."""
        made = path.with_name(f"{path.name}-made")
        self.callback(_remove, made)
        self.try_all(location, ("list",), path.parent, shown)
        self.try_all(location, ("read", "write"), path, shown, by_file_tool=True)
        self.try_all(location, ("make",), made, shown)
        link = self.checkout / f".{self._name}-{len(self.attempts)}"
        with contextlib.suppress(OSError):
            self._new(link, lambda: link.symlink_to(path))
            self.try_all(location, ("read",), link, f"a link to {shown}", by_file_tool=True)

    def _new(self, path: Path, make: Callable[[], object]) -> None:
        """Make something that is not there yet. How to undo it is known first: a signal may come at any moment."""
        if path.parent not in self._folders:
            self._folders.add(path.parent)
            info = path.parent.stat()
            self.callback(_put_times_back, path.parent, (info.st_atime_ns, info.st_mtime_ns))
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


def try_everything(planting: Planting, outside: Outside, network: Network) -> None:
    """Plant and name everything that must be out of reach."""
    files = [
        (location, Path(outside.environment[name])) for location, name in _JOB_FILES if outside.environment.get(name)
    ]
    for folder, location in _folders(outside, files, planting.checkout).items():
        planting.plant_in(location, folder)
    planting.plant_temporary()
    for location, path in files:
        if path.exists() and not path.resolve().is_relative_to(planting.checkout):
            # Nothing is written into a file of the job: opening it says enough.
            planting.try_all(location, ("read", "append"), path, str(path), by_file_tool=True)
    if outside.checkout:
        planting.try_all(Location.CHECKOUT, ("list",), outside.checkout, str(outside.checkout))
        for path in (outside.checkout / ".git", outside.checkout / ".git/HEAD"):
            if path.is_file():
                planting.try_all(Location.CHECKOUT, ("read", "append"), path, str(path), by_file_tool=True)
    planting.try_all(Location.GIT_CONFIG, ("git-config",), "", "git config --list")
    planting.try_all(Location.GIT_CONFIG, ("bytes",), planting.checkout / ".git" / "config", ".git/config")
    docker = {Path(path).resolve() for path in outside.docker if Path(path).exists()}
    for path in dict.fromkeys((*sorted(docker), *sockets_under(outside.socket_folders))):
        planting.try_all(Location.DOCKER if path in docker else Location.SOCKETS, ("connect",), path, str(path))
    parent = str(os.getpid())
    if sys.platform == "linux":
        planting.listen(Location.ABSTRACT, "connect", socket.AF_UNIX, "@")
        planting.try_all(Location.MEMORY, ("peek", "trace"), parent, "the parent")
    for location, kind, address_family, host in _LISTENERS if network is not Network.FULL else ():
        planting.listen(location, kind, address_family, host)
    planting.try_all(Location.SIGNAL, ("signal",), parent, "the parent")
    for pid, location in {"1": Location.FIRST_PROCESS, parent: Location.PARENT}.items():
        folder = Path("/proc") / pid
        for kind, name in _OF_A_PROCESS if folder.is_dir() else ():
            planting.try_all(location, (kind,), folder / name, name, by_file_tool=name == "environ")


def _folders(outside: Outside, files: Iterable[tuple[Location, Path]], checkout: Path) -> Mapping[Path, Location]:
    """Each folder once, under the name that says most; the workspace itself belongs to the tools."""
    temp, home = outside.environment.get("RUNNER_TEMP"), outside.environment.get("HOME")
    named: tuple[tuple[Location, str | Path], ...] = (
        *_MOUNTED,
        *([(Location.RUNNER_TEMP, temp)] if temp else []),
        *([(Location.RUN_FOLDER, outside.run_folder)] if outside.run_folder else []),
        *((location, file.parent) for location, file in files),
        (Location.HOME, home or Path.home()),
    )
    folders: dict[Path, Location] = {}
    for location, path in named:
        folder = Path(path).resolve()
        if folder.is_dir() and not folder.is_relative_to(checkout):
            folders.setdefault(folder, location)
    return folders


def sockets_under(folders: Iterable[str]) -> Iterator[Path]:
    """Each socket once, by the name that leads to it without a link."""
    fuse_mounts = _fuse_mounts()
    waiting = sorted({os.path.realpath(folder) for folder in folders}, reverse=True)
    seen = 0
    while waiting and seen < _MOST_ENTRIES:
        with contextlib.suppress(OSError):
            for path in sorted(Path(waiting.pop()).iterdir()):
                seen += 1
                with contextlib.suppress(OSError):
                    mode = path.lstat().st_mode
                    if stat.S_ISSOCK(mode):
                        yield path
                    elif stat.S_ISDIR(mode) and str(path) not in fuse_mounts:
                        waiting.append(str(path))


def _fuse_mounts() -> frozenset[str]:
    """In mountinfo the fifth field is the mount point, and after the dash comes the type (proc(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    parted = (line.partition(" - ") for line in lines)
    return frozenset(location.split()[4] for location, _, kind in parted if kind.startswith("fuse"))
