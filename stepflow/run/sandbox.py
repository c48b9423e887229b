"""The toolbox in a checkout without credentials, lent and taken back (security.md "Start-up").

Takes: a run request. Gives: a running toolbox, and in what state the checkout's credentials are.
May touch: nothing itself; the toolbox room lends, takes away and gives back.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.restore import credentials_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stepflow.run.cancel import Cancellation
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.options import ToolboxOptions
    from stepflow.sandbox.restore import CheckoutRestore


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """What a run works in. `credentials` says how many stood where."""

    toolbox: Toolbox
    credentials: str

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer's state, for the report."""
        return {**self.toolbox.isolation, "credentials": self.credentials}


@contextmanager
def open_sandbox(
    request: RunRequest, options: ToolboxOptions, cancellation: Cancellation, *, warn: Callable[[str], None]
) -> Iterator[Sandbox]:
    """Open it for the block, in which a signal interrupts every wait for the tools; what does not come back afterwards
    is told to `warn`.

    Signals stay held at the end: no signal may strike while something is given back. Raises `IsolationError` when a
    process may have survived.
    """
    cancellation.hold()
    with (
        _lent(request, warn) as restore,
        Toolbox.start(request.root, options=options, restore=restore) as toolbox,
        toolbox.interruptible(cancellation.obeyed),
    ):
        yield Sandbox(toolbox=toolbox, credentials=restore.state)
    if not toolbox.ended_all:
        raise IsolationError(
            "A process of the tools may have survived the run.",
            hint="Nothing in the checkout was touched any more; check the repository out anew on a fresh machine.",
        )


@contextmanager
def _lent(request: RunRequest, warn: Callable[[str], None]) -> Iterator[CheckoutRestore]:
    restore = None
    try:
        with credentials_away(
            request.root, request.runner_temp, request.login_files, journals=request.restore_folder
        ) as restore:
            yield restore
    finally:
        for note in restore.notes if restore else ():
            warn(note)
