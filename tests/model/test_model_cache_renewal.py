"""A request without an answer keeps what the service has cached."""

from __future__ import annotations

import pytest

from stepflow.domain.conversation import ModelFault, ModelTurn, ToolSpec, Usage
from stepflow.domain.words import Provider, Strategy
from stepflow.model.models import pays_to_renew
from tests.model.asking import ask
from tests.servers.messages_api import says

READ = ToolSpec(name="read", description="Read a file.", input_schema={"type": "object", "properties": {}})
SCHEMA = {
    "type": "object",
    "properties": {"intent": {"type": "string"}},
    "required": ["intent"],
    "additionalProperties": False,
}


@pytest.mark.whole
@pytest.mark.parametrize("window", [None, 100_000])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_it_sends_the_same_beginning_and_takes_no_answer(serve, strategy: Strategy, window: int | None):
    now = 0.0
    model, api = serve(says("Done."), says("Done."), window=window, now=lambda: now)
    request = ask("x" * 8_000, schema=SCHEMA, strategy=strategy, effort="high", tools=(READ,))
    written = model.ask(request)
    now = 240.0
    renewed = model.renew(request, 1)
    now = 480.0
    read = model.ask(request)
    assert isinstance(renewed, ModelTurn), renewed
    assert renewed.content == ()
    assert renewed.usage.cache_read_tokens == renewed.usage.tokens_in == written.usage.cache_write_tokens
    assert read.usage.cache_write_tokens == 0, "without the renewal it would be written again"
    assert 0 < renewed.cost_usd < 0.1 * written.cost_usd
    first, second, _ = api.bodies
    # The service refuses 0 where an answer has to have a form.
    assert second.pop("max_tokens") == (1 if strategy is Strategy.NATIVE else 0)
    assert not second.pop("stream", False)
    assert second == {name: part for name, part in first.items() if name not in {"max_tokens", "stream"}}
    headers = [each.headers.get("anthropic-beta") for each in api.requests if each.method == "POST"]
    assert len(set(headers)) == 1


def test_it_is_made_as_long_as_it_costs_less_than_writing_anew(serve):
    model, api = serve()
    assert isinstance(model.renew(ask(), 23), ModelTurn)
    assert model.renew(ask(), 24) is None
    assert model.renew(ask(model="llama-local"), 1) is None
    assert len(api.bodies) == 1


def test_the_price_list_says_how_often_it_pays():
    def most(model: str, provider: Provider = Provider.ANTHROPIC) -> int:
        return sum(pays_to_renew(model, renewals, provider) for renewals in range(1, 100))

    assert {model: most(model) for model in ("opus", "sonnet", "haiku")} == {"opus": 23, "sonnet": 23, "haiku": 11}
    assert most("llama-local") == 0


def test_a_service_that_takes_no_breakpoints_is_not_asked(serve):
    model, api = serve(says("Done."), unknown_fields=frozenset({"cache_control"}))
    assert isinstance(model.ask(ask()), ModelFault)
    assert isinstance(model.ask(ask()), ModelTurn)
    assert model.renew(ask(), 1) is None
    assert len(api.bodies) == 2


def test_a_refusal_of_it_is_a_fault_that_costs_nothing(serve):
    model, api = serve()
    api.models = frozenset()
    fault = model.renew(ask(), 1)
    assert isinstance(fault, ModelFault)
    assert fault.usage == Usage()
    assert isinstance(model.renew(ask(), 1), ModelFault), "nothing is remembered of it"
