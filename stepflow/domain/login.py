"""The variables of a job by which somebody is logged in: a cloud's programs, the model's service, the job itself.

Takes: a variable's name, or an environment. Gives: whether its value is a secret; what a model's service may read.
May touch: nothing.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names whose value is a credential itself.
_SECRET = re.compile(
    r"ACTIONS_ID_TOKEN_REQUEST_(?:URL|TOKEN)"
    r"|ANTHROPIC_(?:\w+_)?(?:API_KEY|AUTH_TOKEN|IDENTITY_TOKEN)|ANTHROPIC_CUSTOM_HEADERS"
    r"|AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|SECURITY_TOKEN|BEARER_TOKEN_\w+)"
    r"|AWS_CONTAINER_AUTHORIZATION_TOKEN"
    r"|GOOGLE_(?:CREDENTIALS|OAUTH_ACCESS_TOKEN)|CLOUDSDK_AUTH_ACCESS_TOKEN"
    r"|(?:AZURE|ARM)_(?:CLIENT_SECRET|CLIENT_CERTIFICATE_PASSWORD|PASSWORD|CREDENTIALS|ACCESS_KEY|SAS_TOKEN)"
    r"|ARM_OIDC_(?:REQUEST_)?TOKEN|IDENTITY_HEADER|MSI_SECRET"
)
#: Names whose value leads to a credential: a file, a profile, an address that gives one.
_LEADS = re.compile(
    r"ANTHROPIC_(?:IDENTITY_TOKEN_FILE|CONFIG_DIR|PROFILE)"
    r"|AWS_(?:WEB_IDENTITY_TOKEN_FILE|SHARED_CREDENTIALS_FILE|CONFIG_FILE|(?:DEFAULT_)?PROFILE)"
    r"|AWS_CONTAINER_(?:CREDENTIALS_(?:RELATIVE|FULL)_URI|AUTHORIZATION_TOKEN_FILE)"
    r"|GOOGLE_(?:APPLICATION_CREDENTIALS|GHA_CREDS_PATH)|CLOUDSDK_AUTH_\w+"
    r"|AZURE_(?:FEDERATED_TOKEN_FILE|CLIENT_CERTIFICATE_PATH|CONFIG_DIR)"
    r"|ARM_OIDC_(?:TOKEN_FILE_PATH|REQUEST_URL)|(?:IDENTITY|MSI)_ENDPOINT"
)
#: Those of them that name a file.
_FILES = re.compile(
    r"(?:ANTHROPIC_IDENTITY|AWS_WEB_IDENTITY|AZURE_FEDERATED)_TOKEN_FILE|AWS_SHARED_CREDENTIALS_FILE"
    r"|GOOGLE_(?:APPLICATION_CREDENTIALS|GHA_CREDS_PATH)|CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"
    r"|AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE|ARM_OIDC_TOKEN_FILE_PATH|AZURE_CLIENT_CERTIFICATE_PATH"
)
#: What a model's service is told besides: no secret, and the tools may see it when the workflow passes it on.
_PLAIN = re.compile(
    r"AWS_(?:DEFAULT_)?REGION|CLOUD_ML_REGION|ANTHROPIC_VERTEX_PROJECT_ID|(?:GOOGLE_CLOUD|GCLOUD)_PROJECT"
    r"|ANTHROPIC_FOUNDRY_RESOURCE|ANTHROPIC_WORKSPACE_ID"
)


def holds_login(name: str) -> bool:
    """Whether the variable's value is a secret by its name alone."""
    return bool(_SECRET.fullmatch(name))


def logs_in(name: str) -> bool:
    """Whether the variable holds a credential or leads to one; no tool may ever see it."""
    return holds_login(name) or bool(_LEADS.fullmatch(name))


def login_files(login: Mapping[str, str]) -> tuple[str, ...]:
    """The files that hold a credential, as their variables name them."""
    return tuple(dict.fromkeys(value for name, value in login.items() if _FILES.fullmatch(name)))


def login_of(environ: Mapping[str, str]) -> Mapping[str, str]:
    """What of an environment the services of models may read, without what is empty."""
    return MappingProxyType(
        {name: value for name, value in environ.items() if value and (logs_in(name) or _PLAIN.fullmatch(name))}
    )
