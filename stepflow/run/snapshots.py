"""The working tree of a run, kept and put back (action.md "Resume")."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.checkout import RestoredInfo, SnapshotInfo
from stepflow.domain.secrets import secrets_to_find
from stepflow.errors import StepflowError
from stepflow.journal.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.sandbox.box import Toolbox

#: Where in the run folder they are (action.md "Run folder").
FOLDER = "snapshots"


class Snapshots:
    """Takes snapshots of the toolbox's checkout into the run folder. `base` is the commit that a fresh clone has: of a
    run that is resumed, the one that it began with. Empty: HEAD, when the first one is taken. No snapshot holds one of
    the `secrets`.
    """

    def __init__(self, toolbox: Toolbox, run_folder: Path, *, base: str = "", secrets: Iterable[str] = ()) -> None:
        self._port = toolbox.snapshots
        self._store = SnapshotStore(run_folder / FOLDER, secrets=secrets_to_find(secrets))
        self._base = base
        self._exclude = _inside(toolbox.checkout, run_folder)

    def take(self) -> SnapshotInfo:
        """Keep the tree as it is now. What goes wrong is a value; raises `IsolationError` for a broken toolbox only."""
        begun = time.monotonic()
        try:
            with self._store.incoming() as coming:
                came = self._port.take(
                    coming,
                    base=self._base,
                    free_bytes=self._store.free_bytes,
                    exclude=self._exclude,
                    builds=bool(self._store.last),
                )
                if came.manifest is None:
                    return SnapshotInfo(
                        name=self._store.last,
                        special=came.special,
                        problem=came.problem,
                        seconds=time.monotonic() - begun,
                    )
                stored = self._store.store(coming, came.manifest)
        except StepflowError as error:
            if not self._port.alive:
                raise
            return SnapshotInfo(name=self._store.last, problem=str(error), seconds=time.monotonic() - begun)
        self._port.keep()
        return SnapshotInfo(
            name=stored.name,
            files=stored.files,
            bytes=stored.bytes,
            left_out=stored.left_out,
            special=came.special,
            seconds=time.monotonic() - begun,
        )

    def restore(self, name: str) -> RestoredInfo:
        """Bring the checkout to what it was; the next snapshot builds on this one.

        Raises `InputError` for a store that is damaged, `StepflowError` for a checkout that it does not fit.
        """
        whole = self._store.resolve(name)
        restored = self._port.restore(whole.as_message(), self._store.blobs(whole), exclude=self._exclude)
        self._base = whole.base
        self._store.build_on(name, whole)
        return restored


def _inside(checkout: Path, run_folder: Path) -> tuple[bytes, ...]:
    """A run folder inside the checkout is no part of it, or each snapshot would hold all those before."""
    folder = run_folder.resolve()
    return (os.fsencode(folder.relative_to(checkout)),) if folder.is_relative_to(checkout) else ()
