"""What logs a run in to its model's service, checked before the SDK is loaded or anything is asked.

Takes: `ModelAccess`. Gives: one of the `…Login`s, or an `InputError` that names everything that is missing.
May touch: the file that GOOGLE_APPLICATION_CREDENTIALS names, to read it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.access import (
    ANTHROPIC_URL,
    GUIDE,
    TOKEN_BEARER,
    TOKEN_URL,
    ModelAccess,
    check_base_url,
    check_name,
    check_secret,
    demand,
    demand_packages,
    is_private,
    vertex_url,
)

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject

_NO_KEY = "Give it a secret of the repository, or use `provider: scripted` with a `scenario`."
_AWS = (
    "Log in with a step of aws-actions/configure-aws-credentials before this one, or set the variables in the step's "
    "`env:`."
)
_GOOGLE = "Log in with a step of google-github-actions/auth before this one, or set the variables in the step's `env:`."
_FOUNDRY = "Set the variables in the step's `env:`."
#: What the environment calls the Google project: the SDK's own name first, then those that login actions set.
_PROJECT_NAMES = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
_REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TOKEN_NAMES = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN")


@dataclass(frozen=True, kw_only=True)
class KeyLogin:
    """An API key, as every server that speaks the Messages API takes it."""

    address: str
    key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class IdentityLogin:
    """The identity of the job, for which Anthropic's workload identity federation gives a token."""

    address: str
    rule: str
    organization: str
    service_account: str | None
    workspace: str | None
    token_url: str = field(repr=False)
    token_bearer: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class AwsLogin:
    """A Bedrock API key, or the keys of an AWS identity that sign each request; one of the two is empty."""

    address: str
    region: str
    bearer: str = field(default="", repr=False)
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class GoogleLogin:
    """An access token, or the content of a credentials file that gives tokens; one of the two is empty."""

    address: str
    region: str
    project: str
    token: str = field(default="", repr=False)
    file: JsonObject = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class FoundryLogin:
    """A key of the resource, or a token of Entra ID; one of the two is empty."""

    address: str
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


Login = KeyLogin | IdentityLogin | AwsLogin | GoogleLogin | FoundryLogin


def find_login(access: ModelAccess) -> Login:
    """What the inputs and the environment give for this provider."""
    if access.identity and access.provider is not Provider.ANTHROPIC:
        raise InputError(
            f"{', '.join(access.identity)} log in to the Anthropic API, not to provider {access.provider}.",
            hint=f"Leave them out, or leave `provider` out. See {GUIDE}.",
        )
    match access.provider:
        case Provider.ANTHROPIC:
            return _identity(access) if access.identity else _key(access)
        case Provider.BEDROCK:
            return _aws(access)
        case Provider.VERTEX:
            return _google(access)
        case Provider.FOUNDRY:
            return _foundry(access)
        case Provider.SCRIPTED:
            raise InputError("Provider scripted asks no service.", hint="Give it a `scenario`.")
        case provider:
            assert_never(provider)


def address_of(access: ModelAccess) -> str:
    """Where the model is, of an access that `find_login` took. No file is read, so what logs in may be away by now."""
    return check_base_url(access.base_url or _own_address(access))


def _own_address(access: ModelAccess) -> str:
    match access.provider:
        case Provider.BEDROCK:
            return f"https://bedrock-runtime.{access.given(*_REGION_NAMES)}.amazonaws.com"
        case Provider.VERTEX:
            return vertex_url(access.given("CLOUD_ML_REGION"))
        case Provider.FOUNDRY:
            return f"https://{access.given('ANTHROPIC_FOUNDRY_RESOURCE')}.services.ai.azure.com/anthropic"
        case _:
            return ANTHROPIC_URL


def _key(access: ModelAccess) -> KeyLogin:
    key = check_secret("The input `anthropic-api-key`", access.api_key or "", hint=_NO_KEY)
    return KeyLogin(key=key, address=address_of(access))


def _identity(access: ModelAccess) -> IdentityLogin:
    if access.api_key:
        raise InputError(
            f"Both anthropic-api-key and {', '.join(access.identity)} are given, and only one of them can log in.",
            hint="Leave the key out; that the job needs none is what the workload identity is for.",
        )
    ids = access.identity
    demand(
        access.provider,
        {
            f"the input {name}": name not in ids
            for name in ("anthropic-federation-rule-id", "anthropic-organization-id")
        },
        hint="They stand beside the federation rule in the Claude Console.",
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
    return IdentityLogin(
        address=address_of(access),
        rule=ids["anthropic-federation-rule-id"],
        organization=ids["anthropic-organization-id"],
        service_account=ids.get("anthropic-service-account-id"),
        workspace=access.given("ANTHROPIC_WORKSPACE_ID") or None,
        token_url=url,
        token_bearer=check_secret(TOKEN_BEARER, bearer, hint=""),
    )


def _aws(access: ModelAccess) -> AwsLogin:
    demand_packages(access.provider, "boto3", "botocore")
    region = access.given(*_REGION_NAMES)
    bearer = access.given("AWS_BEARER_TOKEN_BEDROCK")
    keys = {"access_key": access.given("AWS_ACCESS_KEY_ID"), "secret_key": access.given("AWS_SECRET_ACCESS_KEY")}
    missing = {
        "a region (AWS_REGION)": not region,
        "credentials (AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK)": not bearer
        and not any(keys.values()),
        "AWS_ACCESS_KEY_ID beside AWS_SECRET_ACCESS_KEY": not bearer and keys["secret_key"] and not keys["access_key"],
        "AWS_SECRET_ACCESS_KEY beside AWS_ACCESS_KEY_ID": not bearer and keys["access_key"] and not keys["secret_key"],
    }
    demand(access.provider, {name: bool(lacking) for name, lacking in missing.items()}, hint=_AWS)
    check_name(access.provider, "AWS_REGION", region)
    address = address_of(access)
    if bearer:
        return AwsLogin(
            address=address, region=region, bearer=check_secret("AWS_BEARER_TOKEN_BEDROCK", bearer, hint="")
        )
    keys = {name: check_secret(f"the AWS {name.replace('_', ' ')}", value, hint="") for name, value in keys.items()}
    return AwsLogin(address=address, region=region, session_token=access.given("AWS_SESSION_TOKEN"), **keys)


def _google(access: ModelAccess) -> GoogleLogin:
    region, token = access.given("CLOUD_ML_REGION"), access.given(*_TOKEN_NAMES)
    path = access.given("GOOGLE_APPLICATION_CREDENTIALS")
    file = _read_credentials(path) if path and not token else {}
    project = access.given(*_PROJECT_NAMES) or str(file.get("project_id") or "")
    missing = {
        "a region (CLOUD_ML_REGION, such as `global`)": not region,
        f"a project ({', '.join(_PROJECT_NAMES[:2])})": not project,
        f"credentials ({_TOKEN_NAMES[0]}, or GOOGLE_APPLICATION_CREDENTIALS)": not token and not path,
    }
    demand(access.provider, missing, hint=_GOOGLE)
    if file:
        demand_packages(access.provider, "google.auth")
    check_name(access.provider, "CLOUD_ML_REGION", region)
    check_name(access.provider, "the project", project, project=True)
    return GoogleLogin(
        address=address_of(access),
        region=region,
        project=project,
        token=check_secret(_TOKEN_NAMES[0], token, hint="") if token else "",
        file=file,
    )


def _read_credentials(path: str) -> JsonObject:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(
            f"GOOGLE_APPLICATION_CREDENTIALS names {path}, which cannot be read: {exc}.",
            hint="In a container only the workspace and RUNNER_TEMP of the job are there; google-github-actions/auth "
            "writes into the workspace, so check the repository out before it.",
        ) from exc
    if not isinstance(found, dict):
        raise InputError(
            f"{path} holds no Google credentials.", hint="GOOGLE_APPLICATION_CREDENTIALS names a JSON file."
        )
    return found


def _foundry(access: ModelAccess) -> FoundryLogin:
    resource = access.given("ANTHROPIC_FOUNDRY_RESOURCE")
    key, token = access.given("ANTHROPIC_FOUNDRY_API_KEY"), access.given("ANTHROPIC_FOUNDRY_AUTH_TOKEN")
    missing = {
        "a resource (ANTHROPIC_FOUNDRY_RESOURCE, or its address in anthropic-base-url)": not resource
        and not access.base_url,
        "credentials (ANTHROPIC_FOUNDRY_API_KEY or ANTHROPIC_FOUNDRY_AUTH_TOKEN)": not key and not token,
    }
    demand(access.provider, missing, hint=_FOUNDRY)
    if resource and not access.base_url:
        check_name(access.provider, "ANTHROPIC_FOUNDRY_RESOURCE", resource)
    address = address_of(access)
    if token:
        return FoundryLogin(address=address, token=check_secret("ANTHROPIC_FOUNDRY_AUTH_TOKEN", token, hint=""))
    return FoundryLogin(address=address, key=check_secret("ANTHROPIC_FOUNDRY_API_KEY", key, hint=""))
