"""What the tests of the room share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stepflow.model.anthropic_model import AnthropicModel
from tests.model.asking import KEY
from tests.servers.messages_api import MessagesApi, Reply


@pytest.fixture
def serve() -> Iterator:
    """Start a server with replies; gives (model, server). Everything is closed at the end of the test."""
    with ExitStack() as stack:

        def start(*replies: Reply, model=None, **server) -> tuple[AnthropicModel, MessagesApi]:
            api = stack.enter_context(MessagesApi(replies, **server))
            timeouts = {"connect_timeout": 2, "read_timeout": 5} | (model or {})
            return stack.enter_context(AnthropicModel(KEY, api.url, **timeouts)), api

        yield start
