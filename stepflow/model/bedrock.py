"""Claude on Amazon Bedrock."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.access import (
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


@dataclass(frozen=True, kw_only=True)
class AwsLogin:
    """A Bedrock API key, or the keys of an AWS identity that sign each request; one of the two is empty."""

    address: str
    region: str
    bearer: str = field(default="", repr=False)
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    def open(self, shared: dict[str, Any], http: httpx2.Client, connection_to: ConnectionTo) -> Service:
        """The service, asked with this login; `shared` are the arguments that all of the SDK's clients take."""
        import anthropic  # noqa: PLC0415 - more than a second that only a real model should cost

        # Loaded here: they are there only with the extra `bedrock`.
        import boto3  # noqa: PLC0415
        from botocore.eventstream import ParserError  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        keys = {
            "aws_access_key": self.access_key or None,
            "aws_secret_key": self.secret_key or None,
            "aws_session_token": self.session_token or None,
        }
        try:
            # What would spoil every signature, such as a profile that is not there, is known before a call.
            boto3.Session(region_name=self.region)
        except BotoCoreError as error:
            raise InputError(
                f"The AWS settings of this environment cannot be used: {error}.",
                hint="Correct AWS_PROFILE and AWS_CONFIG_FILE, or unset them.",
            ) from error
        credentials = {"api_key": self.bearer} if self.bearer else keys
        return Service(
            client=anthropic.AnthropicBedrock(aws_region=self.region, **credentials, **shared),
            provider=Provider.BEDROCK,
            hints=_HINTS,
            stream_type="application/vnd.amazon.eventstream",
            stumbles=(ParserError, ResponseParserError),
            secrets=lambda: tuple(filter(None, (self.bearer, self.access_key, self.secret_key, self.session_token))),
        )


def address(access: ModelAccess) -> str:
    """The base URL that was given, or the service's own."""
    return check_base_url(access.base_url or f"https://bedrock-runtime.{access.given(*_REGION_NAMES)}.amazonaws.com")


def read_login(access: ModelAccess) -> AwsLogin:
    """What the environment gives to log in with."""
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
    where = address(access)
    if bearer:
        return AwsLogin(address=where, region=region, bearer=check_secret("AWS_BEARER_TOKEN_BEDROCK", bearer, hint=""))
    keys = {name: check_secret(f"the AWS {name.replace('_', ' ')}", value, hint="") for name, value in keys.items()}
    return AwsLogin(address=where, region=region, session_token=access.given("AWS_SESSION_TOKEN"), **keys)
