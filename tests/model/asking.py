"""A request to begin with, and what a model makes of it."""

from __future__ import annotations

from stepflow.domain.conversation import Message, ModelFault, ModelRequest, text_block
from stepflow.ports import Model

KEY = "sk-ant-test-key"


def ask(prompt: str = "Fix the parser.", **more) -> ModelRequest:
    """A request of the step `initial.issue` with one user message."""
    given = {
        "step_id": "initial.issue",
        "iteration": 1,
        "model": "sonnet",
        "system": "You work on an issue.",
        "messages": (Message(role="user", content=(text_block(prompt),)),),
    }
    return ModelRequest(**(given | more))


def fault_of(model: Model, request: ModelRequest | None = None) -> ModelFault:
    """What went wrong with the request; it must not have been answered."""
    fault = model.ask(request or ask())
    assert isinstance(fault, ModelFault), fault
    return fault
