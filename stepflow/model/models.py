"""The models and their services: names, prices, which come from the package `genai-prices`, the client of a service,
and what to do when it refuses a request, by the HTTP status and the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.conversation import ModelFault, Remedy, Usage
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
def find_price_step(model: str) -> int | None:
    """Return the length of a request, in tokens, from which the service charges more for it; None without one."""
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    try:
        found = calc_price(Tokens(input_tokens=1), model, provider_id=_LISTS[Provider.ANTHROPIC])
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


@dataclass(frozen=True, kw_only=True)
class Service:
    """A model service and the client to call it with."""

    #: One of the SDK's clients, with its retries disabled.
    client: Any
    #: The address, for messages.
    where: str = ""
    #: How to reach the service.
    connection: Connection = DIRECT
    provider: Provider = Provider.ANTHROPIC
    #: What a person should change, by HTTP status, if that differs from a key of the Anthropic API.
    hints: Mapping[int, str] = field(default_factory=dict)
    #: The content type of a streamed answer.
    stream_type: str = "text/event-stream"
    #: Exceptions, besides those of JSON, from reading a broken stream.
    stumbles: tuple[type[Exception], ...] = ()
    #: Gets or renews the credentials; raises `LoginFailed`.
    log_in: Callable[[], None] = field(default=lambda: None)
    #: Returns the current secrets, to be kept out of messages.
    secrets: Callable[[], tuple[str, ...]] = field(default=tuple)

    @property
    def is_anthropic(self) -> bool:
        """Return whether this is the Anthropic API. Only it names error types and has model entries."""
        return self.provider is Provider.ANTHROPIC


#: 409 is a lock held by another client. The SDK retries all of these.
_TIMED_OUT, _CONFLICT, _RATE_LIMITED, _SERVER_ERRORS = 408, 409, 429, 500
_TOO_LARGE = 413

_PAY = "Add credit, or raise the spend limit, of the account that the key belongs to."
_TOO_LONG = "Let the step read less, split it into two steps, or choose a `model` with a larger context window."
_DOWN = "Look at the status page of the service; start the run again when it works."

#: What to change, by status; the texts name inputs of the action.
HINTS = MappingProxyType(
    {
        400: "The service cannot take this request; its message names the part. Check the step's schema and `model`.",
        401: "Check the secret behind the input `anthropic-api-key`: it must be a valid key of this service.",
        402: _PAY,
        403: "The key may not use this model or service: give another `anthropic-api-key` or another `model`.",
        404: "Check the input `model`, the step's `model` and `model.base-url` (it must not end in /v1).",
        413: "The conversation is too large for one request: let the step read less, or split it into two steps.",
        422: "The service does not know a part of the request: check `model.base-url` and `model`.",
        429: "Run fewer agents at once, or raise the rate limit of the account that the key belongs to.",
    }
)

#: Phrases that are more specific than the status.
_OVERFLOW_WORDS = ("prompt is too long", "context window", "context limit", "context length", "context size")
#: The API's message about a thinking block whose context has changed ("Preserved thinking").
_BOUND_ELSEWHERE = "bound to a different conversation"
_HINTS_OF_WORDS = (
    (_OVERFLOW_WORDS, _TOO_LONG),
    (("credit balance", "billing", "purchase credits", "spend limit", "usage limit", "insufficient_quota"), _PAY),
    (("has been disabled",), "Ask the service why the account is disabled, or give the key of another account."),
)


def is_transient_status(status: int) -> bool:
    """Return whether the call may be retried: rate limit, conflict, overload, server error (flow.md §10)."""
    return status in (_TIMED_OUT, _CONFLICT, _RATE_LIMITED) or status >= _SERVER_ERRORS


def is_overflow(status: int, said: str) -> bool:
    """Return whether the conversation does not fit the model. A shorter one may."""
    return status == _TOO_LARGE or (
        not is_transient_status(status) and any(words in said.lower() for words in _OVERFLOW_WORDS)
    )


def find_remedy(status: int, said: str) -> Remedy | None:
    """Return what to change in the request after a refusal, as far as its message tells."""
    if is_overflow(status, said):
        return Remedy.SHORTEN
    return Remedy.DROP_THINKING if _BOUND_ELSEWHERE in said else None


def hint_for(status: int, said: str, own: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return what a person should change. The message takes precedence over the status. `own` holds the service's own
    hints by status."""
    lower = said.lower()
    hint = next((hint for words, hint in _HINTS_OF_WORDS if any(word in lower for word in words)), "")
    return hint or own.get(status) or HINTS.get(status, _DOWN if is_transient_status(status) else HINTS[400])
