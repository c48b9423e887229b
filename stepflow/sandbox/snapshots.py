"""The parent's side of snapshots: asks for one, takes its pack, and sends one back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.errors import IsolationError, StepflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from stepflow.domain.json import JsonObject
    from stepflow.sandbox.channel import ChildChannel

_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may send: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
_SECONDS = 120.0
_RESTORE_SECONDS = 600.0


class SnapshotPort:
    """Takes and restores snapshots over a channel. `exclude` are paths of the workspace that are no part of it."""

    def __init__(self, channel: ChildChannel, grace: float) -> None:
        self._channel, self._grace = channel, grace

    def take(
        self,
        sink: Callable[[bytes], object],
        *,
        base: str,
        previous: Mapping[str, str] | None,
        withhold: Collection[str],
        free_bytes: int,
        exclude: Sequence[bytes],
    ) -> dict[str, object]:
        """What the toolbox says of the snapshot; its pack went to the sink. `previous` is the snapshot that is stored,
        by its tree, commit and index. `withhold` are old contents that the pack shall not have. Raises
        `StepflowError`."""
        total = min(SNAPSHOT_LIMIT, free_bytes)
        request: JsonObject = {
            "op": "take_snapshot",
            "base": base,
            "previous": dict(previous) if previous else None,
            "withhold": [*withhold],
            "exclude": [path.decode("latin-1") for path in exclude],
            "file_limit": FILE_LIMIT,
            "total": total,
            "timeout": _SECONDS,
        }
        came = 0

        def count(data: bytes) -> None:
            nonlocal came
            came += len(data)
            if came > total:
                raise IsolationError("The toolbox sent more of a snapshot than was asked for.", hint=_HINT)
            sink(data)

        answer = self._channel.ask(request, timeout=_SECONDS + self._grace, sink=count)
        if "problem" in answer:
            raise StepflowError(str(answer["problem"]))
        return answer

    @property
    def alive(self) -> bool:
        """False when the toolbox cannot be asked any more."""
        return self._channel.usable

    def restore(
        self,
        snapshot: Mapping[str, object],
        *,
        left_out: Mapping[str, str],
        size: int,
        pack: Iterable[bytes],
        exclude: Sequence[bytes],
    ) -> None:
        """Send a snapshot back, with a pack of so many bytes; everything that still runs is killed first. Raises
        `StepflowError`."""
        request: JsonObject = {
            "op": "restore_snapshot",
            "snapshot": {name: str(value) for name, value in snapshot.items()},
            "left_out": dict(left_out),
            "exclude": [path.decode("latin-1") for path in exclude],
            "file_limit": FILE_LIMIT,
            "bytes": size,
            "timeout": _RESTORE_SECONDS,
        }
        answer = self._channel.ask(request, timeout=_RESTORE_SECONDS + self._grace, payload=pack)
        if "problem" in answer:
            raise StepflowError(
                f"The snapshot of the working tree could not be put back: {answer['problem']}.",
                hint="Check out the commit that the run began with, or start a new run.",
            )


_HINT = "Nothing more is run. Start the run again."
