"""A turn says when its conversation is close to the length at which the model costs more."""

from __future__ import annotations

import pytest

from stepflow.domain.conversation import ModelTurn
from tests.model.asking import ask
from tests.servers.messages_api import says


@pytest.mark.parametrize(
    ("model", "used", "near"),
    [("haiku", 89_000, False), ("haiku", 90_000, True), ("sonnet", 90_000, False), ("no-such-model", 90_000, False)],
)
def test_a_turn_near_the_price_step_says_so(serve, model, used, near):
    usage = {"input_tokens": 1, "cache_read_input_tokens": used - 11, "output_tokens": 10}
    port, _ = serve(says("ok", usage=usage))
    turn = port.ask(ask(model=model))
    assert isinstance(turn, ModelTurn)
    assert turn.near_price_step is near
