"""What a turn costs, from the price data that the package `genai-prices` keeps.

Takes: a model and the tokens of a turn. Gives: US dollars, or None where no price is known.
May touch: nothing: the data is part of the package, and its updates over the network are never started.
"""

from __future__ import annotations

from types import MappingProxyType

from stepflow.domain.conversation import Usage
from stepflow.domain.words import Provider
from stepflow.model.models import MODEL_ALIASES, resolve_model

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


def is_priced(model: str, provider: Provider = Provider.ANTHROPIC) -> bool:
    """Whether a budget in dollars can be kept with this model (action.md, `budget-tokens`)."""
    if MODEL_ALIASES.get(model, model) in MODEL_ALIASES.values() and provider in _LISTS:
        # A test holds that each of them has a price with every provider: the price data can wait for the first turn.
        return True
    return price_of(model, Usage(input_tokens=1, output_tokens=1), provider) is not None
