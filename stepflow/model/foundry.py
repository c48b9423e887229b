"""Claude on Microsoft Foundry."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepflow.domain.words import Provider
from stepflow.model.access import (
    Login,
    ModelAccess,
    Service,
    check_base_url,
    check_name,
    check_secret,
    demand,
)

if TYPE_CHECKING:
    import httpx2

    from stepflow.domain.connection import ConnectionTo

_LOGIN_HINT = "Set the variables in the step's `env:`."
_HINTS = MappingProxyType(
    {
        401: "Check ANTHROPIC_FOUNDRY_API_KEY, or ANTHROPIC_FOUNDRY_AUTH_TOKEN, whose token lasts about an hour.",
        403: "Check that the key or the Entra identity may use this Foundry resource.",
        404: "Check the input `model` and the step's `model`: Foundry takes the name of the deployment.",
        429: "Let fewer runs work at once, or raise the limit of the deployment.",
    }
)


def address(access: ModelAccess) -> str:
    """The base URL that was given, or the service's own."""
    return check_base_url(
        access.base_url or f"https://{access.given('ANTHROPIC_FOUNDRY_RESOURCE')}.services.ai.azure.com/anthropic"
    )


def read_login(access: ModelAccess) -> Login:
    """A key of the resource, or a token of Entra ID."""
    resource = access.given("ANTHROPIC_FOUNDRY_RESOURCE")
    key, token = access.given("ANTHROPIC_FOUNDRY_API_KEY"), access.given("ANTHROPIC_FOUNDRY_AUTH_TOKEN")
    missing = {
        "a resource (ANTHROPIC_FOUNDRY_RESOURCE, or its address in anthropic-base-url)": not resource
        and not access.base_url,
        "credentials (ANTHROPIC_FOUNDRY_API_KEY or ANTHROPIC_FOUNDRY_AUTH_TOKEN)": not key and not token,
    }
    demand(access.provider, missing, hint=_LOGIN_HINT)
    if resource and not access.base_url:
        check_name(access.provider, "ANTHROPIC_FOUNDRY_RESOURCE", resource)
    name = "ANTHROPIC_FOUNDRY_AUTH_TOKEN" if token else "ANTHROPIC_FOUNDRY_API_KEY"
    secret = check_secret(name, token or key, hint="")

    def open_service(shared: dict[str, Any], _http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        import anthropic  # noqa: PLC0415 - more than a second that only a real model should cost

        # The SDK would take an ANTHROPIC_FOUNDRY_API_KEY of the environment for a key that was not given.
        given = {"api_key": "", "azure_ad_token_provider": lambda: secret} if token else {"api_key": secret}
        client = anthropic.AnthropicFoundry(**given, **shared)
        return Service(client=client, provider=Provider.FOUNDRY, hints=_HINTS, secrets=lambda: (secret,))

    return Login(address=address(access), open=open_service)
