"""What lies outside the toolbox and is to be tried: folders, files, sockets, processes (security.md)."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.words import Network
from stepflow.sandbox.selftest.canaries import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.sandbox.selftest.planting import Planting

#: Where the runner mounts its folders into a Docker action, and where act keeps its own in place of them.
_MOUNTED: Mapping[Place, tuple[str, ...]] = {
    Place.RUNNER_TEMP: ("/github/runner_temp",),
    Place.GITHUB_HOME: ("/github/home",),
    Place.WORKFLOW: ("/github/workflow",),
    Place.FILE_COMMANDS: ("/github/file_commands",),
    Place.ACT: ("/var/run/act/workflow",),
}
_FILE_COMMANDS = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
#: Each asks the kernel for more than that the process is there.
_OF_A_PROCESS = (
    *(("read", "environ"), ("read", "mem"), ("read", "maps")),
    *(("follow", "fd/0"), ("follow", "cwd"), ("follow", "root")),
)
#: Far more than any machine has there; a self-test must end.
_MOST_ENTRIES = 20_000


@dataclass(frozen=True, kw_only=True)
class Outside:
    """`environment` is the parent's, with the names that a runner sets; `secrets` is everything that it knows; every
    socket below `socket_folders` is tried, and `docker` are those whose reach is root on the machine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    run_folder: Path | None = None
    secrets: Iterable[str] = ()
    socket_folders: tuple[str, ...] = ("/run", "/var/run")
    docker: tuple[str, ...] = ("/run/docker.sock", "/var/run/docker.sock")


def try_everything(planting: Planting, outside: Outside, network: Network) -> None:
    """Plant and name everything that must be out of reach."""
    for place, folder in _folders(outside, planting.checkout):
        planting.plant_in(place, folder)
    planting.plant_temporary(Place.TEMPORARY)
    for place, path in _files(outside.environment):
        if path.exists() and not path.resolve().is_relative_to(planting.checkout):
            planting.try_file(place, path)
    planting.try_all(Place.GIT_CONFIG, ("git-config",), "", "git config --list")
    planting.try_all(Place.GIT_CONFIG, ("bytes",), str(planting.checkout / ".git" / "config"), ".git/config")
    _sockets(planting, outside)
    if network is Network.NONE:
        _network(planting)
    _processes(planting)


def _folders(outside: Outside, checkout: Path) -> Iterator[tuple[Place, Path]]:
    """Each folder once, under the name that says most; the checkout itself belongs to the tools."""
    folders: dict[Path, Place] = {}
    for place, path in _named_folders(outside):
        folder = path.resolve()
        if folder.is_dir() and not folder.is_relative_to(checkout):
            folders.setdefault(folder, place)
    yield from ((place, folder) for folder, place in folders.items())


def _named_folders(outside: Outside) -> Iterator[tuple[Place, Path]]:
    environment = outside.environment
    for place, paths in _MOUNTED.items():
        yield from ((place, Path(path)) for path in paths)
    if environment.get("RUNNER_TEMP"):
        yield Place.RUNNER_TEMP, Path(environment["RUNNER_TEMP"])
    if outside.run_folder:
        yield Place.RUN_FOLDER, outside.run_folder
    for place, path in _files(environment):
        yield place, path.parent
    home = environment.get("HOME")
    yield Place.HOME, Path(home) if home else Path.home()


def _files(environment: Mapping[str, str]) -> Iterator[tuple[Place, Path]]:
    """The files by which a job's steps speak to the runner."""
    if environment.get("GITHUB_EVENT_PATH"):
        yield Place.WORKFLOW, Path(environment["GITHUB_EVENT_PATH"])
    for name in _FILE_COMMANDS:
        if environment.get(name):
            yield Place.FILE_COMMANDS, Path(environment[name])


def _sockets(planting: Planting, outside: Outside) -> None:
    docker = {Path(path).resolve() for path in outside.docker if Path(path).exists()}
    for path in sorted(docker):
        planting.try_all(Place.DOCKER, ("connect",), str(path), str(path))
    for path in sockets_under(outside.socket_folders):
        if path not in docker:
            planting.try_all(Place.SOCKETS, ("connect",), str(path), str(path))
    if sys.platform == "linux":
        planting.listen(Place.ABSTRACT, "connect", family=socket.AF_UNIX, address="@", shown="one of the parent")


def _network(planting: Planting) -> None:
    planting.listen(Place.TCP, "tcp", family=socket.AF_INET, address="127.0.0.1", shown="127.0.0.1")
    planting.listen(Place.UDP, "udp", family=socket.AF_INET, address="127.0.0.1", shown="127.0.0.1")
    if socket.has_ipv6:
        planting.listen(Place.TCP6, "tcp", family=socket.AF_INET6, address="::1", shown="::1")


def _processes(planting: Planting) -> None:
    parent = os.getpid()
    planting.try_all(Place.SIGNAL, ("signal",), parent, "the parent")
    _try_process(planting, Place.PARENT, parent)
    if parent != 1:
        _try_process(planting, Place.FIRST_PROCESS, 1)
    if sys.platform == "linux":
        planting.try_all(Place.MEMORY, ("peek", "trace"), parent, "the parent")


def _try_process(planting: Planting, place: Place, pid: int) -> None:
    folder = Path("/proc") / str(pid)
    if not folder.is_dir():
        return
    for kind, name in _OF_A_PROCESS:
        planting.try_all(place, (kind,), str(folder / name), name)
    planting.give_to_file_tools(place, str(folder / "environ"), "environ")


def sockets_under(folders: Iterable[str]) -> Iterator[Path]:
    """Each socket once, by the name that leads to it without a link."""
    foreign = _provided_by_programs()
    waiting = sorted({os.path.realpath(folder) for folder in folders}, reverse=True)
    seen = 0
    while waiting and seen < _MOST_ENTRIES:
        for path, mode in _entries(waiting.pop()):
            seen += 1
            if stat.S_ISSOCK(mode):
                yield Path(path)
            elif stat.S_ISDIR(mode) and path not in foreign:
                waiting.append(path)


def _entries(folder: str) -> Iterator[tuple[str, int]]:
    """Path and mode of everything in a folder, in order; nothing when it cannot be read."""
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder).iterdir()):
            with contextlib.suppress(OSError):
                yield str(path), path.lstat().st_mode


def _provided_by_programs() -> frozenset[str]:
    """Mount points of FUSE. In mountinfo the fifth field is the place, the one after the dash the type (proc(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    parted = (line.partition(" - ") for line in lines)
    return frozenset(place.split()[4] for place, _, kind in parted if kind.startswith("fuse"))
