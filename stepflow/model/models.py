"""Names of models and what a turn of each costs, from the price data of the package `genai-prices`."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from stepflow.domain.conversation import ModelFault, Usage
from stepflow.domain.words import Provider

#: The newest of each family that the pinned `anthropic` package lists (flow.md §13); a test holds the two together.
MODEL_IDS = MappingProxyType(
    {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
        "fable": "claude-fable-5-2",
    }
)

#: The most tokens of one answer, thinking included, where nobody says it.
DEFAULT_MAX_TOKENS = 32_000


def resolve_model(name: str, provider: Provider = Provider.ANTHROPIC) -> str:
    """The id behind an alias; any other text is passed on as an id (flow.md §13).

    Vertex and Foundry take the ids of the Anthropic API. On Bedrock the models of the aliases are reached through the
    inference profile of all regions, whose id the price list names too; any other id is for the caller to write.
    """
    known = MODEL_IDS.get(name, name)
    if provider is Provider.BEDROCK and known in MODEL_IDS.values():
        return f"global.anthropic.{known}"
    return known


@dataclass(frozen=True, kw_only=True)
class UnlistedModel(ModelFault):
    """The service has no entries of models at all: servers that only speak the Messages API need none."""


#: Whose list names a provider's prices: one model may cost more in one place than in another.
_LISTS = MappingProxyType(
    {
        Provider.ANTHROPIC: "anthropic",
        Provider.BEDROCK: "aws",
        Provider.VERTEX: "google",
        Provider.FOUNDRY: "azure",
    }
)


def price_of(model: str, usage: Usage, provider: Provider = Provider.ANTHROPIC) -> float | None:
    """The price of a turn in US dollars; None when the model's price is unknown."""
    # Loaded here: a third of a second that only a run with a real model should pay.
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    # There `input_tokens` is everything sent, the cached tokens included; the API's own figure leaves them out.
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


#: So many tokens stand for a conversation; the kinds of them are compared.
_SAMPLE = 1_000


def pays_to_renew(model: str, renewals: int, provider: Provider = Provider.ANTHROPIC) -> bool:
    """Whether so many renewals of what is cached, and reading it then, cost less than writing it anew."""
    read = price_of(model, Usage(cache_read_tokens=_SAMPLE), provider)
    written = price_of(model, Usage(cache_write_tokens=_SAMPLE), provider)
    return read is not None and written is not None and (renewals + 1) * read < written


def find_price_step(model: str, provider: Provider = Provider.ANTHROPIC) -> int | None:
    """The length of a request, in tokens, from which the service charges more for it; None without one."""
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    try:
        found = calc_price(Tokens(input_tokens=1), model, provider_id=_LISTS[provider])
    except (LookupError, ValueError):
        return None
    tiers = getattr(found.model_price.input_mtok, "tiers", ())
    return min((tier.start for tier in tiers), default=None)


def is_priced(model: str, provider: Provider = Provider.ANTHROPIC) -> bool:
    """Whether a budget in dollars can be kept with this model."""
    if MODEL_IDS.get(model, model) in MODEL_IDS.values() and provider in _LISTS:
        # A test holds that each of them has a price with every provider: the price data can wait for the first turn.
        return True
    return price_of(model, Usage(input_tokens=1, output_tokens=1), provider) is not None
