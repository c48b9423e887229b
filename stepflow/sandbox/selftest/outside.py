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
from stepflow.sandbox.selftest.canaries import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.sandbox.selftest.planting import Planting

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
    files = [
        (location, Path(outside.environment[name])) for location, name in _JOB_FILES if outside.environment.get(name)
    ]
    for folder, location in _folders(outside, files, planting.checkout).items():
        planting.plant_in(location, folder)
    planting.plant_temporary(Location.TEMPORARY)
    for location, path in files:
        if path.exists() and not path.resolve().is_relative_to(planting.checkout):
            # Nothing is written into a file of the job: opening it says enough.
            planting.try_all(location, ("read", "append"), str(path), str(path), by_file_tool=True)
    planting.try_all(Location.GIT_CONFIG, ("git-config",), "", "git config --list")
    planting.try_all(Location.GIT_CONFIG, ("bytes",), str(planting.checkout / ".git" / "config"), ".git/config")
    docker = {Path(path).resolve() for path in outside.docker if Path(path).exists()}
    for path in dict.fromkeys((*sorted(docker), *sockets_under(outside.socket_folders))):
        planting.try_all(Location.DOCKER if path in docker else Location.SOCKETS, ("connect",), str(path), str(path))
    if sys.platform == "linux":
        planting.listen(Location.ABSTRACT, "connect", socket.AF_UNIX, "@")
        planting.try_all(Location.MEMORY, ("peek", "trace"), os.getpid(), "the parent")
    for location, kind, address_family, host in _LISTENERS if network is Network.NONE else ():
        planting.listen(location, kind, address_family, host)
    planting.try_all(Location.SIGNAL, ("signal",), os.getpid(), "the parent")
    for pid, location in {1: Location.FIRST_PROCESS, os.getpid(): Location.PARENT}.items():
        folder = Path("/proc") / str(pid)
        for kind, name in _OF_A_PROCESS if folder.is_dir() else ():
            planting.try_all(location, (kind,), str(folder / name), name, by_file_tool=name == "environ")


def _folders(outside: Outside, files: Iterable[tuple[Location, Path]], checkout: Path) -> Mapping[Path, Location]:
    """Each folder once, under the name that says most; the checkout itself belongs to the tools."""
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
