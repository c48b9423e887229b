"""Every provider and login of a model, each with the server that checks its form on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.dialects import (
    AnthropicDialect,
    BedrockDialect,
    Dialect,
    FederatedDialect,
    FoundryDialect,
    VertexDialect,
)
from tests.servers.logins import LoginServer

KEY = "sk-ant-key-of-a-test-0123456789"
AWS_KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEOFATEST01",
    "AWS_SECRET_ACCESS_KEY": "aws/secret+key/of+a+test",
    "AWS_SESSION_TOKEN": "aws-session-token-of-a-test",
}
BEDROCK_KEY, ENTRA_TOKEN, FOUNDRY_KEY = "bedrock-key-of-a-test", "entra-token-of-a-test", "foundry-key-of-a-test"
IDS = {"federation_rule_id": "fdrl_01", "organization_id": "0d1c5f2e-org", "service_account_id": "svac_01"}
#: The ways, by the provider each belongs to.
PROVIDERS = {
    "key": "anthropic",
    "identity": "anthropic",
    "bedrock": "bedrock",
    "bedrock-key": "bedrock",
    "vertex-token": "vertex",
    "vertex-account": "vertex",
    "vertex-identity": "vertex",
    "foundry": "foundry",
    "foundry-token": "foundry",
}


@dataclass(frozen=True, kw_only=True)
class ProviderAccess:
    """`suffix` is what the base URL has after the server's own address. `secrets` must be in nothing that is left."""

    name: str
    dialect: Dialect
    suffix: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    login: dict[str, str] = field(default_factory=dict)
    logins: LoginServer

    @property
    def provider(self) -> str:
        return PROVIDERS[self.name]

    def secrets(self) -> list[str]:
        """What was given to the job, and what was given to us for it."""
        tokens = self.dialect.given if isinstance(self.dialect, FederatedDialect) else []
        plain = ("AWS_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS")
        named = [value for name, value in self.login.items() if name not in plain]
        keys = [value for name, value in self.inputs.items() if name == "anthropic-api-key"]
        return [*named, *keys, *tokens, *self.logins.identities, *self.logins.google_tokens]


@contextmanager
def open_access(name: str, folder: Path) -> Iterator[ProviderAccess]:
    """The way, with its login server up until the block ends."""
    with LoginServer() as logins:
        yield _access(name, logins, folder)


def _access(name: str, logins: LoginServer, folder: Path) -> ProviderAccess:
    match name:
        case "key":
            return ProviderAccess(
                name=name, dialect=AnthropicDialect(key=KEY), inputs={"anthropic-api-key": KEY}, logins=logins
            )
        case "identity":
            known = FederatedDialect(ids=IDS, knows=lambda token: token in logins.identities)
            lines = [f"{key.replace('_', '-')}: {value}" for key, value in IDS.items()]
            inputs = {"anthropic-workload-identity": "\n".join(lines)}
            return ProviderAccess(name=name, dialect=known, inputs=inputs, login=logins.job, logins=logins)
        case "bedrock":
            keys = {"access_key": 0, "secret_key": 1, "session_token": 2}
            given = {key: list(AWS_KEYS.values())[index] for key, index in keys.items()}
            return _bedrock(name, BedrockDialect(**given), AWS_KEYS, logins)
        case "bedrock-key":
            return _bedrock(name, BedrockDialect(key=BEDROCK_KEY), {"AWS_BEARER_TOKEN_BEDROCK": BEDROCK_KEY}, logins)
        case "vertex-token":
            token = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29.token-of-a-test"}
            return _vertex(name, VertexDialect(key="ya29.token-of-a-test"), token, logins)
        case "vertex-account" | "vertex-identity":
            path = folder / "gha-creds-1.json"
            content = logins.service_account if name == "vertex-account" else logins.external_account
            path.write_text(json.dumps(content))
            dialect = VertexDialect(key="", is_token=lambda token: token == logins.google_tokens[-1])
            return _vertex(name, dialect, {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}, logins)
        case "foundry":
            key = {"ANTHROPIC_FOUNDRY_API_KEY": FOUNDRY_KEY}
            return _foundry(name, FoundryDialect(key=FOUNDRY_KEY), key, logins)
        case _:
            token = {"ANTHROPIC_FOUNDRY_AUTH_TOKEN": ENTRA_TOKEN}
            return _foundry(name, FoundryDialect(key="", token=ENTRA_TOKEN), token, logins)


def _bedrock(name: str, dialect: Dialect, login: dict[str, str], logins: LoginServer) -> ProviderAccess:
    return ProviderAccess(
        name=name,
        dialect=dialect,
        inputs={"provider": "bedrock"},
        login={"AWS_REGION": "eu-west-1", **login},
        logins=logins,
    )


def _vertex(name: str, dialect: Dialect, login: dict[str, str], logins: LoginServer) -> ProviderAccess:
    location = {"CLOUD_ML_REGION": "europe-west1", "GOOGLE_CLOUD_PROJECT": "my-project"}
    return ProviderAccess(
        name=name,
        dialect=dialect,
        suffix="/v1",
        inputs={"provider": "vertex"},
        login={**location, **login},
        logins=logins,
    )


def _foundry(name: str, dialect: Dialect, login: dict[str, str], logins: LoginServer) -> ProviderAccess:
    return ProviderAccess(
        name=name, dialect=dialect, suffix="/anthropic", inputs={"provider": "foundry"}, login=login, logins=logins
    )
