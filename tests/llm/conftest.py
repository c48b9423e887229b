"""What the tests of the room share.

Takes: nothing. Gives: a request to begin with, and a model on a scripted server. May touch: loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stepflow.domain.conversation import Message, ModelRequest, text_block
from stepflow.llm import AnthropicModel
from tests.servers.messages_api import MessagesApi, Reply

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


@pytest.fixture
def serve() -> Iterator:
    """Start a server with replies; gives (model, server). Everything is closed at the end of the test."""
    with ExitStack() as stack:

        def start(*replies: Reply, model=None, **server) -> tuple[AnthropicModel, MessagesApi]:
            api = stack.enter_context(MessagesApi(replies, **server))
            timeouts = {"connect_timeout": 2, "read_timeout": 5} | (model or {})
            return stack.enter_context(AnthropicModel(KEY, api.url, **timeouts)), api

        yield start
