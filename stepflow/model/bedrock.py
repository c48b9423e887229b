"""Claude on Amazon Bedrock."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.access import (
    Login,
    ModelAccess,
    Service,
    check_base_url,
    check_name,
    check_secret,
    demand,
    demand_packages,
)

if TYPE_CHECKING:
    import httpx2

    from stepflow.domain.connection import ConnectionTo

_LOGIN_HINT = (
    "Log in with a step of aws-actions/configure-aws-credentials before this one, or set the variables in the step's "
    "`env:`."
)
_REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HINTS = MappingProxyType(
    {
        400: "Bedrock cannot take this request; its message names the part. Newer models are reached only through an "
        "inference profile: check that `model` begins with `global.` or with your region's prefix, such as `us.`.",
        401: "Check the AWS credentials of the job: they must be valid and not expired.",
        403: "Check that the AWS credentials of the job are valid and not expired (the session of a role lasts an hour "
        "unless `role-duration-seconds` says otherwise), that they allow `bedrock:InvokeModelWithResponseStream`, and "
        "that the account has access to the model.",
        404: "Check the input `model`, the step's `model` and AWS_REGION: not every model is served in every region.",
        422: "Bedrock does not know a part of the request: check `model`.",
        424: "The model broke off; start the run again.",
        429: "Let fewer runs work at once, or ask AWS for a higher quota for this model.",
    }
)


def address(access: ModelAccess) -> str:
    """The base URL that was given, or the service's own."""
    return check_base_url(access.base_url or f"https://bedrock-runtime.{access.given(*_REGION_NAMES)}.amazonaws.com")


def read_login(access: ModelAccess) -> Login:
    """A Bedrock API key, or the keys of an AWS identity that sign each request."""
    demand_packages(access.provider, "boto3", "botocore")
    region = access.given(*_REGION_NAMES)
    bearer = access.given("AWS_BEARER_TOKEN_BEDROCK")
    keys = {"access_key": access.given("AWS_ACCESS_KEY_ID"), "secret_key": access.given("AWS_SECRET_ACCESS_KEY")}
    lone = [name for name, value in keys.items() if value]
    missing = {
        "a region (AWS_REGION)": not region,
        "credentials (AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK)": not bearer
        and not any(keys.values()),
        "AWS_ACCESS_KEY_ID beside AWS_SECRET_ACCESS_KEY": not bearer and lone == ["secret_key"],
        "AWS_SECRET_ACCESS_KEY beside AWS_ACCESS_KEY_ID": not bearer and lone == ["access_key"],
    }
    demand(access.provider, missing, hint=_LOGIN_HINT)
    check_name(access.provider, "AWS_REGION", region)
    if bearer:
        credentials: dict[str, Any] = {"api_key": check_secret("AWS_BEARER_TOKEN_BEDROCK", bearer, hint="")}
    else:
        credentials = {
            f"aws_{name}": check_secret(f"the AWS {name.replace('_', ' ')}", key, hint="") for name, key in keys.items()
        }
        if session_token := access.given("AWS_SESSION_TOKEN"):
            credentials["aws_session_token"] = session_token

    def open_service(shared: dict[str, Any], _http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        import anthropic  # noqa: PLC0415 - more than a second that only a real model should cost

        # Loaded here: they are there only with the extra `bedrock`.
        import boto3  # noqa: PLC0415
        from botocore.eventstream import ParserError  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        try:
            # What would spoil every signature, such as a profile that is not there, is known before a call.
            boto3.Session(region_name=region)
        except BotoCoreError as error:
            raise InputError(
                f"The AWS settings of this environment cannot be used: {error}.",
                hint="Correct AWS_PROFILE and AWS_CONFIG_FILE, or unset them.",
            ) from error
        return Service(
            client=anthropic.AnthropicBedrock(aws_region=region, **credentials, **shared),
            provider=Provider.BEDROCK,
            hints=_HINTS,
            stream_type="application/vnd.amazon.eventstream",
            stumbles=(ParserError, ResponseParserError),
            secrets=lambda: tuple(credentials.values()),
        )

    return Login(address=address(access), open=open_service)
