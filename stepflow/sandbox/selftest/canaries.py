"""The places that no tool may reach, and what it means when one can (security.md "What a Docker action is handed")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from stepflow.domain.words import CanaryState, Isolation
from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Location(StrEnum):
    """Every place that is tried, in the words of the report, and what should stop a tool on its way there, by the names
    of the report's sandbox rows where there is one.

    `always` refuses with `isolation: best-effort` too: who reaches such a place has the secrets.
    """

    layer: str
    always: bool

    def __new__(cls, words: str, layer: str, always: str = "") -> Self:
        """One row of the table below."""
        location = str.__new__(cls, words)
        location._value_ = words
        location.layer, location.always = layer, bool(always)
        return location

    ENVIRONMENT = "a tool's environment", "environment", "always"
    DESCRIPTORS = "a tool's open descriptors", "environment", "always"
    GIT_CONFIG = "git's configuration", "the removal of checkout credentials", "always"
    PARENT = "the parent in /proc", "uid or landlock", "always"
    MEMORY = "the parent's memory", "uid or landlock", "always"
    FIRST_PROCESS = "process 1 in /proc", "uid or landlock"
    SIGNAL = "signals to the parent", "uid or landlock"
    RUNNER_TEMP = "RUNNER_TEMP", "landlock"
    RUN_FOLDER = "the run folder", "landlock"
    GITHUB_HOME = "/github/home", "landlock"
    WORKFLOW = "/github/workflow and the event", "landlock"
    FILE_COMMANDS = "/github/file_commands", "landlock"
    ACT = "/var/run/act/workflow", "landlock"
    HOME = "the parent's home", "landlock"
    TEMPORARY = "the parent's temporary files", "landlock"
    DOCKER = "the docker socket", "gid, or seccomp for uid 0"
    SOCKETS = "other sockets under /run", "gid, or seccomp for uid 0"
    ABSTRACT = "abstract sockets", "landlock"
    TCP = "TCP", "network"
    TCP6 = "TCP over IPv6", "network"
    UDP = "UDP", "network"


LAYERS = {location: location.layer for location in Location}
ALWAYS = frozenset(location for location in Location if location.always)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """One place. `ways` says by what and how it was reached. `refuses`: reaching it ends every run."""

    location: Location
    state: CanaryState
    ways: str = ""
    refuses: bool = False

    @property
    def description(self) -> str:
        """The state, with the way if there was one."""
        return f"{self.state} {self.ways}" if self.ways else self.state.value


@dataclass(frozen=True, kw_only=True)
class CanaryReport:
    """What the self-test found, place by place."""

    canaries: tuple[Canary, ...]

    @property
    def reached(self) -> tuple[Canary, ...]:
        """Where a tool got that it should not."""
        return tuple(canary for canary in self.canaries if canary.state is CanaryState.REACHED)

    @property
    def states(self) -> Mapping[str, str]:
        """Each place's state, for journal and report."""
        return {canary.location.value: canary.description for canary in self.canaries}

    @property
    def open(self) -> tuple[str, ...]:
        """What is open and no reason to refuse, in one line each."""
        return tuple(f"open: {_explained(canary)}" for canary in self.reached if not canary.refuses)

    def demand(self, isolation: Isolation) -> None:
        """Raises `IsolationError` when something was reached that this isolation does not let pass."""
        bad = [canary for canary in self.reached if canary.refuses or isolation is Isolation.REQUIRED]
        if bad:
            raise IsolationError(
                f"The self-test got out of the sandbox, so no model is asked. {'; '.join(map(_explained, bad))}.",
                hint=_ALWAYS_HINT if any(canary.refuses for canary in bad) else _REQUIRED_HINT,
            )


_REQUIRED_HINT = (
    "Run the action in its own container on a kernel with Landlock (`stepflow preflight` shows each layer), or set "
    "`isolation: best-effort` where you trust whoever writes issues and what the repository runs."
)
_ALWAYS_HINT = (
    "This is refused with `isolation: best-effort` too. Remove what leads there, such as a secret in pass-env or in "
    "git's configuration or a socket that every user may use, or run the action in its own container."
)


def _explained(canary: Canary) -> str:
    return f"{canary.location}, {canary.description} (what should stop that: {LAYERS[canary.location]})"
