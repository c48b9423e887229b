"""Finds what logs a run in to its provider, before the SDK is loaded, and opens the service with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model import anthropic_api, bedrock, foundry, vertex
from stepflow.model.access import GUIDE, ModelAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.domain.connection import ConnectionTo
    from stepflow.model.access import Service

Login = (
    anthropic_api.KeyLogin | anthropic_api.IdentityLogin | bedrock.AwsLogin | vertex.GoogleLogin | foundry.FoundryLogin
)


#: What finds the login of a provider, and what says where its model is.
_PROVIDERS: Mapping[Provider, tuple[Callable[[ModelAccess], Login], Callable[[ModelAccess], str]]] = {
    Provider.ANTHROPIC: (anthropic_api.read_login, anthropic_api.address),
    Provider.BEDROCK: (bedrock.read_login, bedrock.address),
    Provider.VERTEX: (vertex.read_login, vertex.address),
    Provider.FOUNDRY: (foundry.read_login, foundry.address),
}


def find_login(access: ModelAccess) -> Login:
    """What the inputs and the environment give for this provider."""
    if access.identity and access.provider is not Provider.ANTHROPIC:
        raise InputError(
            f"The input anthropic-workload-identity logs in to the Anthropic API, not to provider {access.provider}.",
            hint=f"Leave them out, or leave `provider` out. See {GUIDE}.",
        )
    if access.provider is Provider.SCRIPTED:
        raise InputError("Provider scripted asks no service.", hint="Give it a `scenario`.")
    read_login, _ = _PROVIDERS[access.provider]
    return read_login(access)


def address_of(access: ModelAccess) -> str:
    """Where the model is, of an access that `find_login` took. No file is read, so what logs in may be away by now."""
    _, address = _PROVIDERS[access.provider]
    return address(access)


def open_service(login: Login, *, connection_to: ConnectionTo, timeouts: tuple[float, float]) -> Service:
    """The client for this login. `timeouts`: to connect, and of silence, in seconds."""
    from anthropic import Timeout  # noqa: PLC0415 - more than a second that only a real model should cost

    from stepflow.model.http_client import http_client  # noqa: PLC0415

    connection = connection_to(login.address)
    http = http_client(connection)
    connect, read = timeouts
    # `max_retries`: there is one policy, the flow's own (flow.md §10).
    shared: dict[str, Any] = {
        "base_url": login.address,
        "max_retries": 0,
        "timeout": Timeout(read, connect=connect),
        "open_telemetry": False,
        "http_client": http,
    }
    service = replace(login.open(shared, http, connection_to), where=login.address, connection=connection)
    # The SDK offers no way to say that ANTHROPIC_CUSTOM_HEADERS of the environment shall not count.
    service.client._custom_headers = {}
    return service
