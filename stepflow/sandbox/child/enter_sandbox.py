"""Makes this process the unprivileged, confined process that it stays, and says which layers hold."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import landlock, seccomp

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63
#: What /proc/self/oom_score_adj takes (proc(5)): the most, which stands for all the memory that there is, so that the
#: smallest process with it counts for more than the largest without, and a little less.
_FIRST_TO_END, _NEXT_TO_END = b"1000", b"900"
_LEFT_OUT = "left out"

_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int) -> bool:
    """Be sent the signal when the parent ends. Lost with a change of user: set it after that."""
    return _prctl(_SET_PDEATHSIG, signal_number)


def become_undumpable(*, wanted: bool = True) -> bool:
    """Close this process's memory, environment and descriptors to others of the same user.

    When it is not wanted it is undone: the kernel does it by itself with a change of user.
    """
    return _prctl(_SET_DUMPABLE, 0 if wanted else 1)


def forgo_new_privileges() -> bool:
    """No program started from now on gets more rights by being started."""
    return _prctl(_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> bool:
    """Empty every capability set, the bounding set first, for a process that stays uid 0."""
    if not hasattr(_LIBC, "capset"):
        return False
    for capability in range(_HIGHEST_CAPABILITY + 1):
        _prctl(_CAPBSET_DROP, capability)
    _prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    return bool(_LIBC.capset(header, data) == 0) and not _has_capabilities()


class OomScore:
    """Which process the kernel ends first when memory runs out: those of the tools, then the launcher, never for
    their sake the parent. Open it before the change of user and before Landlock, which both close the file.

    `holds` is false where there is no such thing, or where our parent already stands as high and we may not go lower.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._fd: int | None = None
        if wanted:
            with contextlib.suppress(OSError):
                fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                os.write(fd, _NEXT_TO_END)
                self._fd = fd

    @property
    def holds(self) -> bool:
        """Whether what is started from here is ended before the parent."""
        return self._fd is not None

    @contextlib.contextmanager
    def first_for_children(self) -> Iterator[None]:
        """What is forked meanwhile is ended before us. It inherits the score: its own file is closed to it, and that
        also keeps it from going lower, which the kernel alone would allow.
        """
        self._set(_FIRST_TO_END)
        try:
            yield
        finally:
            self._set(_NEXT_TO_END)

    def let_go(self) -> None:
        """For a child that forks itself: what it starts inherits its own score, and ours is not for it to change."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _set(self, score: bytes) -> None:
        if self._fd is not None:
            os.write(self._fd, score)


def _has_capabilities() -> bool:
    """Whether any is effective or can still be gained; false where there are none to see."""
    try:
        with open(f"/proc/{os.getpid()}/status", encoding="ascii", errors="replace") as file:
            status = dict(line.partition(":")[::2] for line in file)
    except OSError:
        return False
    return any(int(status.get(field, "0"), 16) for field in ("CapEff", "CapBnd"))


def _prctl(option: int, value: int) -> bool:
    if not hasattr(_LIBC, "prctl"):
        return False
    return bool(
        _LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0
    )


class CannotEnterSandbox(Exception):
    """The toolbox must not start; the message says why."""


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """What the parent sends first. `uid` None means: stay who you are.

    Commands start in the `working_directory`. `write`, `read` and `devices` stay open under Landlock.
    `disabled_layers` names layers that are left out. `processes` is how many more than now the user may run. `broker`
    is the descriptor over which the sandbox asks the parent for sockets, None if the parent gives none.
    """

    checkout: str
    working_directory: str
    uid: int | None
    gid: int | None
    groups: Sequence[int]
    processes: int
    file_bytes: int
    open_files: int
    write: Sequence[str]
    read: Sequence[str]
    devices: Sequence[str]
    close_network: bool
    broker: int | None
    disabled_layers: Sequence[str]


@dataclass(kw_only=True)
class SandboxFacts:
    """Who the program is, and what the kernel granted of each layer. A `problem` says why a layer is not in force.

    `ended_before_parent`: what is started here is, when memory runs out.
    """

    platform: str = sys.platform
    uid: int = -1
    gid: int = -1
    ended_before_parent: bool = False
    undumpable: bool = False
    subreaper: bool = False
    dies_with_parent: bool = False
    capabilities_dropped: bool = False
    no_new_privs: bool = False
    landlock_abi: int = 0
    landlock_problem: str = _LEFT_OUT
    seccomp_problem: str = _LEFT_OUT
    network_problem: str = _LEFT_OUT

    @property
    def scopes_signals(self) -> bool:
        """Whether no signal from here reaches anything but what is started below."""
        return self.landlock_abi >= landlock.ABI_SCOPES


def enter_sandbox(config: SandboxConfig, oom_score: OomScore) -> SandboxFacts:
    """Become the tools' user. What the kernel refused is reported, not hidden; the parent decides what that means."""

    def wanted(layer: str) -> bool:
        return layer not in config.disabled_layers

    _change_user(config)
    facts = SandboxFacts(uid=os.geteuid(), gid=os.getegid(), ended_before_parent=oom_score.holds)
    facts.undumpable = become_undumpable(wanted=wanted("memory"))
    if wanted("life"):
        # The parent of every orphan among its descendants loses sight of none.
        facts.subreaper = _prctl(_SET_CHILD_SUBREAPER, 1)
        facts.dies_with_parent = die_with_parent(signal.SIGTERM)
    if facts.uid == 0 and wanted("uid"):
        facts.capabilities_dropped = drop_capabilities()
    os.umask(0o022)
    _check_reach(config.checkout)

    # From here on nothing can be opened again. This one comes first: without it the kernel lets nobody do the rest.
    if wanted("no_new_privs"):
        facts.no_new_privs = forgo_new_privileges()
    close_network = config.close_network and wanted("network")
    if wanted("landlock"):
        facts.landlock_abi, facts.landlock_problem = landlock.restrict(
            write=config.write, read=config.read, devices=config.devices, close_tcp=close_network
        )
    if wanted("seccomp"):
        keeps_user = config.uid is None and wanted("uid")
        sockets = seccomp.NO_UNIX_SOCKETS if keeps_user else ()
        facts.seccomp_problem = seccomp.refuse((*seccomp.BASE, *seccomp.leave_alone(_ours()), *sockets))
    if close_network and config.broker is not None:
        facts.network_problem = seccomp.refuse_by_parent(seccomp.SOCKETS_FROM_PARENT, config.broker)
    elif close_network:
        facts.network_problem = seccomp.refuse(seccomp.NO_NETWORK)
    return facts


def _ours() -> set[int]:
    """The launcher, its parent and their process groups; 0 would be a group outside of the container."""
    return {process for pid in (os.getpid(), os.getppid()) for process in (pid, os.getpgid(pid)) if process}


def _change_user(config: SandboxConfig) -> None:
    if config.uid is None or config.gid is None:
        if os.geteuid() == 0 and "gid" not in config.disabled_layers:
            with contextlib.suppress(PermissionError):
                os.setgroups([])
        return
    try:
        os.setgroups(config.groups)
        os.setresgid(config.gid, config.gid, config.gid)
        os.setresuid(config.uid, config.uid, config.uid)
    except OSError as exc:
        raise CannotEnterSandbox(f"the toolbox could not become user {config.uid}: {exc.strerror}") from exc


def _check_reach(checkout: str) -> None:
    """The workspace must be reachable by its own path: git and most tools ask for that."""
    user = os.geteuid()
    try:
        same = os.path.samestat(os.stat(checkout), os.stat("."))
        os.listdir(checkout)
    except OSError as exc:
        raise CannotEnterSandbox(f"user {user}, who the tools run as, cannot enter {checkout}: {exc.strerror}") from exc
    if not same:
        raise CannotEnterSandbox(f"{checkout} is not the folder that the toolbox was started in")
    for name in ("HOME", "TMPDIR"):
        if not os.access(os.environ[name], os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CannotEnterSandbox(f"user {user}, who the tools run as, cannot write to {os.environ[name]} ({name})")
