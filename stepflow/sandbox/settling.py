"""What the toolbox program is told before anything else: who to become, what stays open, which limits hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stepflow.domain.words import Network

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.json import JsonObject
    from stepflow.sandbox.identity import Identity
    from stepflow.sandbox.options import ToolboxOptions
    from stepflow.sandbox.reach import Reach


def settle_request(checkout: Path, identity: Identity | None, options: ToolboxOptions, reach: Reach) -> JsonObject:
    """The frame that `child.settle` reads."""
    return {
        "op": "settle",
        "checkout": str(checkout),
        **_user(identity, options),
        "write": [str(place) for place in reach.write],
        "read": [str(place) for place in reach.read],
        "devices": [str(place) for place in reach.devices],
        "close_network": options.network is Network.NONE,
        "without": [*sorted(options.without)],
        "processes": options.limits.processes,
        "file_bytes": options.limits.file_bytes,
        "open_files": options.limits.open_files,
        "bash_timeout": options.bash_timeout,
        "bash_max_timeout": options.bash_max_timeout,
        "file_timeout": options.file_timeout,
    }


def _user(identity: Identity | None, options: ToolboxOptions) -> JsonObject:
    return {
        "uid": identity.uid if identity else None,
        "gid": identity.gid if identity else None,
        # The parent's groups are what a toolbox without the layer would keep.
        "groups": list(os.getgroups()) if "gid" in options.without else [],
        "guard_uid": identity.guard_uid if identity and "memory" not in options.without else None,
    }
