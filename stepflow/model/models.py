"""The models and how a run reaches them: names and prices (from the package `genai-prices`), the service, its
address, and the credentials to use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepflow.domain.connection import DIRECT, Connection, ConnectionTo, address_problem, is_loopback
from stepflow.domain.conversation import ModelFault, Usage
from stepflow.domain.words import Provider
from stepflow.errors import InputError

if TYPE_CHECKING:
    # Loaded with the SDK, so that only runs with a real model pay for it.
    import httpx2


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


GUIDE = "docs/how-to/providers.md"
#: Variables with which a job requests an identity token. They are set only with the permission `id-token: write`.
TOKEN_URL, TOKEN_BEARER = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
#: A region, project or resource becomes part of the address, so it must not be able to redirect the request.
_PART_OF_A_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
#: Project ids within an organization have the form `domain:name`.
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentity:
    """The ids for Anthropic's workload identity federation."""

    federation_rule_id: str
    organization_id: str
    service_account_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelAccess:
    """The action's inputs of the group "model" that locate the model, and `login`: the related variables of the
    environment.

    If `base_url` is None, the service's own address is used.
    """

    provider: Provider = Provider.ANTHROPIC
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    identity: WorkloadIdentity | None = None
    login: Mapping[str, str] = field(default_factory=dict, repr=False)

    def given(self, *names: str) -> str:
        """Return the first of these variables that is set, with surrounding blanks removed; empty if none is set."""
        return next((value for name in names if (value := self.login.get(name, "").strip())), "")


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


@dataclass(frozen=True, kw_only=True)
class Login:
    """The credentials from the inputs and the environment, checked before the SDK is loaded."""

    address: str
    #: Builds the service from the arguments common to all of the SDK's clients, their HTTP client, and a function that
    #: returns the connection for any other address.
    open: Callable[[dict[str, Any], httpx2.Client, ConnectionTo], Service] = field(repr=False)
    #: Open the service at once, because more can be wrong with this login than with a key.
    opens_at_once: bool = True


def demand(provider: Provider, missing: Mapping[str, bool], *, hint: str) -> None:
    """Raise one `InputError` that names all missing keys of `missing`."""
    if lacking := [name for name, is_missing in missing.items() if is_missing]:
        raise InputError(f"Provider {provider} needs {_listed(lacking)}.", hint=f"{hint} See {GUIDE}.")


def demand_packages(provider: Provider, *modules: str) -> None:
    """Raise `InputError` if packages that only this provider needs are not installed."""
    if lacking := [module.replace(".", "-") for module in modules if not _is_installed(module)]:
        raise InputError(
            f"Provider {provider} needs Python packages that are not installed: {_listed(lacking)}.",
            hint="Use an image built with `--build-arg REQUIREMENTS="
            f"requirements-{provider}.txt`, or your own FROM ours; at a terminal: pip install 'anthropic[{provider}]'. "
            f"See {GUIDE}.",
        )


def check_name(provider: Provider, what: str, value: str, *, project: bool = False) -> str:
    """Return a name that becomes part of an address. Raise `InputError` if it is not a valid name."""
    if not (_PROJECT if project else _PART_OF_A_HOST).fullmatch(value):
        raise InputError(
            f"Provider {provider}: {what} is {value[:100]!r}, which is not a valid name.",
            hint=f"It has letters, digits and dashes only. See {GUIDE}.",
        )
    return value


def check_secret(what: str, value: str, *, hint: str) -> str:
    """Return a credential without surrounding blanks. Raise `InputError` if it cannot be sent in a header."""
    secret = value.strip()
    if not secret:
        raise InputError(f"{what} is empty.", hint=hint)
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise InputError(
            f"{what} contains characters that no key has.",
            hint="Store the key again, without spaces, line breaks or quotation marks around it.",
        )
    return secret


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_base_url(url: str) -> str:
    """Return the address if it is https, or http on the machine itself. Otherwise raise `InputError`."""
    if problem := address_problem(url, secret="the model key"):  # noqa: S106 - what it is called
        raise _refusal(url, problem)
    return url.strip().rstrip("/")


def is_private(url: str) -> bool:
    """Return whether traffic to the address cannot be read on the way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _refusal(url: str, problem: str) -> InputError:
    shown = url.rsplit("@", maxsplit=1)[-1]
    return InputError(
        f"The input `anthropic-base-url` ({shown!r}) cannot be used: {problem}.",
        hint="Give an address that begins with https://, or with http:// on this machine, and leave out /v1 "
        "(for Vertex keep it).",
    )
