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
    layers = tuple(_state_of(name, sandbox) for name in _STATES)
    missing = [f"{layer.name}: {layer.state}" for layer in layers if layer.missing]
    if missing and sandbox.options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot be kept apart as `isolation: required` demands. {'; '.join(missing)}.",
            hint="Use the action's container on Linux, or set `isolation: best-effort` where you trust what runs.",
        )
    _check_root(sandbox)
    return layers


def _state_of(name: str, sandbox: SandboxFacts) -> Layer:
    if name in sandbox.options.disabled_layers:
        return Layer(name=name, state="switched off", missing=True)
    return _STATES[name](sandbox)


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


def _uid(sandbox: SandboxFacts) -> Layer:
    uid, identity = sandbox.facts["uid"], sandbox.choice.identity
    if uid != 0:
        whose = "lent the checkout" if identity and identity.given else "the owner of the checkout"
        return Layer(name="uid", state=f"{uid} ({whose if identity else sandbox.choice.reason})")
    rights = "without capabilities" if sandbox.facts.get("capabilities_dropped") else "with all its rights"
    return Layer(name="uid", state=f"0, root {rights} ({sandbox.choice.reason})", missing=True)


def _gid(sandbox: SandboxFacts) -> Layer:
    gid = sandbox.facts["gid"]
    return Layer(name="gid", state=f"{gid} (unused, no other groups)" if sandbox.choice.identity else f"{gid} (kept)")


def _environment(sandbox: SandboxFacts) -> Layer:
    passed = ", ".join(sorted(sandbox.options.pass_env))
    return Layer(name="environment", state=f"built from nothing{f', with {passed}' if passed else ''}")


def _path(sandbox: SandboxFacts) -> Layer:
    own = "; last comes ~/.local/bin for what setup installs, where tools can change it"
    return Layer(name="path", state=f"{sandbox.path}{own if sandbox.options.home_programs else ''}")


def _git(_sandbox: SandboxFacts) -> Layer:
    return Layer(name="git", state="safe.directory for this checkout")


def _limits(sandbox: SandboxFacts) -> Layer:
    bound = sandbox.options.limits
    size = f"{bound.file_bytes / 2**30:g} GiB"
    state = f"{bound.processes} more processes, files up to {size}, {bound.open_files} open files"
    if sandbox.facts["ended_before_parent"]:
        state += "; ended first when memory runs out"
    return Layer(name="limits", state=state)


def _no_new_privs(sandbox: SandboxFacts) -> Layer:
    if sandbox.facts["no_new_privs"]:
        return Layer(name="no_new_privs", state="no program gains rights by being started")
    return Layer(name="no_new_privs", state="not to be had here", missing=True)


def _life(sandbox: SandboxFacts) -> Layer:
    if sandbox.facts["subreaper"] and sandbox.facts["dies_with_parent"]:
        return Layer(name="life", state="dies with its parent; the supervisor ends every descendant")
    state = f"{sandbox.facts['platform']} cannot hold on to daemons; process groups are ended"
    return Layer(name="life", state=state, missing=True)


def _memory(sandbox: SandboxFacts) -> Layer:
    if sandbox.facts["undumpable"]:
        return Layer(name="memory", state="the supervisor's memory is closed to the tools")
    return Layer(name="memory", state="the supervisor's memory is open to its own user")


def _landlock(sandbox: SandboxFacts) -> Layer:
    abi = _landlock_abi(sandbox)
    if not abi:
        problem = cast("Mapping[str, object]", sandbox.facts["landlock"])["problem"]
        state = f"not to be had here ({problem}): the tools reach every file that their user may"
        return Layer(name="landlock", state=state, missing=True)
    rule = f"ABI {abi}; tools write in the checkout, HOME and TMPDIR, and read the system's programs and settings"
    notes = [rule, *(gap for since, gap in _GAPS if abi < since)]
    if sandbox.git_outside:
        folders = ", ".join(map(str, sandbox.git_outside))
        notes.append(f"open as well, because the checkout's git needs it: {folders}, which others may share")
    if sandbox.own_code:
        folders = ", ".join(map(str, sandbox.own_code))
        notes.append(
            f"stepflow's own code lies in the checkout, where tools can change it: {folders}; install it elsewhere"
        )
    missing = abi < landlock.ABI_REFER or bool(sandbox.git_outside or sandbox.own_code)
    return Layer(name="landlock", state="; ".join(notes), missing=missing)


def _landlock_abi(sandbox: SandboxFacts) -> int:
    """0 when it is not in force."""
    return int(str(cast("Mapping[str, object]", sandbox.facts.get("landlock", {})).get("abi", 0)))


def _seccomp(sandbox: SandboxFacts) -> Layer:
    if problem := sandbox.facts["seccomp"]:
        return Layer(name="seccomp", state=f"not to be had here: {problem}", missing=True)
    sockets = "" if sandbox.choice.identity else ", unix sockets"
    doors = "io_uring, key rings, new user namespaces, kernel programs, file attributes, lasting shared memory"
    return Layer(name="seccomp", state=f"no {doors}{sockets}; the supervisor's priority is its own")


def _network(sandbox: SandboxFacts) -> Layer:
    if sandbox.options.network is Network.FULL:
        return Layer(name="network", state="open")
    if problem := sandbox.facts["network"]:
        return Layer(name="network", state=f"cannot be closed here: {problem}", missing=True)
    return Layer(name="network", state="closed: no sockets but those between processes of this machine")


#: What a kernel before that ABI does not know of.
_GAPS = (
    (landlock.ABI_REFER, "files cannot be moved between folders"),
    (landlock.ABI_TRUNCATE, "truncating files is not covered"),
    (landlock.ABI_IOCTL, "ioctl on devices is not covered"),
    (landlock.ABI_SCOPES, "signals and abstract sockets are not covered"),
)
_STATES: Mapping[str, Callable[[SandboxFacts], Layer]] = {
    "uid": _uid,
    "gid": _gid,
    "environment": _environment,
    "path": _path,
    "git": _git,
    "limits": _limits,
    "no_new_privs": _no_new_privs,
    "life": _life,
    "memory": _memory,
    "landlock": _landlock,
    "seccomp": _seccomp,
    "network": _network,
}
