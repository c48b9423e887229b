"""Which variables of a job log somebody in, and what of them a model's service may read."""

from __future__ import annotations

import pytest

from stepflow.domain.secrets import holds_login, login_files, login_of, logs_in
from stepflow.errors import InputError
from stepflow.sandbox.environment import check_pass_env

SECRETS = (
    *("ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
    *("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_CREDENTIALS"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_AUTH_TOKEN"),
    *("ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_AWS_API_KEY", "ANTHROPIC_CUSTOM_HEADERS"),
    *("AZURE_CLIENT_SECRET", "ARM_CLIENT_SECRET", "IDENTITY_HEADER", "MSI_SECRET"),
)
PATHS = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GHA_CREDS_PATH", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE", "AZURE_FEDERATED_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "ANTHROPIC_IDENTITY_TOKEN_FILE"),
)
PLAIN = ("AWS_REGION", "AWS_DEFAULT_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")


@pytest.mark.parametrize("name", [*SECRETS, *PATHS])
def test_a_variable_that_logs_in_can_never_be_passed_to_the_tools(name: str) -> None:
    assert logs_in(name)
    assert holds_login(name) is (name in SECRETS)
    with pytest.raises(InputError, match=name):
        check_pass_env({name: "x"})


@pytest.mark.parametrize("name", [*PLAIN, "AWS_ROLE_ARN", "EDITOR", "MY_API_KEY_COUNT"])
def test_regions_projects_and_other_variables_can_be_passed(name: str) -> None:
    assert not logs_in(name)
    check_pass_env({name: "x"})


def test_a_models_service_reads_logins_regions_and_projects_and_nothing_else() -> None:
    environ = dict.fromkeys([*SECRETS, *PATHS, *PLAIN], "x") | {"HOME": "/root", "GITHUB_TOKEN": "t", "AWS_REGION": ""}
    assert login_of(environ).keys() == {*SECRETS, *PATHS, *PLAIN} - {"AWS_REGION"}


def test_files_that_hold_a_credential_are_told_once_whatever_names_them() -> None:
    path = "/github/workspace/gha-creds-1.json"
    login = dict.fromkeys(PATHS[:3], path) | {"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_PROFILE": "ci"}
    assert login_files(login) == (path, "/t")
