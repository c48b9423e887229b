"""What keeps the tools away from the rest, layer by layer: what the sandbox program is told first, and what came of it
(security.md "The toolbox process")."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.child import landlock
from stepflow.sandbox.child.enter_sandbox import SandboxConfig
from stepflow.sandbox.programs import read_by
from stepflow.sandbox.workspace import GIT, object_folders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.sandbox.child.enter_sandbox import SandboxFacts
    from stepflow.sandbox.identity import Choice, Identity
    from stepflow.sandbox.options import ToolboxOptions

    #: A layer's state for people, and whether it is missing.
    State = tuple[str, bool]

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


def sandbox_config(
    *,
    checkout: Path,
    private: Path,
    programs: tuple[Path, ...],
    identity: Identity | None,
    options: ToolboxOptions,
    broker: int | None,
) -> SandboxConfig:
    """What the sandbox program receives first. `private` holds HOME and TMPDIR, `programs` are the folders of the
    tools' PATH, `broker` leads to the one who gives sockets."""
    terminals = () if _has_terminals(identity.uid if identity else os.geteuid()) else (_TERMINALS,)
    interpreter = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    named = (Path(name) for name in (*_SYSTEM, *interpreter))
    beside = (path for folder in programs for path in read_by(folder))
    read = dict.fromkeys((*named, *beside, _RESOLVER.resolve(), *borrowed_objects(checkout)))
    return SandboxConfig(
        checkout=str(checkout),
        working_directory=str(checkout / options.working_directory),
        uid=identity.uid if identity else None,
        gid=identity.gid if identity else None,
        # The parent's groups are what a toolbox without the layer would keep.
        groups=os.getgroups() if "gid" in options.disabled_layers else [],
        **vars(options.limits),
        write=_names((*(checkout, private / "home", private / "tmp", private / "snapshots", _SHARED_MEMORY),)),
        # An interpreter in the root would open everything.
        read=_names(folder for folder in read if folder.is_absolute() and folder != Path("/")),
        devices=_names((*_DEVICES, *terminals)),
        close_network=options.network is not Network.FULL,
        broker=broker,
        disabled_layers=sorted(options.disabled_layers),
    )


def _names(paths: Iterable[Path | str]) -> list[str]:
    return [str(path) for path in paths]


def _has_terminals(uid: int) -> bool:
    return any(terminal.name.isdigit() and _owner(terminal) == uid for terminal in _TERMINALS.glob("*"))


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def borrowed_objects(workspace: Path) -> tuple[Path, ...]:
    """The folders of git's objects that the workspace reads where they are: the history of the checkout."""
    return object_folders(workspace / GIT / "objects")[1:]


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
    """Every layer's state; raises `IsolationError` when `isolation: required` and one is missing."""
    states = {**_states(sandbox), **dict.fromkeys(sandbox.options.disabled_layers, ("switched off", True))}
    layers = tuple(Layer(name=name, state=state, missing=missing) for name, (state, missing) in states.items())
    _check_allowed_hosts(sandbox)
    missing = [f"{layer.name}: {layer.state}" for layer in layers if layer.missing]
    if missing and sandbox.options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot be kept apart as `isolation: required` demands. {'; '.join(missing)}.",
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
            f"`network: allow` cannot be held here, with `isolation: {options.isolation}` or without: {problem}.",
            hint="Use a runner with a newer kernel, or set `network: none`, or `full` where you trust what runs.",
        )


def _states(sandbox: SandboxState) -> dict[str, State]:
    """One row for each layer, in the order of the report."""
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
        "environment": (f"built from nothing{f', with {passed}' if passed else ''}", False),
        "path": (f"{sandbox.path}{own_programs if options.home_programs else ''}", False),
        "git": ("safe.directory for this workspace", False),
        "limits": (f"{bounds}, {limits.open_files} open files{ended_first}", False),
        "no_new_privs": _either(facts.no_new_privs, "no program gains rights by being started", "not to be had here"),
        "life": _either(
            facts.subreaper and facts.dies_with_parent,
            "dies with its parent; the launcher ends every descendant",
            f"{facts.platform} cannot hold on to daemons; process groups are ended",
        ),
        "memory": (f"the launcher's memory is {memory}", False),
        "landlock": _landlock(sandbox),
        "seccomp": _either(
            not facts.seccomp_problem,
            f"no {doors}{sockets}; the launcher's priority is its own",
            f"not to be had here: {facts.seccomp_problem}",
        ),
        "network": _network(facts, options),
    }


def _either(holds: bool, state: str, otherwise: str) -> State:
    return (state, False) if holds else (otherwise, True)


def _network(facts: SandboxFacts, options: ToolboxOptions) -> State:
    if options.network is Network.FULL:
        return "open", False
    if options.network is Network.ALLOW:
        names = ", ".join(map(str, options.allowed_hosts))
        return f"closed, but for TCP through the parent to {names}", False
    closed = "closed: no sockets but those between processes of this machine"
    return _either(not facts.network_problem, closed, f"cannot be closed here: {facts.network_problem}")


def _uid(facts: SandboxFacts, choice: Choice) -> State:
    if facts.uid == 0:
        rights = "without capabilities" if facts.capabilities_dropped else "with all its rights"
        return f"0, root {rights} ({choice.reason})", True
    if choice.identity is None:
        return f"{facts.uid} ({choice.reason})", False
    return f"{facts.uid} (nobody else's)", False


def _landlock(sandbox: SandboxState) -> State:
    abi = sandbox.facts.landlock_abi
    if not abi:
        problem = sandbox.facts.landlock_problem
        return f"not to be had here ({problem}): the tools reach every file that their user may", True
    access = f"ABI {abi}; tools write in the workspace, HOME and TMPDIR, and read the system's programs and settings"
    return "; ".join((access, *(gap for since, gap in _GAPS if abi < since))), abi < landlock.ABI_REFER
