"""What the caller decides about a toolbox, who the tools run as, and what keeps them away from the rest, layer by
layer: what the sandbox program receives first, and what came of it."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import secrets
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.connection import ConnectionTo, direct
from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.child import landlock
from stepflow.sandbox.child.enter_sandbox import SandboxConfig, SandboxFacts
from stepflow.sandbox.child.processes import process_table
from stepflow.sandbox.egress.allowed_hosts import AllowedHost

if TYPE_CHECKING:
    # It loads asyncio.
    from stepflow.sandbox.egress.proxy import Internet


#: Ids that systems keep for users of one service's lifetime; no package makes accounts there.
_IDS = range(61184, 65520)
#: Ids that sandboxes of this process have: none shows in the process table before its first process runs.
_reserved_ids: set[int] = set()
_reserving = threading.Lock()
#: CHOWN, FOWNER, SETGID, SETUID: without them a root process cannot give the workspace away or change its user.
_NEEDED_CAPABILITIES = (0, 3, 6, 7)
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
#: Without these git, terminals and shared memory do not work.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"))
#: Where everybody's terminals are. Who opens one of the same user reads what is typed there, a password too.
_TERMINALS = Path("/dev/pts")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - named as a place to leave open, nothing is made there
#: Where names of hosts are looked up; systemd makes it a link out of /etc.
_RESOLVER = Path("/etc/resolv.conf")
#: What a kernel before that ABI does not know of.
_GAPS = (
    (landlock.ABI_REFER, "files cannot be moved between folders"),
    (landlock.ABI_TRUNCATE, "truncating files is not covered"),
    (landlock.ABI_IOCTL, "ioctl on devices is not covered"),
    (landlock.ABI_SCOPES, "signals and abstract sockets are not covered"),
)
#: A layer's state for people, and whether it is missing.
_State = tuple[str, bool]
_MIB = 1024 * 1024
#: The layers that keep the tools away from the rest, as the report names them, in this order.
LAYERS = (
    *("uid", "gid", "environment", "path", "limits", "no_new_privs"),
    *("life", "memory", "landlock", "seccomp", "network"),
)


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
    """Choose an unprivileged user if the parent is root. Raises `IsolationError` where that is impossible and
    required."""
    if os.getuid() != 0:
        return Choice(identity=None, reason="the parent is not root and keeps its user")
    if "uid" in options.disabled_layers:
        return Choice(identity=None, reason="switched off")
    obstacle = _missing_rights() or _unreachable(workspace, options)
    if not obstacle:
        return Choice(identity=_identity(options))
    if options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot run as a separate user: {obstacle}.",
            hint="Set TMPDIR to a folder that others may enter, run as an ordinary user, or use "
            "`isolation: best-effort`.",
        )
    return Choice(identity=None, reason=obstacle)


def release_identity(identity: Identity) -> None:
    """Let the ids of a closed sandbox be chosen again."""
    with _reserving:
        _reserved_ids.difference_update((identity.uid, identity.gid))


def closed_folder(path: Path, uid: int) -> Path | None:
    """Return the first folder on the way to `path` that the user cannot enter; groups and access lists are not
    looked at."""
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        info = folder.stat()
        needed = stat.S_IXUSR if info.st_uid == uid else stat.S_IXOTH
        if stat.S_ISDIR(info.st_mode) and not info.st_mode & needed:
            return folder
    return None


def closed_interpreter(uid: int) -> Path | None:
    """Return the folder that keeps the user from the interpreter or the programs beside it, None when nothing does."""
    interpreter = Path(sys.executable)
    return closed_folder(interpreter.parent, uid) or closed_folder(interpreter, uid)


def _identity(options: ToolboxOptions) -> Identity:
    users = {user.pw_uid for user in pwd.getpwall()} | {uid for process in process_table()[0] for uid in process.uids}
    uid = _unused_id(users)
    groups = {group.gr_gid for group in grp.getgrall()} | {user.pw_gid for user in pwd.getpwall()}
    return Identity(
        uid=uid,
        gid=os.getgid() if "gid" in options.disabled_layers else _unused_id(groups, "/proc/self/gid_map"),
    )


def _unused_id(used: Set[int], id_map: str = "/proc/self/uid_map") -> int:
    with _reserving:
        free = [number for number in _mapped_ids(id_map) if number not in used | _reserved_ids]
        if not free:
            raise IsolationError(
                f"No user or group id between {_IDS.start} and {_IDS.stop - 1} is free on this machine.",
                hint="Run in a container whose user namespace maps these ids.",
            )
        chosen = secrets.choice(free)
        _reserved_ids.add(chosen)
        return chosen


def _mapped_ids(id_map: str) -> list[int]:
    """Return the ids of the range that exist in this user namespace."""
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
    closed = (
        closed_interpreter(-1),
        *(closed_folder(folder, -1) for folder in options.interpreters if folder.exists()),
    )
    above = next(filter(None, closed), None) if wants_programs else None
    return f"{above}, above the Python interpreter, can be entered only by its owner" if above else ""


def private_place(options: ToolboxOptions) -> Path:
    """Return where a private folder will be; nothing is there yet."""
    root = options.private_root or Path(tempfile.gettempdir())
    return root.resolve() / f"stepflow-tools-{secrets.token_hex(8)}"


def make_private_folder(private: Path, identity: Identity | None) -> None:
    """Make a folder of the tools' user with `home`, `tmp` and `snapshots` in it, as far as they are not there."""
    for folder in (private, private / "home", private / "tmp", private / "snapshots"):
        folder.mkdir(mode=0o700, exist_ok=True)
        if identity:
            shutil.chown(folder, identity.uid, identity.gid)


def sandbox_config(
    *,
    checkout: Path,
    private: Path,
    read: Iterable[Path],
    identity: Identity | None,
    options: ToolboxOptions,
    broker: int | None,
) -> SandboxConfig:
    """Return what the sandbox program receives first. `private` holds HOME and TMPDIR; tools `read` these paths
    beside the system's and this interpreter's; `broker` leads to the process that gives sockets."""
    terminals = () if _has_terminals(identity.uid if identity else os.geteuid()) else (str(_TERMINALS),)
    interpreter = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    named = (Path(name) for name in (*_SYSTEM, *interpreter))
    places = dict.fromkeys((*named, _RESOLVER.resolve(), *read))
    return SandboxConfig(
        checkout=str(checkout),
        working_directory=str(checkout / options.working_directory),
        uid=identity.uid if identity else None,
        gid=identity.gid if identity else None,
        # The parent's groups are what a toolbox without the layer would keep.
        groups=os.getgroups() if "gid" in options.disabled_layers else [],
        **vars(options.limits),
        write=[str(checkout), *(str(private / name) for name in ("home", "tmp", "snapshots")), _SHARED_MEMORY],
        # An interpreter in the root would open everything.
        read=[str(folder) for folder in places if folder.is_absolute() and folder != Path("/")],
        devices=[*_DEVICES, *terminals],
        close_network=options.network is not Network.FULL,
        broker=broker,
        disabled_layers=sorted(options.disabled_layers),
    )


def _has_terminals(uid: int) -> bool:
    for terminal in _TERMINALS.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if terminal.stat().st_uid == uid:
                return True
    return False


@dataclass(frozen=True, kw_only=True)
class Layer:
    """`state` is for people. `missing`: the layer does not hold although this version demands it."""

    name: str
    state: str
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class SandboxState:
    """What is known once the program runs: its own `facts`, and what was decided before."""

    facts: SandboxFacts
    choice: Choice
    options: ToolboxOptions
    path: str


def judge_layers(sandbox: SandboxState) -> tuple[Layer, ...]:
    """Return every layer's state; raises `IsolationError` when `isolation: required` and one is missing."""
    states = {**_states(sandbox), **dict.fromkeys(sandbox.options.disabled_layers, ("switched off", True))}
    layers = tuple(Layer(name=name, state=state, missing=missing) for name, (state, missing) in states.items())
    _check_allowed_hosts(sandbox)
    missing = [f"{layer.name}: {layer.state}" for layer in layers if layer.missing]
    if missing and sandbox.options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot be isolated as `isolation: required` requires. {'; '.join(missing)}.",
            hint="Use the action's container on Linux, or set `isolation: best-effort` where you trust what runs.",
        )
    _check_root(sandbox)
    return layers


def _check_root(sandbox: SandboxState) -> None:
    """Root's files and sockets open to uid 0 without any capability, so it stays only where two layers hold it."""
    facts = sandbox.facts
    if facts.uid != 0 or "uid" in sandbox.options.disabled_layers:
        return
    in_force = {
        "landlock": facts.landlock_abi > 0,
        "seccomp": not facts.seccomp_problem,
        "empty capability sets": facts.capabilities_dropped,
    }
    if lacking := [name for name, holds in in_force.items() if not holds]:
        raise IsolationError(
            f"The tools would stay root ({sandbox.choice.reason}), and that needs {', '.join(lacking)} as well.",
            hint="Run as an ordinary user, or set TMPDIR to a folder that others may enter.",
        )


def _check_allowed_hosts(sandbox: SandboxState) -> None:
    """A list of hosts that only some programs heed would be none, so the kernel holds it or nothing starts."""
    facts, options = sandbox.facts, sandbox.options
    if options.network is not Network.ALLOW:
        return
    problem = facts.network_problem and f"the parent cannot answer calls for sockets: {facts.network_problem}"
    if facts.landlock_abi < landlock.ABI_TCP:
        problem = f"Landlock governs TCP from ABI {landlock.ABI_TCP} on (Linux 6.7), here it is {facts.landlock_abi}"
    if problem:
        raise IsolationError(
            "`network` with a list of hosts cannot be enforced here, with "
            f"`isolation: {options.isolation}` or without: {problem}.",
            hint="Use a runner with a newer kernel, or set `network: none`, or `full` where you trust what runs.",
        )


def _states(sandbox: SandboxState) -> dict[str, _State]:
    """Return one row for each layer, in the order of the report."""
    facts, options, identity = sandbox.facts, sandbox.options, sandbox.choice.identity
    passed = ", ".join(sorted(options.pass_env))
    own_programs = "; last comes ~/.local/bin for what setup installs, where tools can change it"
    limits = options.limits
    bounds = f"{limits.processes} more processes, files up to {limits.file_bytes / 2**30:g} GiB"
    ended_first = "; ended first when memory runs out" if facts.ended_before_parent else ""
    sockets = "" if identity else ", unix sockets"
    doors = "io_uring, key rings, new user namespaces, kernel programs, file attributes, lasting shared memory"
    memory = "closed to the tools" if facts.undumpable else "open to its own user"
    return {
        "uid": _uid(facts, sandbox.choice),
        "gid": (f"{facts.gid} (unused, no other groups)" if identity else f"{facts.gid} (kept)", False),
        "environment": (f"starts empty{f', with {passed}' if passed else ''}", False),
        "path": (f"{sandbox.path}{own_programs if options.home_programs else ''}", False),
        "git": ("safe.directory for this workspace", False),
        "limits": (f"{bounds}, {limits.open_files} open files{ended_first}", False),
        "no_new_privs": _either(facts.no_new_privs, "no program gains rights by being started", "not available here"),
        "life": _either(
            facts.subreaper and facts.dies_with_parent,
            "dies with its parent; the launcher ends every descendant",
            f"{facts.platform} cannot track daemons; process groups are ended",
        ),
        "memory": (f"the launcher's memory is {memory}", False),
        "landlock": _landlock(sandbox),
        "seccomp": _either(
            not facts.seccomp_problem,
            f"no {doors}{sockets}; the launcher's priority is its own",
            f"not available here: {facts.seccomp_problem}",
        ),
        "network": _network(facts, options),
    }


def _either(holds: bool, state: str, otherwise: str) -> _State:
    return (state, False) if holds else (otherwise, True)


def _network(facts: SandboxFacts, options: ToolboxOptions) -> _State:
    if options.network is Network.FULL:
        return "open", False
    if options.network is Network.ALLOW:
        names = ", ".join(map(str, options.allowed_hosts))
        return f"closed, but for TCP through the parent to {names}", False
    closed = "closed: no sockets but those between processes of this machine"
    return _either(not facts.network_problem, closed, f"cannot be closed here: {facts.network_problem}")


def _uid(facts: SandboxFacts, choice: Choice) -> _State:
    if facts.uid == 0:
        rights = "without capabilities" if facts.capabilities_dropped else "with all its rights"
        return f"0, root {rights} ({choice.reason})", True
    if choice.identity is None:
        return f"{facts.uid} ({choice.reason})", False
    return f"{facts.uid} (nobody else's)", False


def _landlock(sandbox: SandboxState) -> _State:
    abi = sandbox.facts.landlock_abi
    if not abi:
        problem = sandbox.facts.landlock_problem
        return f"not available here ({problem}): the tools reach every file that their user may", True
    access = f"ABI {abi}; tools write in the workspace, HOME and TMPDIR, and read the system's programs and settings"
    return "; ".join((access, *(gap for since, gap in _GAPS if abi < since))), abi < landlock.ABI_REFER


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """`processes` is how many more than at the start of the sandbox the tools' user may run; sizes in bytes."""

    processes: int = 2048
    file_bytes: int = 4096 * _MIB
    open_files: int = 16384


@dataclass(frozen=True, kw_only=True)
class ToolboxOptions:
    """Timeouts in seconds. `pass_env` are the variables that the workflow's author wants the tools to see.

    `grace` is how much longer than its own timeout a call may take before the toolbox counts as hung: killing what will
    not die, and reading what is left, on a machine under load.
    `allowed_hosts` are those of `network`, `connection_to` is the parent's way to them, `internet` looks them
    up; None means the real one.
    `home_programs`: what is installed into `~/.local/bin` of the tools' own home is found, after everything else.
    `programs` are the folders of the tools' PATH; None means the system's, and last this interpreter's.
    `interpreters` are the folders with the interpreters behind environments in the workspace.
    `working_directory` is where commands start, relative to the checkout.
    `private_root` is where the tools' HOME and TMPDIR are made; None means the system's place for temporary files.
    `disabled_layers` are those of `LAYERS` to leave out, for tests that show what each layer stops and to stand for a
    kernel that lacks one; no input sets it.
    """

    isolation: Isolation = Isolation.REQUIRED
    network: Network = Network.FULL
    allowed_hosts: tuple[AllowedHost, ...] = ()
    connection_to: ConnectionTo = direct
    internet: Internet | None = None
    pass_env: Mapping[str, str] = field(default_factory=dict)
    home_programs: bool = False
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    bash_timeout: float = 120.0
    bash_max_timeout: float = 600.0
    file_timeout: float = 30.0
    grace: float = 30.0
    programs: tuple[Path, ...] | None = None
    interpreters: tuple[Path, ...] = ()
    working_directory: str = "."
    private_root: Path | None = None
    disabled_layers: frozenset[str] = frozenset()
