"""Ports whose waits a termination signal ends, where it is held otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.run.clock import RehearsalClock, SystemClock

if TYPE_CHECKING:
    from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
    from stepflow.ports import Clock, Model
    from stepflow.run.cancel import Cancellation


@dataclass(frozen=True)
class InterruptibleModel:
    """Implements the port `Model`."""

    model: Model
    cancellation: Cancellation

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Ask once; raises `RunCancelled` when a signal comes."""
        with self.cancellation.obeyed():
            return self.model.ask(request)


@dataclass(frozen=True)
class InterruptibleClock:
    """Implements the port `Clock`."""

    clock: Clock
    cancellation: Cancellation

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait; raises `RunCancelled` when a signal comes."""
        with self.cancellation.obeyed():
            self.clock.sleep(seconds)


def clock_of_services(clock: Clock, cancellation: Cancellation) -> InterruptibleClock:
    """For what is outside of a run: GitHub is waited for also where a scripted model is not."""
    return InterruptibleClock(SystemClock() if isinstance(clock, RehearsalClock) else clock, cancellation)
