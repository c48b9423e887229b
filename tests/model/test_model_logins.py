"""Every piece that a provider misses is named before anything is asked, with the place where to set it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.logins import ModelAccess, WorkloadIdentity, demand_packages, find_login

AWS = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "s/1+"}
GOOGLE = {
    "CLOUD_ML_REGION": "global",
    "GOOGLE_CLOUD_PROJECT": "my-project",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29.t",
}
FOUNDRY = {"ANTHROPIC_FOUNDRY_RESOURCE": "my-resource", "ANTHROPIC_FOUNDRY_API_KEY": "k"}
JOB = {"ACTIONS_ID_TOKEN_REQUEST_URL": "https://i.example/t?v=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "r"}
IDENTITY = WorkloadIdentity(federation_rule_id="fdrl_1", organization_id="org-1", service_account_id="svac_1")


def access(provider: str, login: dict[str, str] | None = None, **more: Any) -> ModelAccess:
    return ModelAccess(provider=Provider(provider), login=login or {}, **more)


def omit(login: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in login.items() if name not in names}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (access("bedrock"), ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "configure-aws"]),
        (access("bedrock", omit(AWS, "AWS_REGION")), ["AWS_REGION"]),
        (access("bedrock", omit(AWS, "AWS_SECRET_ACCESS_KEY")), ["AWS_SECRET_ACCESS_KEY to go with"]),
        (access("bedrock", omit(AWS, "AWS_ACCESS_KEY_ID")), ["AWS_ACCESS_KEY_ID to go with"]),
        (access("bedrock", AWS | {"AWS_REGION": "evil.example/#"}), ["AWS_REGION", "evil.example"]),
        (access("vertex"), ["CLOUD_ML_REGION", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_AUTH_ACCESS_TOKEN", "google-github"]),
        (access("vertex", omit(GOOGLE, "CLOUD_ML_REGION")), ["CLOUD_ML_REGION"]),
        (access("vertex", GOOGLE | {"CLOUD_ML_REGION": "a.b"}), ["CLOUD_ML_REGION"]),
        (access("vertex", GOOGLE | {"GOOGLE_CLOUD_PROJECT": "a/../b"}), ["project"]),
        (
            access("vertex", omit(GOOGLE, "CLOUDSDK_AUTH_ACCESS_TOKEN") | {"GOOGLE_APPLICATION_CREDENTIALS": "/no"}),
            ["GOOGLE_APPLICATION_CREDENTIALS", "/no", "workspace"],
        ),
        (
            access("foundry"),
            ["ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_AUTH_TOKEN"],
        ),
        (
            access("foundry", FOUNDRY | {"ANTHROPIC_FOUNDRY_RESOURCE": "x.evil.example/"}),
            ["ANTHROPIC_FOUNDRY_RESOURCE"],
        ),
        (access("anthropic", identity=IDENTITY), ["ACTIONS_ID_TOKEN_REQUEST_URL", "id-token: write"]),
        (access("anthropic", JOB, api_key="k", identity=IDENTITY), ["anthropic-api-key", "only one"]),
        (
            access("anthropic", JOB | {"ACTIONS_ID_TOKEN_REQUEST_URL": "http://i.example/"}, identity=IDENTITY),
            ["https"],
        ),
        (access("bedrock", AWS | JOB, identity=IDENTITY), ["model.workload-identity", "bedrock"]),
        (access("bedrock", AWS, base_url="http://proxy.example"), ["model.base-url", "unencrypted"]),
        (access("anthropic", api_key="two words"), ["anthropic-api-key", "no key has"]),
        (access("foundry", FOUNDRY | {"ANTHROPIC_FOUNDRY_API_KEY": "a\nb"}), ["ANTHROPIC_FOUNDRY_API_KEY"]),
    ],
)
def test_what_is_missing_or_cannot_work_is_named(given: ModelAccess, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        find_login(given)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_package_that_is_not_installed_is_named_with_the_ways_to_get_it() -> None:
    with pytest.raises(InputError) as caught:
        demand_packages(Provider.BEDROCK, "json", "no_such_package", "no_such.package")
    text = str(caught.value)
    assert "not installed: no_such_package and no_such-package." in text
    assert "pip install 'anthropic[bedrock]'" in text
    assert "requirements/bedrock.txt" in text


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (access("anthropic", api_key=" k "), "https://api.anthropic.com"),
        (access("anthropic", JOB, identity=IDENTITY), "https://api.anthropic.com"),
        (access("bedrock", AWS), "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        (access("vertex", GOOGLE), "https://aiplatform.googleapis.com/v1"),
        (access("vertex", GOOGLE | {"GOOGLE_CLOUD_PROJECT": "example.com:p"}), "https://aiplatform.googleapis.com/v1"),
        (access("foundry", FOUNDRY), "https://my-resource.services.ai.azure.com/anthropic"),
        (
            access("foundry", {"ANTHROPIC_FOUNDRY_API_KEY": "k"}, base_url="https://f.example/anthropic/"),
            "https://f.example/anthropic",
        ),
    ],
)
def test_a_login_knows_where_the_model_is(given: ModelAccess, address: str) -> None:
    assert find_login(given).address == address


def test_no_login_shows_its_secrets(tmp_path: Path) -> None:
    logins = [find_login(access("bedrock", AWS)), find_login(access("vertex", GOOGLE)), access("bedrock", AWS)]
    logins += [
        find_login(access("anthropic", JOB, identity=IDENTITY)),
        find_login(access("anthropic", api_key="secret-key")),
    ]
    shown = repr(logins)
    assert [word for word in ("AKIA1", "s/1+", "ya29", "i.example", "secret-key") if word in shown] == []


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_holds_no_google_credentials_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "creds.json"
    path.write_text(text)
    login = omit(GOOGLE, "CLOUDSDK_AUTH_ACCESS_TOKEN") | {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    with pytest.raises(InputError, match="creds"):
        find_login(access("vertex", login))


def test_the_project_may_come_from_the_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "creds.json"
    path.write_text(json.dumps({"type": "service_account", "project_id": "from-file"}))
    login = {"CLOUD_ML_REGION": "us-east5", "GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    assert find_login(access("vertex", login)).address == "https://us-east5-aiplatform.googleapis.com/v1"
