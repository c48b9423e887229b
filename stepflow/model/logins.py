"""How to reach each provider's model: its address, and the login with a key, a token, or the job's identity."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

from stepflow.domain.connection import ConnectionTo, address_problem, is_loopback, printable_address
from stepflow.domain.json import JsonObject
from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.models import GUIDE, Service

if TYPE_CHECKING:
    # Loaded with the SDK, so that only runs with a real model pay for it.
    import httpx2

ANTHROPIC_URL = "https://api.anthropic.com"
_NO_KEY = "Give it a secret of the repository, or use a `scenario`."
_IDENTITY_HINTS = MappingProxyType(
    {
        401: "The token that the federation rule gave was refused: check the rule and its service account.",
        403: "The service account of the federation rule may not use this model or workspace: change its "
        "permissions, or use another `model`.",
    }
)
_AWS_HINT = (
    "Log in with a step of aws-actions/configure-aws-credentials before this one, or set the variables in the step's "
    "`env:`."
)
_REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BEDROCK_HINTS = MappingProxyType(
    {
        400: "Bedrock cannot take this request; its message names the part.",
        401: "Check the AWS credentials of the job: they must be valid and not expired.",
        403: "Check that the AWS credentials of the job are valid and not expired (the session of a role lasts an hour "
        "unless `role-duration-seconds` says otherwise), that they allow `bedrock:InvokeModelWithResponseStream`, and "
        "that the account has access to the model.",
        404: "Check the input `model`, the step's `model` and AWS_REGION: not every model is served in every region.",
        422: "Bedrock does not know a part of the request: check `model`.",
        424: "The model broke off; start the run again.",
        429: "Run fewer agents at once, or ask AWS for a higher quota for this model.",
    }
)
_FOUNDRY_HINT = "Set the variables in the step's `env:`."
_FOUNDRY_HINTS = MappingProxyType(
    {
        401: "Check ANTHROPIC_FOUNDRY_API_KEY, or ANTHROPIC_FOUNDRY_AUTH_TOKEN, whose token lasts about an hour.",
        403: "Check that the key or the Entra identity may use this Foundry resource.",
        404: "Check the input `model` and the step's `model`: Foundry takes the name of the deployment.",
        429: "Run fewer agents at once, or raise the limit of the deployment.",
    }
)
_GOOGLE_HINT = (
    "Log in with a step of google-github-actions/auth before this one, or set the variables in the step's `env:`."
)
#: Variables that hold the Google project: the SDK's own first, then those that login actions set.
_PROJECT_NAMES = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
_TOKEN_NAMES = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN")
_VERTEX_HINTS = MappingProxyType(
    {
        401: "Check the Google credentials of the job: an access token is valid for an hour.",
        403: "Check that the Google account of the job has the role `roles/aiplatform.user` in the project, and that "
        "the project has the model enabled in the Model Garden.",
        404: "Check the input `model`, the step's `model` and CLOUD_ML_REGION: not every model is served in every "
        "region.",
        429: "Run fewer agents at once, or ask Google for a higher quota for this model.",
    }
)
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
    """The action's inputs that locate the model, and `login`: the related variables of the
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
class Login:
    """The credentials from the inputs and the environment, checked before the SDK is loaded."""

    address: str
    #: Builds the service from the arguments common to all of the SDK's clients, their HTTP client, and a function that
    #: returns the connection for any other address.
    open: Callable[[dict[str, Any], httpx2.Client, ConnectionTo], Service] = field(repr=False)
    #: Open the service at once, because more can be wrong with this login than with a key.
    opens_at_once: bool = True


def find_login(access: ModelAccess) -> Login:
    """Return the login that the inputs and the environment provide for this provider."""
    if access.identity and access.provider is not Provider.ANTHROPIC:
        raise InputError(
            f"The input model.workload-identity logs in to the Anthropic API, not to provider {access.provider}.",
            hint=f"Leave them out, or leave `model.provider` out. See {GUIDE}.",
        )
    match access.provider:
        case Provider.ANTHROPIC:
            return _read_identity(access, access.identity) if access.identity else _read_key(access)
        case Provider.BEDROCK:
            return _read_aws_login(access)
        case Provider.VERTEX:
            return _read_google_login(access)
        case Provider.FOUNDRY:
            return _read_foundry_login(access)
        case Provider.SCRIPTED:
            raise InputError("Provider scripted calls no service.", hint="Give it a `scenario`.")
        case _:
            assert_never(access.provider)


def address_of(access: ModelAccess) -> str:
    """Return the address of the model: the given base URL, or the service's own. Read no file, because the credentials
    may be gone by now."""
    match access.provider:
        case Provider.BEDROCK:
            own = f"https://bedrock-runtime.{access.given(*_REGION_NAMES)}.amazonaws.com"
        case Provider.VERTEX:
            own = vertex_url(access.given("CLOUD_ML_REGION"))
        case Provider.FOUNDRY:
            own = f"https://{access.given('ANTHROPIC_FOUNDRY_RESOURCE')}.services.ai.azure.com/anthropic"
        case _:
            own = ANTHROPIC_URL
    return check_base_url(access.base_url or own)


def _read_key(access: ModelAccess) -> Login:
    """Read an API key, which any server that speaks the Messages API accepts."""
    key = check_secret("The input `anthropic-api-key`", access.api_key or "", hint=_NO_KEY)

    def open_service(shared: dict[str, Any], _http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        from anthropic import Anthropic  # noqa: PLC0415 - takes over a second; only a real model needs it

        return Service(client=Anthropic(api_key=key, **shared), secrets=lambda: (key,))

    return Login(address=address_of(access), open=open_service, opens_at_once=False)


def _read_identity(access: ModelAccess, identity: WorkloadIdentity) -> Login:
    """Read the job's identity, which Anthropic's workload identity federation exchanges for a token."""
    if access.api_key:
        raise InputError(
            "Both anthropic-api-key and model.workload-identity are given, and only one of them can log in.",
            hint="Leave the key out: the workload identity replaces it.",
        )
    url, bearer = access.given(TOKEN_URL), access.given(TOKEN_BEARER)
    if not url or not bearer:
        raise InputError(
            f"The job has no identity of its own: {TOKEN_BEARER if url else TOKEN_URL} is not set.",
            hint="Give the job the permission `id-token: write` (`permissions:` of the job); a run for a pull request "
            f"from a fork does not get it. See {GUIDE}.",
        )
    if not is_private(url):
        raise InputError(
            f"{TOKEN_URL} is not an https address.", hint="Only the runner sets it; no step may change it."
        )
    bearer, where = check_secret(TOKEN_BEARER, bearer, hint=""), address_of(access)
    ids = {**vars(identity), "workspace_id": access.given("ANTHROPIC_WORKSPACE_ID") or None}

    def open_service(shared: dict[str, Any], http: httpx2.Client, connection_to: ConnectionTo) -> Service:
        from anthropic import Anthropic  # noqa: PLC0415

        from stepflow.model.credentials import IdentityCredentials  # noqa: PLC0415
        from stepflow.model.http_client import http_client  # noqa: PLC0415

        runner = http_client(connection_to(url))
        credentials = IdentityCredentials(url, bearer, runner=runner, address=where, http=http, ids=ids)
        client = Anthropic(credentials=credentials, **shared)
        return Service(client=client, hints=_IDENTITY_HINTS, secrets=credentials.secrets)

    return Login(address=where, open=open_service)


def _read_aws_login(access: ModelAccess) -> Login:
    """Read a Bedrock API key, or the keys of an AWS identity that signs each request."""
    demand_packages(access.provider, "boto3", "botocore")
    region = access.given(*_REGION_NAMES)
    bearer = access.given("AWS_BEARER_TOKEN_BEDROCK")
    keys = {"access_key": access.given("AWS_ACCESS_KEY_ID"), "secret_key": access.given("AWS_SECRET_ACCESS_KEY")}
    lone = [name for name, value in keys.items() if value]
    missing = {
        "a region (AWS_REGION)": not region,
        "credentials (AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK)": not bearer
        and not any(keys.values()),
        "AWS_ACCESS_KEY_ID to go with AWS_SECRET_ACCESS_KEY": not bearer and lone == ["secret_key"],
        "AWS_SECRET_ACCESS_KEY to go with AWS_ACCESS_KEY_ID": not bearer and lone == ["access_key"],
    }
    demand(access.provider, missing, hint=_AWS_HINT)
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
        import anthropic  # noqa: PLC0415 - takes over a second; only a real model needs it

        # Loaded here: installed only with the extra `bedrock`.
        import boto3  # noqa: PLC0415
        from botocore.eventstream import ParserError  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        try:
            # Detect before the first call what would break every signature, such as a missing profile.
            boto3.Session(region_name=region)
        except BotoCoreError as error:
            raise InputError(
                f"The AWS settings of this environment cannot be used: {error}.",
                hint="Correct AWS_PROFILE and AWS_CONFIG_FILE, or unset them.",
            ) from error
        return Service(
            client=anthropic.AnthropicBedrock(aws_region=region, **credentials, **shared),
            provider=Provider.BEDROCK,
            hints=_BEDROCK_HINTS,
            stream_type="application/vnd.amazon.eventstream",
            stumbles=(ParserError, ResponseParserError),
            secrets=lambda: tuple(credentials.values()),
        )

    return Login(address=address_of(access), open=open_service)


def _read_foundry_login(access: ModelAccess) -> Login:
    """Read a key of the resource, or an Entra ID token."""
    resource = access.given("ANTHROPIC_FOUNDRY_RESOURCE")
    key, token = access.given("ANTHROPIC_FOUNDRY_API_KEY"), access.given("ANTHROPIC_FOUNDRY_AUTH_TOKEN")
    missing = {
        "a resource (ANTHROPIC_FOUNDRY_RESOURCE, or its address in model.base-url)": not resource
        and not access.base_url,
        "credentials (ANTHROPIC_FOUNDRY_API_KEY or ANTHROPIC_FOUNDRY_AUTH_TOKEN)": not key and not token,
    }
    demand(access.provider, missing, hint=_FOUNDRY_HINT)
    if resource and not access.base_url:
        check_name(access.provider, "ANTHROPIC_FOUNDRY_RESOURCE", resource)
    name = "ANTHROPIC_FOUNDRY_AUTH_TOKEN" if token else "ANTHROPIC_FOUNDRY_API_KEY"
    secret = check_secret(name, token or key, hint="")

    def open_service(shared: dict[str, Any], _http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        import anthropic  # noqa: PLC0415 - takes over a second; only a real model needs it

        # Without an explicit key, the SDK would use ANTHROPIC_FOUNDRY_API_KEY from the environment.
        given = {"api_key": "", "azure_ad_token_provider": lambda: secret} if token else {"api_key": secret}
        client = anthropic.AnthropicFoundry(**given, **shared)
        return Service(client=client, provider=Provider.FOUNDRY, hints=_FOUNDRY_HINTS, secrets=lambda: (secret,))

    return Login(address=address_of(access), open=open_service)


def _read_google_login(access: ModelAccess) -> Login:
    """Read an access token, or the content of a credentials file that yields tokens."""
    region, token = access.given("CLOUD_ML_REGION"), access.given(*_TOKEN_NAMES)
    path = access.given("GOOGLE_APPLICATION_CREDENTIALS")
    file = _read_credentials(path) if path and not token else {}
    project = access.given(*_PROJECT_NAMES) or str(file.get("project_id") or "")
    missing = {
        "a region (CLOUD_ML_REGION, such as `global`)": not region,
        f"a project ({', '.join(_PROJECT_NAMES[:2])})": not project,
        f"credentials ({_TOKEN_NAMES[0]}, or GOOGLE_APPLICATION_CREDENTIALS)": not token and not path,
    }
    demand(access.provider, missing, hint=_GOOGLE_HINT)
    if file:
        demand_packages(access.provider, "google.auth")
    check_name(access.provider, "CLOUD_ML_REGION", region)
    check_name(access.provider, "the project", project, project=True)
    where = address_of(access)
    token = check_secret(_TOKEN_NAMES[0], token, hint="") if token else ""

    def open_service(shared: dict[str, Any], http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        import anthropic  # noqa: PLC0415 - takes over a second; only a real model needs it

        if token:
            given: dict[str, Any] = {"access_token": token}
            own: dict[str, Any] = {"secrets": lambda: (token,)}
        else:
            from stepflow.model.credentials import GoogleCredentials  # noqa: PLC0415

            google = GoogleCredentials(file, http)
            given, own = {"credentials": google}, {"secrets": google.secrets, "log_in": google.log_in}
        client = anthropic.AnthropicVertex(region=region, project_id=project, **given, **shared)
        return Service(client=client, provider=Provider.VERTEX, hints=_VERTEX_HINTS, **own)

    return Login(address=where, open=open_service)


def vertex_url(region: str) -> str:
    """Return the address where the SDK expects Vertex AI in this region. A test compares the two."""
    match region:
        case "global":
            host = "aiplatform.googleapis.com"
        case "us" | "eu":
            host = f"aiplatform.{region}.rep.googleapis.com"
        case _:
            host = f"{region}-aiplatform.googleapis.com"
    return f"https://{host}/v1"


def _read_credentials(path: str) -> JsonObject:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(
            f"GOOGLE_APPLICATION_CREDENTIALS names {path}, which cannot be read: {exc}.",
            hint="In a container only the workspace and RUNNER_TEMP of the job are there; google-github-actions/auth "
            "writes into the workspace, so check the repository out before it.",
        ) from exc
    if not isinstance(content, dict):
        raise InputError(
            f"{path} contains no Google credentials.", hint="GOOGLE_APPLICATION_CREDENTIALS names a JSON file."
        )
    return content


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
            f"requirements/{provider}.txt`, or your own FROM ours; at a terminal: pip install 'anthropic[{provider}]'. "
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
        shown = printable_address(url)
        raise InputError(
            f"The input `model.base-url` ({shown!r}) cannot be used: {problem}.",
            hint="Give an address that begins with https://, or with http:// on this machine, and leave out /v1 "
            "(for Vertex keep it).",
        )
    return url.strip().rstrip("/")


def is_private(url: str) -> bool:
    """Return whether traffic to the address cannot be read on the way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
