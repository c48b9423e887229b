"""What keeps the tools away from the rest, layer by layer (security.md "The toolbox process").

Takes: what the program found when it settled. Gives: one state per layer; refuses when a demanded one is missing.
May touch: nothing. A further layer is one more function in `_LAYERS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.toolbox.identity import Choice
    from stepflow.toolbox.options import ToolboxOptions


@dataclass(frozen=True, kw_only=True)
class Layer:
    """`state` is for people. `missing`: the layer does not hold although this version demands it."""

    name: str
    state: str
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is known once the program runs: its own facts, and what was decided before."""

    facts: Mapping[str, object]
    choice: Choice
    options: ToolboxOptions
    path: str


def judge_layers(found: Found) -> tuple[Layer, ...]:
    """Every layer's state; raises `IsolationError` when `isolation: required` and one is missing."""
    layers = tuple(layer(found) for layer in _LAYERS)
    missing = [f"{layer.name}: {layer.state}" for layer in layers if layer.missing]
    if missing and found.options.isolation is Isolation.REQUIRED:
        raise IsolationError(
            f"The tools cannot be kept apart as `isolation: required` demands. {'; '.join(missing)}.",
            hint="Use the action's container on Linux, or set `isolation: best-effort` where you trust what runs.",
        )
    return layers


def _uid(found: Found) -> Layer:
    uid, identity = found.facts["uid"], found.choice.identity
    if uid != 0:
        whose = "lent the checkout" if identity and identity.given else "the owner of the checkout"
        return Layer(name="uid", state=f"{uid} ({whose if identity else found.choice.reason})")
    rights = "without capabilities" if found.facts.get("capabilities_dropped") else "with all its rights"
    return Layer(name="uid", state=f"0, root {rights} ({found.choice.reason})", missing=True)


def _gid(found: Found) -> Layer:
    gid = found.facts["gid"]
    return Layer(name="gid", state=f"{gid} (unused, no other groups)" if found.choice.identity else f"{gid} (kept)")


def _environment(found: Found) -> Layer:
    passed = ", ".join(sorted(found.options.pass_env))
    return Layer(name="environment", state=f"built from nothing{f', with {passed}' if passed else ''}")


def _path(found: Found) -> Layer:
    own = "; last comes ~/.local/bin for what setup installs, where tools can change it"
    return Layer(name="path", state=f"{found.path}{own if found.options.home_programs else ''}")


def _git(_found: Found) -> Layer:
    return Layer(name="git", state="safe.directory for this checkout")


def _limits(found: Found) -> Layer:
    bound = found.options.limits
    size = f"{bound.file_bytes / 2**30:g} GiB"
    state = f"{bound.processes} more processes, files up to {size}, {bound.open_files} open files"
    if not found.facts["no_new_privileges"]:
        return Layer(name="limits", state=f"{state}; no_new_privs is not to be had here", missing=True)
    return Layer(name="limits", state=f"no_new_privs, {state}")


def _life(found: Found) -> Layer:
    if found.facts["subreaper"] and found.facts["dies_with_parent"]:
        return Layer(name="life", state="dies with its parent; the supervisor ends every descendant")
    state = f"{found.facts['platform']} cannot hold on to daemons; process groups are ended"
    return Layer(name="life", state=state, missing=True)


def _memory(found: Found) -> Layer:
    if found.facts["undumpable"]:
        return Layer(name="memory", state="the supervisor's memory is closed to the tools")
    return Layer(name="memory", state="the supervisor's memory is open to its own user")


def _landlock(_found: Found) -> Layer:
    return Layer(name="landlock", state="not in this version")


def _network(_found: Found) -> Layer:
    return Layer(name="network", state="open; closing it is not in this version")


_LAYERS: tuple[Callable[[Found], Layer], ...] = (
    _uid,
    _gid,
    _environment,
    _path,
    _git,
    _limits,
    _life,
    _memory,
    _landlock,
    _network,
)
