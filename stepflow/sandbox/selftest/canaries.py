"""The places that no tool may reach, and what it means when one can (security.md "What a Docker action is handed")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stepflow.domain.words import CanaryState, Isolation
from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Place(StrEnum):
    """Every place that is tried, in the words of the report."""

    ENVIRONMENT = "a tool's environment"
    DESCRIPTORS = "a tool's open descriptors"
    GIT_CONFIG = "git's configuration"
    PARENT = "the parent in /proc"
    MEMORY = "the parent's memory"
    FIRST_PROCESS = "process 1 in /proc"
    SIGNAL = "signals to the parent"
    RUNNER_TEMP = "RUNNER_TEMP"
    RUN_FOLDER = "the run folder"
    GITHUB_HOME = "/github/home"
    WORKFLOW = "/github/workflow and the event"
    FILE_COMMANDS = "/github/file_commands"
    ACT = "/var/run/act/workflow"
    HOME = "the parent's home"
    TEMPORARY = "the parent's temporary files"
    DOCKER = "the docker socket"
    SOCKETS = "other sockets under /run"
    ABSTRACT = "abstract sockets"
    TCP = "TCP"
    TCP6 = "TCP over IPv6"
    UDP = "UDP"


_FOLDERS = (
    *(Place.RUNNER_TEMP, Place.RUN_FOLDER, Place.GITHUB_HOME, Place.WORKFLOW),
    *(Place.FILE_COMMANDS, Place.ACT, Place.HOME, Place.TEMPORARY),
)

#: What should have stopped a tool on its way there, by the names of the report's sandbox rows where there is one.
LAYERS: Mapping[Place, str] = {
    Place.ENVIRONMENT: "environment",
    Place.DESCRIPTORS: "environment",
    Place.GIT_CONFIG: "the removal of checkout credentials",
    Place.PARENT: "uid or landlock",
    Place.MEMORY: "uid or landlock",
    Place.FIRST_PROCESS: "uid or landlock",
    Place.SIGNAL: "uid or landlock",
    **dict.fromkeys(_FOLDERS, "landlock"),
    Place.DOCKER: "gid, or seccomp for uid 0",
    Place.SOCKETS: "gid, or seccomp for uid 0",
    Place.ABSTRACT: "landlock",
    Place.TCP: "network",
    Place.TCP6: "network",
    Place.UDP: "network",
}

#: These refuse with `isolation: best-effort` too: who reaches one has the secrets. So does the docker socket where the
#: parent is root, since who reaches it is root on the machine.
ALWAYS = frozenset({Place.ENVIRONMENT, Place.DESCRIPTORS, Place.GIT_CONFIG, Place.PARENT, Place.MEMORY})


@dataclass(frozen=True, kw_only=True)
class Canary:
    """One place. `ways` says by what and how it was reached. `refuses`: reaching it ends every run."""

    place: Place
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
        return {canary.place.value: canary.description for canary in self.canaries}

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
    return f"{canary.place}, {canary.description} (what should stop that: {LAYERS[canary.place]})"
