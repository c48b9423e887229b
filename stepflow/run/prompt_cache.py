"""The cache of the service that a run asks, as the flow keeps it while the sandbox works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.recording import RecordingModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
    from stepflow.ports import Model
    from stepflow.run.clock import Cancellation
    from stepflow.sandbox.box import Toolbox


@dataclass(frozen=True, kw_only=True)
class ServiceCache:
    """Implements the port `PromptCache`."""

    model: AnthropicModel
    toolbox: Toolbox
    cancellation: Cancellation

    def while_waiting(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Look now and then while something runs in the sandbox."""
        return self.toolbox.while_waiting(look)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Renew once; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            return self.model.renew(request, number)


def open_cache(model: Model, toolbox: Toolbox, cancellation: Cancellation) -> ServiceCache | None:
    """The cache behind a model; None behind one that has none, such as a scripted one."""
    asked = model.model if isinstance(model, RecordingModel) else model
    if not isinstance(asked, AnthropicModel):
        return None
    return ServiceCache(model=asked, toolbox=toolbox, cancellation=cancellation)
