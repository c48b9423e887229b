"""Claude on Google's Vertex AI."""

from __future__ import annotations

import json
from pathlib import Path
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
    from stepflow.domain.json import JsonObject

_LOGIN_HINT = (
    "Log in with a step of google-github-actions/auth before this one, or set the variables in the step's `env:`."
)
#: What the environment calls the Google project: the SDK's own name first, then those that login actions set.
_PROJECT_NAMES = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
_TOKEN_NAMES = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN")
_HINTS = MappingProxyType(
    {
        401: "Check the Google credentials of the job: an access token is valid for an hour.",
        403: "Check that the Google account of the job has the role `roles/aiplatform.user` in the project, and that "
        "the project has the model enabled in the Model Garden.",
        404: "Check the input `model`, the step's `model` and CLOUD_ML_REGION: not every model is served in every "
        "region.",
        429: "Let fewer runs work at once, or ask Google for a higher quota for this model.",
    }
)


def address(access: ModelAccess) -> str:
    """The base URL that was given, or the service's own."""
    return check_base_url(access.base_url or vertex_url(access.given("CLOUD_ML_REGION")))


def read_login(access: ModelAccess) -> Login:
    """An access token, or the content of a credentials file that gives tokens."""
    region, token = access.given("CLOUD_ML_REGION"), access.given(*_TOKEN_NAMES)
    path = access.given("GOOGLE_APPLICATION_CREDENTIALS")
    file = _read_credentials(path) if path and not token else {}
    project = access.given(*_PROJECT_NAMES) or str(file.get("project_id") or "")
    missing = {
        "a region (CLOUD_ML_REGION, such as `global`)": not region,
        f"a project ({', '.join(_PROJECT_NAMES[:2])})": not project,
        f"credentials ({_TOKEN_NAMES[0]}, or GOOGLE_APPLICATION_CREDENTIALS)": not token and not path,
    }
    demand(access.provider, missing, hint=_LOGIN_HINT)
    if file:
        demand_packages(access.provider, "google.auth")
    check_name(access.provider, "CLOUD_ML_REGION", region)
    check_name(access.provider, "the project", project, project=True)
    where = address(access)
    token = check_secret(_TOKEN_NAMES[0], token, hint="") if token else ""

    def open_service(shared: dict[str, Any], http: httpx2.Client, _connection_to: ConnectionTo) -> Service:
        import anthropic  # noqa: PLC0415 - more than a second that only a real model should cost

        if token:
            given: dict[str, Any] = {"access_token": token}
            own: dict[str, Any] = {"secrets": lambda: (token,)}
        else:
            # Loaded here: it is there only with the extra `vertex`.
            from stepflow.model.google_credentials import GoogleCredentials  # noqa: PLC0415

            google = GoogleCredentials(file, http)
            given, own = {"credentials": google}, {"secrets": google.secrets, "log_in": google.log_in}
        client = anthropic.AnthropicVertex(region=region, project_id=project, **given, **shared)
        return Service(client=client, provider=Provider.VERTEX, hints=_HINTS, **own)

    return Login(address=where, open=open_service)


def vertex_url(region: str) -> str:
    """Where the SDK looks for Vertex AI in this region; a test holds the two together."""
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
            f"{path} holds no Google credentials.", hint="GOOGLE_APPLICATION_CREDENTIALS names a JSON file."
        )
    return content
