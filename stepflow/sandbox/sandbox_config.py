"""What the sandbox program receives first: who to become, what stays open, which limits hold."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.words import Network
from stepflow.errors import IsolationError
from stepflow.sandbox.child.enter_sandbox import SandboxConfig
from stepflow.sandbox.programs import read_by

if TYPE_CHECKING:
    from stepflow.sandbox.identity import Identity
    from stepflow.sandbox.options import ToolboxOptions

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
#: Without these git, terminals and shared memory do not work.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"))
#: Where everybody's terminals are. Who opens one of the same user reads what is typed there, a password too.
_TERMINALS = Path("/dev/pts")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - named as a place to leave open, nothing is made there
#: Where names of hosts are looked up; systemd makes it a link out of /etc.
_RESOLVER = Path("/etc/resolv.conf")
_GITDIR = "gitdir:"


def sandbox_config(checkout: Path, identity: Identity | None, options: ToolboxOptions, reach: Reach) -> SandboxConfig:
    """What the sandbox program receives first."""
    return SandboxConfig(
        checkout=str(checkout),
        uid=identity.uid if identity else None,
        gid=identity.gid if identity else None,
        # The parent's groups are what a toolbox without the layer would keep.
        groups=os.getgroups() if "gid" in options.disabled_layers else [],
        guard_uid=identity.guard_uid if identity and "memory" not in options.disabled_layers else None,
        **vars(options.limits),
        write=[str(path) for path in reach.write],
        read=[str(path) for path in reach.read],
        devices=[str(path) for path in reach.devices],
        close_network=options.network is Network.NONE,
        disabled_layers=sorted(options.disabled_layers),
        bash_timeout=options.bash_timeout,
        bash_max_timeout=options.bash_max_timeout,
        file_timeout=options.file_timeout,
    )


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Paths by what tools may do there. `git` are the checkout's own git folders that lie outside it."""

    write: tuple[Path, ...]
    read: tuple[Path, ...]
    devices: tuple[Path, ...]
    git: tuple[Path, ...]


def reach(*, checkout: Path, private: Path, programs: tuple[Path, ...], uid: int) -> Reach:
    """`private` holds HOME and TMPDIR, `programs` are the folders of the tools' PATH. `uid` is their user."""
    terminals = () if _has_terminals(uid) else (_TERMINALS,)
    git = _git_outside(checkout)
    interpreter = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    named = (Path(name) for name in (*_SYSTEM, *interpreter))
    read = dict.fromkeys((*named, *(path for folder in programs for path in read_by(folder)), _RESOLVER.resolve()))
    return Reach(
        write=(checkout, private / "home", private / "tmp", Path(_SHARED_MEMORY), *git),
        # An interpreter in the root would open everything.
        read=tuple(folder for folder in read if folder.is_absolute() and folder != Path("/")),
        devices=(*(Path(device) for device in _DEVICES), *terminals),
        git=git,
    )


def _has_terminals(uid: int) -> bool:
    return any(terminal.name.isdigit() and _owner(terminal) == uid for terminal in _TERMINALS.glob("*"))


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _git_outside(checkout: Path) -> tuple[Path, ...]:
    """A linked worktree or a submodule keeps its git folder elsewhere, and a worktree shares the rest with others."""
    entry = checkout / ".git"
    try:
        folder = _pointed_to(entry, _GITDIR) if entry.is_file() else entry.resolve()
        shared = folder / "commondir"
        folders = (folder, _pointed_to(shared) if shared.is_file() else folder)
        return tuple(dict.fromkeys(path for path in folders if _is_outside(path, checkout)))
    except (OSError, ValueError) as exc:
        raise IsolationError(
            f"It cannot be read where the git folder of {checkout} is: {exc}.", hint="Check the repository out again."
        ) from exc


def _pointed_to(file: Path, prefix: str = "") -> Path:
    return (file.parent / file.read_text(encoding="utf-8").removeprefix(prefix).strip()).resolve()


def _is_outside(folder: Path, checkout: Path) -> bool:
    """Only what git itself would take for one: the file must not be able to name just any folder."""
    return (folder / "HEAD").is_file() and not folder.is_relative_to(checkout)
