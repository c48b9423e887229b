"""The models: their names and prices, which come from the package `genai-prices`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from stepflow.domain.conversation import ModelFault, Usage
from stepflow.domain.words import Provider

#: What people read about the models and the logins of each provider.
GUIDE = "docs/how-to/providers.md"
#: The newest model of each family that the pinned `anthropic` package lists (flow.md §13). A test compares the two.
MODEL_IDS = MappingProxyType(
    {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
        "fable": "claude-fable-5-2",
    }
)

#: The default limit for the tokens of one answer, including thinking.
DEFAULT_MAX_TOKENS = 32_000


def resolve_model(name: str, provider: Provider = Provider.ANTHROPIC) -> str:
    """Return the id for an alias; any other text is passed on as an id (flow.md §13).

    Vertex and Foundry use the ids of the Anthropic API. On Bedrock, an alias resolves to the inference profile for all
    regions, whose id also appears in the price list. Any other Bedrock id must be written out by the caller.
    """
    known = MODEL_IDS.get(name, name)
    if provider is Provider.BEDROCK and known in MODEL_IDS.values():
        return f"global.anthropic.{known}"
    return known


@dataclass(frozen=True, kw_only=True)
class UnlistedModel(ModelFault):
    """The service has no model entries at all. Servers that only speak the Messages API need none."""


#: The price list to use for each provider: the price of a model may differ between providers.
_LISTS = MappingProxyType(
    {
        Provider.ANTHROPIC: "anthropic",
        Provider.BEDROCK: "aws",
        Provider.VERTEX: "google",
        Provider.FOUNDRY: "azure",
    }
)


def price_of(model: str, usage: Usage, provider: Provider = Provider.ANTHROPIC) -> float | None:
    """Return the price of a turn in US dollars; None if the model's price is unknown."""
    # Loaded here: takes a third of a second, and only a run with a real model needs it.
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    # In genai-prices, `input_tokens` includes cached tokens; in the API it does not.
    tokens = Tokens(
        input_tokens=usage.tokens_in,
        output_tokens=usage.output_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_read_tokens=usage.cache_read_tokens,
    )
    try:
        return float(calc_price(tokens, resolve_model(model, provider), provider_id=_LISTS[provider]).total_price)
    except (LookupError, ValueError):
        return None


#: Sample size of a conversation in tokens, to compare the prices of the kinds of tokens.
_SAMPLE = 1_000


def pays_to_renew(model: str, renewals: int, provider: Provider = Provider.ANTHROPIC) -> bool:
    """Return whether this many renewals of the cache, followed by a read, cost less than writing the cache again."""
    read = price_of(model, Usage(cache_read_tokens=_SAMPLE), provider)
    written = price_of(model, Usage(cache_write_tokens=_SAMPLE), provider)
    return read is not None and written is not None and (renewals + 1) * read < written


@cache
def find_price_step(model: str, provider: Provider = Provider.ANTHROPIC) -> int | None:
    """Return the length of a request, in tokens, from which the service charges more for it; None without one."""
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    try:
        found = calc_price(Tokens(input_tokens=1), model, provider_id=_LISTS[provider])
    except (LookupError, ValueError):
        return None
    tiers = getattr(found.model_price.input_mtok, "tiers", ())
    return min((tier.start for tier in tiers), default=None)


def is_priced(model: str, provider: Provider = Provider.ANTHROPIC) -> bool:
    """Return whether a budget in dollars can be enforced with this model."""
    if MODEL_IDS.get(model, model) in MODEL_IDS.values() and provider in _LISTS:
        # A test ensures that each of these has a price with every provider, so the price data can wait for the first
        # turn.
        return True
    return price_of(model, Usage(input_tokens=1, output_tokens=1), provider) is not None
