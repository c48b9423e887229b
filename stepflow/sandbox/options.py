"""What the caller decides about a toolbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.connection import ConnectionTo, direct
from stepflow.domain.words import Isolation, Network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepflow.sandbox.egress.allowed_hosts import AllowedHost
    from stepflow.sandbox.egress.proxy import Internet

_MIB = 1024 * 1024
#: The layers that keep the tools away from the rest, as the report names them, in this order.
LAYERS = (
    *("uid", "gid", "environment", "path", "limits", "no_new_privs"),
    *("life", "memory", "landlock", "seccomp", "network"),
)


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
    `allowed_hosts` are those of `network: allow`, `connection_to` is the parent's way to them, `internet` looks them
    up; None means the real one.
    `home_programs`: what is installed into `~/.local/bin` of the tools' own home is found, after everything else.
    `programs` are the folders of the tools' PATH; None means the system's, and last this interpreter's.
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
    working_directory: str = "."
    private_root: Path | None = None
    disabled_layers: frozenset[str] = frozenset()
