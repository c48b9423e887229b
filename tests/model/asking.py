"""A request to begin with.

Takes: what shall differ. Gives: a `ModelRequest`. May touch: nothing.
"""

from __future__ import annotations

from stepflow.domain.conversation import Message, ModelRequest, text_block

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
