"""What keeps the tools away from the rest, layer by layer (security.md "The toolbox process")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.child import landlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepflow.sandbox.identity import Choice
    from stepflow.sandbox.options import ToolboxOptions

    #: A layer's state for people, and whether it is missing.
    State = tuple[str, bool]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """`state` is for people. `missing`: the layer does not hold although this version demands it."""

    name: str
    state: str
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class SandboxFacts:
    """What is known once the program runs: its own facts, and what was decided before.

    `git_outside`: folders that the checkout's git needs and that do not lie in it. `own_code`: folders that do lie in
    it, and from which stepflow itself is loaded.
    """

    facts: Mapping[str, object]
    choice: Choice
    options: ToolboxOptions
    path: str
    git_outside: tuple[Path, ...] = ()
    own_code: tuple[Path, ...] = ()


def judge_layers(sandbox: SandboxFacts) -> tuple[Layer, ...]:
    """Every layer's state; raises `IsolationError` when `isolation: required` and one is missing."""
    disabled = dict.fromkeys(sandbox.options.disabled_layers, ("switched off", True))
    states = {name: disabled.get(name) or state_of(sandbox) for name, state_of in _STATES.items()}
    layers = tuple(Layer(name=name, state=state, missing=missing) for name, (state, missing) in states.items())
    missing = [f"{layer.name}: {layer.state}" for layer in layers if layer.missing]
    if missing and sandbox.options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot be kept apart as `isolation: required` demands. {'; '.join(missing)}.",
            hint="Use the action's container on Linux, or set `isolation: best-effort` where you trust what runs.",
        )
    _check_root(sandbox)
    return layers


def _check_root(sandbox: SandboxFacts) -> None:
    """Root's files and sockets open to uid 0 without any capability, so it stays only where two layers hold it."""
    if sandbox.facts["uid"] != 0 or "uid" in sandbox.options.disabled_layers:
        return
    in_force = {
        "landlock": bool(_landlock_abi(sandbox)),
        "seccomp": sandbox.facts.get("seccomp") == "",
        "empty capability sets": bool(sandbox.facts.get("capabilities_dropped")),
    }
    if lacking := [name for name, holds in in_force.items() if not holds]:
        raise IsolationError(
            f"The tools would stay root ({sandbox.choice.reason}), and that needs {', '.join(lacking)} as well.",
            hint="Run as an ordinary user, or put the checkout where a user of the tools' own can be given it.",
        )


def _uid(sandbox: SandboxFacts) -> State:
    uid, identity = sandbox.facts["uid"], sandbox.choice.identity
    if uid != 0:
        whose = "lent the checkout" if identity and identity.given else "the owner of the checkout"
        return f"{uid} ({whose if identity else sandbox.choice.reason})", False
    rights = "without capabilities" if sandbox.facts.get("capabilities_dropped") else "with all its rights"
    return f"0, root {rights} ({sandbox.choice.reason})", True


def _gid(sandbox: SandboxFacts) -> State:
    gid = sandbox.facts["gid"]
    return f"{gid} (unused, no other groups)" if sandbox.choice.identity else f"{gid} (kept)", False


def _environment(sandbox: SandboxFacts) -> State:
    passed = ", ".join(sorted(sandbox.options.pass_env))
    return f"built from nothing{f', with {passed}' if passed else ''}", False


def _path(sandbox: SandboxFacts) -> State:
    own = "; last comes ~/.local/bin for what setup installs, where tools can change it"
    return f"{sandbox.path}{own if sandbox.options.home_programs else ''}", False


def _limits(sandbox: SandboxFacts) -> State:
    bound = sandbox.options.limits
    size = f"{bound.file_bytes / 2**30:g} GiB"
    state = f"{bound.processes} more processes, files up to {size}, {bound.open_files} open files"
    if sandbox.facts["ended_before_parent"]:
        state += "; ended first when memory runs out"
    return state, False


def _no_new_privs(sandbox: SandboxFacts) -> State:
    if sandbox.facts["no_new_privs"]:
        return "no program gains rights by being started", False
    return "not to be had here", True


def _life(sandbox: SandboxFacts) -> State:
    if sandbox.facts["subreaper"] and sandbox.facts["dies_with_parent"]:
        return "dies with its parent; the supervisor ends every descendant", False
    return f"{sandbox.facts['platform']} cannot hold on to daemons; process groups are ended", True


def _memory(sandbox: SandboxFacts) -> State:
    if sandbox.facts["undumpable"]:
        return "the supervisor's memory is closed to the tools", False
    return "the supervisor's memory is open to its own user", False


def _landlock(sandbox: SandboxFacts) -> State:
    abi = _landlock_abi(sandbox)
    if not abi:
        problem = cast("Mapping[str, object]", sandbox.facts["landlock"])["problem"]
        return f"not to be had here ({problem}): the tools reach every file that their user may", True
    access = f"ABI {abi}; tools write in the checkout, HOME and TMPDIR, and read the system's programs and settings"
    notes = [access, *(gap for since, gap in _GAPS if abi < since)]
    if sandbox.git_outside:
        folders = ", ".join(map(str, sandbox.git_outside))
        notes.append(f"open as well, because the checkout's git needs it: {folders}, which others may share")
    if sandbox.own_code:
        folders = ", ".join(map(str, sandbox.own_code))
        notes.append(
            f"stepflow's own code lies in the checkout, where tools can change it: {folders}; install it elsewhere"
        )
    missing = abi < landlock.ABI_REFER or bool(sandbox.git_outside or sandbox.own_code)
    return "; ".join(notes), missing


def _landlock_abi(sandbox: SandboxFacts) -> int:
    """0 when it is not in force."""
    return int(str(cast("Mapping[str, object]", sandbox.facts.get("landlock", {})).get("abi", 0)))


def _seccomp(sandbox: SandboxFacts) -> State:
    if problem := sandbox.facts["seccomp"]:
        return f"not to be had here: {problem}", True
    sockets = "" if sandbox.choice.identity else ", unix sockets"
    doors = "io_uring, key rings, new user namespaces, kernel programs, file attributes, lasting shared memory"
    return f"no {doors}{sockets}; the supervisor's priority is its own", False


def _network(sandbox: SandboxFacts) -> State:
    if sandbox.options.network is Network.FULL:
        return "open", False
    if problem := sandbox.facts["network"]:
        return f"cannot be closed here: {problem}", True
    return "closed: no sockets but those between processes of this machine", False


#: What a kernel before that ABI does not know of.
_GAPS = (
    (landlock.ABI_REFER, "files cannot be moved between folders"),
    (landlock.ABI_TRUNCATE, "truncating files is not covered"),
    (landlock.ABI_IOCTL, "ioctl on devices is not covered"),
    (landlock.ABI_SCOPES, "signals and abstract sockets are not covered"),
)
_STATES: Mapping[str, Callable[[SandboxFacts], State]] = {
    "uid": _uid,
    "gid": _gid,
    "environment": _environment,
    "path": _path,
    "git": lambda _: ("safe.directory for this checkout", False),
    "limits": _limits,
    "no_new_privs": _no_new_privs,
    "life": _life,
    "memory": _memory,
    "landlock": _landlock,
    "seccomp": _seccomp,
    "network": _network,
}
