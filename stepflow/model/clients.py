"""The SDK's clients, one for each service.

Takes: a login that was checked. Gives: a `Service`.
May touch: nothing yet; the clients ask when they are asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never, cast

import anthropic
from anthropic import Anthropic, Timeout

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.http_client import http_client
from stepflow.model.login_identity import IdentityCredentials
from stepflow.model.logins import AwsLogin, FoundryLogin, GoogleLogin, IdentityLogin, KeyLogin, Login
from stepflow.model.service import BEDROCK_HINTS, FOUNDRY_HINTS, IDENTITY_HINTS, VERTEX_HINTS, Service

if TYPE_CHECKING:
    import httpx2

    from stepflow.domain.way import Ways


def open_service(login: Login, *, ways: Ways, timeouts: tuple[float, float]) -> Service:
    """The client for this login. `timeouts`: to connect, and of silence, in seconds."""
    way = ways(login.address)
    http = http_client(way)
    connect, read = timeouts
    # `max_retries`: there is one policy, the flow's own (flow.md §10).
    shared: dict[str, Any] = {
        "base_url": login.address,
        "max_retries": 0,
        "timeout": Timeout(read, connect=connect),
        "open_telemetry": False,
        "http_client": http,
    }
    service = replace(_service(login, shared, http, ways), way=way)
    # The SDK offers no way to say that ANTHROPIC_CUSTOM_HEADERS of the environment shall not count.
    service.client._custom_headers = {}
    return service


def _service(login: Login, shared: dict[str, Any], http: httpx2.Client, ways: Ways) -> Service:
    match login:
        case KeyLogin():
            client = Anthropic(api_key=login.key, **shared)
            return Service(client=client, where=login.address, secrets=lambda: (login.key,))
        case IdentityLogin():
            credentials = IdentityCredentials(login, http, runner=http_client(ways(login.token_url)))
            return Service(
                client=Anthropic(credentials=credentials, **shared),
                where=login.address,
                hints=IDENTITY_HINTS,
                secrets=credentials.secrets,
            )
        case AwsLogin():
            return _bedrock(login, shared)
        case GoogleLogin():
            return _vertex(login, shared, http)
        case FoundryLogin():
            return _foundry(login, shared)
        case _:
            assert_never(login)


def _bedrock(login: AwsLogin, shared: dict[str, Any]) -> Service:
    # Loaded here: they are there only with the extra `bedrock`.
    import boto3  # noqa: PLC0415
    from botocore.eventstream import ParserError  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    keys = {
        "aws_access_key": login.access_key or None,
        "aws_secret_key": login.secret_key or None,
        "aws_session_token": login.session_token or None,
    }
    try:
        # What would spoil every signature, such as a profile that is not there, is known before a call.
        boto3.Session(region_name=login.region)
    except BotoCoreError as error:
        raise InputError(
            f"The AWS settings of this environment cannot be used: {error}.",
            hint="Correct AWS_PROFILE and AWS_CONFIG_FILE, or unset them.",
        ) from error
    credentials = {"api_key": login.bearer} if login.bearer else keys
    return Service(
        client=anthropic.AnthropicBedrock(aws_region=login.region, **credentials, **shared),
        where=login.address,
        provider=Provider.BEDROCK,
        hints=BEDROCK_HINTS,
        typed=False,
        stream_type="application/vnd.amazon.eventstream",
        stumbles=(ParserError, ResponseParserError),
        lists_models=False,
        secrets=lambda: tuple(filter(None, (login.bearer, login.access_key, login.secret_key, login.session_token))),
    )


def _vertex(login: GoogleLogin, shared: dict[str, Any], http: httpx2.Client) -> Service:
    place: dict[str, Any] = {"region": login.region, "project_id": login.project}
    if login.token:
        client = anthropic.AnthropicVertex(access_token=login.token, **place, **shared)
        own: dict[str, Any] = {"secrets": lambda: (login.token,)}
    else:
        # Loaded here: it is there only with the extra `vertex`.
        from stepflow.model.login_google import GoogleCredentials  # noqa: PLC0415

        google = GoogleCredentials(login.file, http)
        client = anthropic.AnthropicVertex(credentials=cast("Any", google), **place, **shared)
        own = {"secrets": google.secrets, "log_in": google.log_in}
    return Service(
        client=client,
        where=login.address,
        provider=Provider.VERTEX,
        hints=VERTEX_HINTS,
        typed=False,
        lists_models=False,
        **own,
    )


def _foundry(login: FoundryLogin, shared: dict[str, Any]) -> Service:
    # The SDK would take an ANTHROPIC_FOUNDRY_API_KEY of the environment for a key that was not given.
    client = anthropic.AnthropicFoundry(
        api_key=login.key, azure_ad_token_provider=(lambda: login.token) if login.token else None, **shared
    )
    return Service(
        client=client,
        where=login.address,
        provider=Provider.FOUNDRY,
        hints=FOUNDRY_HINTS,
        typed=False,
        lists_models=False,
        secrets=lambda: tuple(filter(None, (login.key, login.token))),
    )
