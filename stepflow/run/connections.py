"""Whom a run talks to: the model's API and GitHub, at which addresses (action.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.domain.connection import address_problem, is_loopback
from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.access import ModelAccess
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.logins import address_of
from stepflow.run.inputs import BoundaryMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest


def open_anthropic(request: RunRequest) -> AnthropicModel:
    """The model of the inputs, on the way that leads there; close it at the end. Raises `InputError` where nothing
    logs in there."""
    access = model_access(request)
    if access.provider is Provider.ANTHROPIC and access.api_key is None and not access.identity:
        raise InputError(
            "There is no API key: the input anthropic-api-key is empty.",
            hint="Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}` (on the command line: set "
            "ANTHROPIC_API_KEY), log in without a key by the workload identity inputs, or run without a model with "
            "`provider: scripted`.",
        )
    return AnthropicModel(access=access, connection_to=request.proxy_config.connection_to)


def model_access(request: RunRequest) -> ModelAccess:
    """Where the model is and what logs in there, as far as it is given."""
    inputs = request.inputs
    key = inputs.anthropic_api_key
    return ModelAccess(
        provider=inputs.provider,
        api_key=key.get_secret_value() if key else None,
        base_url=inputs.anthropic_base_url,
        federation_rule_id=inputs.anthropic_federation_rule_id,
        organization_id=inputs.anthropic_organization_id,
        service_account_id=inputs.anthropic_service_account_id,
        login=request.login,
    )


def check_addresses(inputs: Inputs) -> None:
    """Raises `InputError` where a token would travel unencrypted, or to a server that it is not for."""
    api, server = inputs.github_api_url, inputs.github_server_url
    for name, url in (("github-api-url", api), ("github-server-url", server)):
        if problem := address_problem(url, secret="the token"):  # noqa: S106 - what it is called
            shown = url.rpartition("@")[2]
            raise InputError(f"{name} ({shown!r}) cannot be used: {problem}.", hint="Give an address with https://.")
    if not _are_one(_host(api), _host(server)):
        raise InputError(
            f"The input github-api-url leads to {_host(api)} and github-server-url to {_host(server)}: these are two "
            "servers.",
            hint="Set both, such as https://HOST/api/v3 and https://HOST, so that no token reaches a server that it is "
            "not for.",
        )


def describe_connections(request: RunRequest) -> Iterator[str]:
    """What the log shows of the ways that this run's calls will go."""
    inputs = request.inputs
    urls = [address_of(model_access(request))] if inputs.provider is not Provider.SCRIPTED else []
    if inputs.boundary is BoundaryMode.GITHUB or inputs.read_token is not None:
        urls += [inputs.github_api_url, inputs.github_server_url]
    yield from request.proxy_config.describe(urls)


def _are_one(api: str, server: str) -> bool:
    """The API is at the server's own name or below it, as `api.github.com` is; a tunnel ends on this machine."""
    return api in (server, f"api.{server}") or is_loopback(api) or is_loopback(server)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
