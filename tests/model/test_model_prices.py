"""Model names and prices against the packages that keep them."""

from __future__ import annotations

from typing import get_args

import pytest

from stepflow.domain.conversation import Usage
from stepflow.domain.words import MODEL_ALIASES, Provider
from stepflow.model.models import MODEL_IDS, is_priced, price_of, resolve_model

MILLION = 1_000_000


def test_every_alias_is_listed_by_the_pinned_sdk():
    from anthropic.types import Model

    listed = get_args(get_args(Model)[0])
    assert set(MODEL_IDS.values()) <= set(listed)


def test_every_alias_stands_for_the_newest_of_its_family():
    from anthropic.types import Model

    def version(model: str) -> list[int]:
        return [int(part) for part in model.split("-")[2:] if part.isdigit()]

    for alias, model in MODEL_IDS.items():
        versions = [other for other in get_args(get_args(Model)[0]) if other.startswith(f"claude-{alias}-")]
        assert version(model) == max(map(version, versions))


def test_an_alias_becomes_its_id_and_any_other_text_passes():
    assert resolve_model("opus") == "claude-opus-5-5"
    assert resolve_model("fable") == "claude-fable-5-2"
    assert resolve_model("fable", Provider.BEDROCK) == "global.anthropic.claude-fable-5-2"
    assert resolve_model("my-org/my-model") == "my-org/my-model"


def test_every_alias_has_an_id() -> None:
    assert set(MODEL_IDS) == set(MODEL_ALIASES)


@pytest.mark.parametrize("provider", [one for one in Provider if one is not Provider.SCRIPTED])
@pytest.mark.parametrize("alias", MODEL_IDS)
def test_every_alias_is_priced_with_every_provider(alias, provider):
    """Before a run that is taken for granted, and the price data is not looked into."""
    assert price_of(alias, Usage(input_tokens=1, output_tokens=1), provider) is not None
    assert is_priced(alias, provider)


def test_an_unknown_model_has_no_price():
    assert price_of("llama-local", Usage(input_tokens=10)) is None
    assert not is_priced("llama-local")


def test_cached_tokens_are_charged_once_and_at_their_own_price():
    def dollars(**tokens: int) -> float:
        return price_of("sonnet", Usage(**tokens))

    plain, written, read = (
        dollars(input_tokens=MILLION // 10),
        dollars(cache_write_tokens=MILLION // 10),
        dollars(cache_read_tokens=MILLION // 10),
    )
    assert read < plain < written
    together = dollars(input_tokens=MILLION // 10, cache_write_tokens=MILLION // 10, cache_read_tokens=MILLION // 10)
    assert together == pytest.approx(plain + written + read)
