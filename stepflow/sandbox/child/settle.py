"""The first thing the program does: become the unprivileged user it stays, and tell what holds (security.md).

Takes: what the parent chose. Gives: facts about each layer, or `CannotSettle`.
May touch: the credentials and attributes of this process, once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import kernel, landlock, seccomp
from .family import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


class CannotSettle(Exception):
    """The toolbox must not start; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the parent sends first. `uid` None means: stay who you are. `guard_uid` is a user that nothing else has.

    `places` is what stays open under Landlock. `without` names layers that are left out.
    """

    checkout: str
    uid: int | None
    gid: int | None
    groups: tuple[int, ...]
    guard_uid: int | None
    limits: Limits
    places: landlock.Places
    close_network: bool
    without: frozenset[str]
    bash_timeout: float
    bash_max_timeout: float
    file_timeout: float

    @classmethod
    def of(cls, message: Mapping[str, object]) -> Settings:
        """Read the parent's first frame."""
        return cls(
            checkout=str(message["checkout"]),
            uid=_optional_id(message["uid"]),
            gid=_optional_id(message["gid"]),
            groups=tuple(int(group) for group in _texts(message["groups"])),
            guard_uid=_optional_id(message["guard_uid"]),
            limits=Limits(
                processes=int(str(message["processes"])),
                file_bytes=int(str(message["file_bytes"])),
                open_files=int(str(message["open_files"])),
            ),
            places=landlock.Places(
                write=_texts(message["write"]), read=_texts(message["read"]), devices=_texts(message["devices"])
            ),
            close_network=bool(message["close_network"]),
            without=frozenset(_texts(message["without"])),
            bash_timeout=float(str(message["bash_timeout"])),
            bash_max_timeout=float(str(message["bash_max_timeout"])),
            file_timeout=float(str(message["file_timeout"])),
        )


def settle(settings: Settings) -> dict[str, object]:
    """Become the tools' user. What the kernel refused is told, not hidden; the parent decides what that means."""
    without = settings.without
    _change_user(settings)
    facts: dict[str, object] = {
        "platform": sys.platform,
        "undumpable": kernel.become_undumpable(wanted="memory" not in without),
    }
    if "life" not in without:
        facts |= {"subreaper": kernel.become_subreaper(), "dies_with_parent": kernel.die_with_parent(signal.SIGTERM)}
    if os.geteuid() == 0 and "uid" not in without:
        facts["capabilities_dropped"] = kernel.drop_capabilities()
    os.umask(0o022)
    _check_reach(settings.checkout)
    return {**facts, **_close(settings), "uid": os.geteuid(), "gid": os.getegid(), "real_uid": os.getuid()}


def scopes_signals(facts: Mapping[str, object]) -> bool:
    """Whether no signal from here reaches anything but what is started below, by what `settle` found."""
    in_force = facts.get("landlock")
    return isinstance(in_force, dict) and in_force["abi"] >= landlock.ABI_SCOPES


def _close(settings: Settings) -> dict[str, object]:
    """What cannot be opened again, with no_new_privs first: without it the kernel lets nobody do the rest."""
    without = settings.without
    close_network = settings.close_network and "network" not in without
    facts: dict[str, object] = {}
    if "no_new_privs" not in without:
        facts["no_new_privs"] = kernel.forgo_new_privileges()
    if "landlock" not in without:
        facts["landlock"] = landlock.restrict(settings.places, close_tcp=close_network)
    if "seccomp" not in without:
        keeps_user = settings.uid is None and "uid" not in without
        sockets = seccomp.NO_UNIX_SOCKETS if keeps_user else ()
        facts["seccomp"] = seccomp.refuse((*seccomp.BASE, *seccomp.leave_alone(_ours()), *sockets))
    if close_network:
        facts["network"] = seccomp.refuse(seccomp.NO_NETWORK)
    return facts


def _ours() -> set[int]:
    """The supervisor, its parent and their process groups; 0 would be a group outside of the container."""
    return {process for pid in (os.getpid(), os.getppid()) for process in (pid, os.getpgid(pid)) if process}


def _change_user(settings: Settings) -> None:
    if settings.uid is None or settings.gid is None:
        if os.geteuid() == 0 and "gid" not in settings.without:
            with contextlib.suppress(PermissionError):
                os.setgroups([])
        return
    # Only the real and the saved user decide who may send signals: as the guard user the supervisor is out of
    # reach of the tools, while its effective user, theirs, lets it work in the checkout and end what they start.
    guard = settings.uid if settings.guard_uid is None else settings.guard_uid
    try:
        os.setgroups(settings.groups)
        os.setresgid(settings.gid, settings.gid, settings.gid)
        os.setresuid(guard, settings.uid, guard)
    except OSError as exc:
        raise CannotSettle(f"the toolbox could not become user {settings.uid}: {exc.strerror}") from exc


def _check_reach(checkout: str) -> None:
    """The checkout must be reachable by its own path: git and most tools ask for that."""
    user = os.geteuid()
    try:
        same = os.path.samestat(os.stat(checkout), os.stat("."))
        os.listdir(checkout)
    except OSError as exc:
        raise CannotSettle(f"user {user}, who the tools run as, cannot enter {checkout}: {exc.strerror}") from exc
    if not same:
        raise CannotSettle(f"{checkout} is not the folder that the toolbox was started in")
    for name in ("HOME", "TMPDIR"):
        if not os.access(os.environ[name], os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CannotSettle(f"user {user}, who the tools run as, cannot write to {os.environ[name]} ({name})")


def _optional_id(value: object) -> int | None:
    return None if value is None else int(str(value))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
