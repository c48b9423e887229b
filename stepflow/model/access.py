"""How a run reaches its model: which service, where it is, and what logs the run in there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepflow.domain.connection import DIRECT, Connection, ConnectionTo, address_problem, is_loopback
from stepflow.domain.words import Provider
from stepflow.errors import InputError

if TYPE_CHECKING:
    # Loaded with the SDK, which only a real model should cost.
    import httpx2

GUIDE = "docs/how-to/providers.md"
#: The job's variables by which it gets an identity token; there only with the permission `id-token: write`.
TOKEN_URL, TOKEN_BEARER = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
#: A region, a project or a resource becomes part of the address, so it must not be able to lead elsewhere.
_PART_OF_A_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
#: Projects of organizations are `domain:name`.
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentity:
    """The ids of Anthropic's workload identity federation."""

    federation_rule_id: str
    organization_id: str
    service_account_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelAccess:
    """The inputs of the group "model" that say where the model is, and `login`: what the environment holds for it.

    `base_url` None: the service's own address.
    """

    provider: Provider = Provider.ANTHROPIC
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    identity: WorkloadIdentity | None = None
    login: Mapping[str, str] = field(default_factory=dict, repr=False)

    def given(self, *names: str) -> str:
        """The first of these variables that is set, without the blanks around it; empty when none is."""
        return next((value for name in names if (value := self.login.get(name, "").strip())), "")


@dataclass(frozen=True, kw_only=True)
class Service:
    """`client` is one of the SDK's, with its retries off; `where` is its address, for messages.

    `connection` leads there. `hints`: what a person should change, by HTTP status, where that differs from a key of the
    Anthropic API. `stream_type`: the content type of a streamed answer; `stumbles`: what reading a broken one raises,
    beside what JSON raises. `log_in` gets or renews the credentials and raises `LoginFailed`. `secrets` gives what no
    message may hold, as it is now.
    """

    client: Any
    where: str = ""
    connection: Connection = DIRECT
    provider: Provider = Provider.ANTHROPIC
    hints: Mapping[int, str] = field(default_factory=dict)
    stream_type: str = "text/event-stream"
    stumbles: tuple[type[Exception], ...] = ()
    log_in: Callable[[], None] = field(default=lambda: None)
    secrets: Callable[[], tuple[str, ...]] = field(default=tuple)

    @property
    def is_anthropic(self) -> bool:
        """Whether errors name their type and models have entries; only the Anthropic API's do."""
        return self.provider is Provider.ANTHROPIC


@dataclass(frozen=True, kw_only=True)
class Login:
    """What the inputs and the environment give to log in with, checked before the SDK is loaded.

    `open` gives the service, asked with this login: from the arguments that all of the SDK's clients take, their HTTP
    client, and what knows the way to any other address. `opens_at_once`: more can be wrong with it than with a key.
    """

    address: str
    open: Callable[[dict[str, Any], httpx2.Client, ConnectionTo], Service] = field(repr=False)
    opens_at_once: bool = True


def demand(provider: Provider, missing: Mapping[str, bool], *, hint: str) -> None:
    """Raises `InputError` that names everything that is missing, in the words of the keys, at once."""
    if lacking := [name for name, is_missing in missing.items() if is_missing]:
        raise InputError(f"Provider {provider} needs {_listed(lacking)}.", hint=f"{hint} See {GUIDE}.")


def demand_packages(provider: Provider, *modules: str) -> None:
    """Raises `InputError` when the packages that only this provider needs are not installed."""
    if lacking := [module.replace(".", "-") for module in modules if not _is_installed(module)]:
        raise InputError(
            f"Provider {provider} needs Python packages that are not installed: {_listed(lacking)}.",
            hint="Use an image built with `--build-arg REQUIREMENTS="
            f"requirements-{provider}.txt`, or your own FROM ours; at a terminal: pip install 'anthropic[{provider}]'. "
            f"See {GUIDE}.",
        )


def check_name(provider: Provider, what: str, value: str, *, project: bool = False) -> str:
    """A name that becomes part of an address, or an `InputError` that says what of it cannot be one."""
    if not (_PROJECT if project else _PART_OF_A_HOST).fullmatch(value):
        raise InputError(
            f"Provider {provider}: {what} is {value[:100]!r}, which is no such name.",
            hint=f"It has letters, digits and dashes only. See {GUIDE}.",
        )
    return value


def check_secret(what: str, value: str, *, hint: str) -> str:
    """A credential that can stand in a header, without the blanks around it, or an `InputError`."""
    secret = value.strip()
    if not secret:
        raise InputError(f"{what} is empty.", hint=hint)
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise InputError(
            f"{what} holds characters that no key has.",
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
    """The address, if it is https, or http on the machine itself."""
    if problem := address_problem(url, secret="the model key"):  # noqa: S106 - what it is called
        raise _refusal(url, problem)
    return url.strip().rstrip("/")


def is_private(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
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
