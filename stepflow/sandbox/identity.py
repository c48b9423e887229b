"""Who the tools run as, and the folders that this user is given beside the workspace."""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.child.processes import process_table

if TYPE_CHECKING:
    from collections.abc import Set

    from stepflow.sandbox.options import ToolboxOptions

#: Ids that systems keep for users of one service's lifetime; no package makes accounts there.
_IDS = range(61184, 65520)
#: CHOWN, FOWNER, SETGID, SETUID: without them a root process cannot give the workspace away or change its user.
_NEEDED_CAPABILITIES = (0, 3, 6, 7)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The tools' user and group, which nobody else has."""

    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`identity` None: the tools run as the parent's own user, for the `reason` given."""

    identity: Identity | None
    reason: str = ""


def choose_identity(workspace: Path, options: ToolboxOptions) -> Choice:
    """A root parent gets an unprivileged user; raises `IsolationError` where that is impossible and required."""
    if os.getuid() != 0:
        return Choice(identity=None, reason="the parent is no root process and keeps its user")
    if "uid" in options.disabled_layers:
        return Choice(identity=None, reason="switched off")
    obstacle = _missing_rights() or _unreachable(workspace, options)
    if not obstacle:
        return Choice(identity=_identity(options))
    if options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot get a user of their own: {obstacle}.",
            hint="Set TMPDIR to a folder that others may enter, run as an ordinary user, or use "
            "`isolation: best-effort`.",
        )
    return Choice(identity=None, reason=obstacle)


def closed_folder(path: Path, uid: int) -> Path | None:
    """The first folder on the way to `path` that the user cannot enter; groups and access lists are not looked at."""
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        info = folder.stat()
        needed = stat.S_IXUSR if info.st_uid == uid else stat.S_IXOTH
        if stat.S_ISDIR(info.st_mode) and not info.st_mode & needed:
            return folder
    return None


def closed_interpreter(uid: int) -> Path | None:
    """The folder that keeps the user from the interpreter or the programs beside it, None when nothing does."""
    interpreter = Path(sys.executable)
    return closed_folder(interpreter.parent, uid) or closed_folder(interpreter, uid)


def _identity(options: ToolboxOptions) -> Identity:
    users = {user.pw_uid for user in pwd.getpwall()} | {uid for process in process_table()[0] for uid in process.uids}
    uid = _unused(users)
    groups = {group.gr_gid for group in grp.getgrall()} | {user.pw_gid for user in pwd.getpwall()}
    return Identity(
        uid=uid,
        gid=os.getgid() if "gid" in options.disabled_layers else _unused(groups, "/proc/self/gid_map"),
    )


def _unused(used: Set[int], id_map: str = "/proc/self/uid_map") -> int:
    free = [number for number in _mapped(id_map) if number not in used]
    if not free:
        raise IsolationError(
            f"No user or group id between {_IDS.start} and {_IDS.stop - 1} is free on this machine.",
            hint="Run in a container whose user namespace maps these ids.",
        )
    return secrets.choice(free)


def _mapped(id_map: str) -> list[int]:
    """The ids of the range that exist in this user namespace."""
    try:
        lines = [line.split() for line in Path(id_map).read_text(encoding="ascii").splitlines()]
    except OSError:
        return list(_IDS)
    spans = [range(int(first), int(first) + int(count)) for first, _, count in lines]
    both = (range(max(span.start, _IDS.start), min(span.stop, _IDS.stop)) for span in spans)
    return [number for span in both for number in span]


def _missing_rights() -> str:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    missing = [number for number in _NEEDED_CAPABILITIES if not held >> number & 1]
    return "this root process may not change users or owners" if missing else ""


def _unreachable(workspace: Path, options: ToolboxOptions) -> str:
    """A separate user must be able to get to the workspace; with best effort also to the interpreter's programs."""
    above = closed_folder(workspace.parent, -1)
    if above:
        return f"{above}, above the workspace {workspace}, can be entered only by its owner"
    # A toolbox that leaves layers out shows what the others stop, so it keeps its user all the same.
    wants_programs = options.isolation is Isolation.BEST_EFFORT and not options.disabled_layers
    above = closed_interpreter(-1) if wants_programs else None
    return f"{above}, above the Python interpreter, can be entered only by its owner" if above else ""


def private_place(options: ToolboxOptions) -> Path:
    """Where a private folder will be; nothing is there yet."""
    root = options.private_root or Path(tempfile.gettempdir())
    return root.resolve() / f"stepflow-tools-{secrets.token_hex(8)}"


def make_private_folder(private: Path, identity: Identity | None) -> None:
    """A folder of the tools' user with `home`, `tmp` and `snapshots` in it."""
    for folder in (private, private / "home", private / "tmp", private / "snapshots"):
        folder.mkdir(mode=0o700)
        if identity:
            shutil.chown(folder, identity.uid, identity.gid)
