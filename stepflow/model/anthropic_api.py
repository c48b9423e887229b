"""The Anthropic API, or a server that speaks it: logged in to with a key, or with the identity of the job."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepflow.errors import InputError
from stepflow.model.access import (
    GUIDE,
    TOKEN_BEARER,
    TOKEN_URL,
    Login,
    ModelAccess,
    Service,
    WorkloadIdentity,
    check_base_url,
    check_secret,
    is_private,
)

if TYPE_CHECKING:
    import httpx2

    from stepflow.domain.connection import ConnectionTo

ANTHROPIC_URL = "https://api.anthropic.com"
_NO_KEY = "Give it a secret of the repository, or use `provider: scripted` with a `scenario`."
_HINTS = MappingProxyType(
    {
        401: "The token that the federation rule gave was not taken: check the rule and its service account.",
        403: "The service account of the federation rule may not use this model or workspace: change its rights, or "
        "give another `model`.",
    }
)


def read_login(access: ModelAccess) -> Login:
    """What the inputs and the environment give to log in with."""
    return _identity(access, access.identity) if access.identity else _key(access)


def address(access: ModelAccess) -> str:
    """The base URL that was given, or the service's own."""
    return check_base_url(access.base_url or ANTHROPIC_URL)


def _key(access: ModelAccess) -> Login:
    """An API key, as every server that speaks the Messages API takes it."""
    key = check_secret("The input `anthropic-api-key`", access.api_key or "", hint=_NO_KEY)

    def open_service(shared: dict[str, Any], _http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        from anthropic import Anthropic  # noqa: PLC0415 - more than a second that only a real model should cost

        return Service(client=Anthropic(api_key=key, **shared), secrets=lambda: (key,))

    return Login(address=address(access), open=open_service, opens_at_once=False)


def _identity(access: ModelAccess, identity: WorkloadIdentity) -> Login:
    """The identity of the job, for which Anthropic's workload identity federation gives a token."""
    if access.api_key:
        raise InputError(
            "Both anthropic-api-key and anthropic-workload-identity are given, and only one of them can log in.",
            hint="Leave the key out; that the job needs none is what the workload identity is for.",
        )
    url, bearer = access.given(TOKEN_URL), access.given(TOKEN_BEARER)
    if not url or not bearer:
        raise InputError(
            f"The job has no identity of its own: {TOKEN_BEARER if url else TOKEN_URL} is not set.",
            hint="Give the job the permission `id-token: write` (`permissions:` of the job); a run for a pull request "
            f"from a fork does not get it. See {GUIDE}.",
        )
    if not is_private(url):
        raise InputError(f"{TOKEN_URL} is no https address.", hint="Only the runner sets it; no step may change it.")
    bearer, where = check_secret(TOKEN_BEARER, bearer, hint=""), address(access)
    ids = {**vars(identity), "workspace_id": access.given("ANTHROPIC_WORKSPACE_ID") or None}

    def open_service(shared: dict[str, Any], http: httpx2.Client, connection_to: ConnectionTo) -> Service:
        from anthropic import Anthropic  # noqa: PLC0415

        from stepflow.model.http_client import http_client  # noqa: PLC0415
        from stepflow.model.identity_credentials import IdentityCredentials  # noqa: PLC0415

        runner = http_client(connection_to(url))
        credentials = IdentityCredentials(url, bearer, runner=runner, address=where, http=http, ids=ids)
        return Service(client=Anthropic(credentials=credentials, **shared), hints=_HINTS, secrets=credentials.secrets)

    return Login(address=where, open=open_service)
