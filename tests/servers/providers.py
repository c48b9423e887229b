"""Every provider and login of a model, each with the server that checks its form on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
GOOGLE_TOKEN = "ya29.token-of-a-test"
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
    inputs: dict[str, str]
    login: dict[str, str]
    logins: LoginServer

    @property
    def provider(self) -> str:
        return PROVIDERS[self.name]

    @property
    def suffix(self) -> str:
        return {"vertex": "/v1", "foundry": "/anthropic"}.get(self.provider, "")

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
    inputs = {"model": {"provider": PROVIDERS[name]}}
    aws = {"AWS_REGION": "eu-west-1"}
    vertex = {"CLOUD_ML_REGION": "europe-west1", "GOOGLE_CLOUD_PROJECT": "my-project"}
    dialect: Dialect
    match name:
        case "key":
            dialect, inputs, login = AnthropicDialect(key=KEY), {"anthropic-api-key": KEY}, {}
        case "identity":
            dialect, login = FederatedDialect(ids=IDS, knows=lambda token: token in logins.identities), logins.job
            identity = {key.replace("_", "-"): value for key, value in IDS.items()}
            inputs = {"model": {"workload-identity": identity}}
        case "bedrock":
            access_key, secret_key, session_token = AWS_KEYS.values()
            dialect = BedrockDialect(access_key=access_key, secret_key=secret_key, session_token=session_token)
            login = aws | AWS_KEYS
        case "bedrock-key":
            dialect, login = BedrockDialect(key=BEDROCK_KEY), aws | {"AWS_BEARER_TOKEN_BEDROCK": BEDROCK_KEY}
        case "vertex-token":
            dialect, login = VertexDialect(key=GOOGLE_TOKEN), vertex | {"CLOUDSDK_AUTH_ACCESS_TOKEN": GOOGLE_TOKEN}
        case "vertex-account" | "vertex-identity":
            path = folder / "gha-creds-1.json"
            content = logins.service_account if name == "vertex-account" else logins.external_account
            path.write_text(json.dumps(content))
            dialect = VertexDialect(key="", is_token=lambda token: token == logins.google_tokens[-1])
            login = vertex | {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
        case "foundry":
            dialect, login = FoundryDialect(key=FOUNDRY_KEY), {"ANTHROPIC_FOUNDRY_API_KEY": FOUNDRY_KEY}
        case _:
            dialect = FoundryDialect(key="", token=ENTRA_TOKEN)
            login = {"ANTHROPIC_FOUNDRY_AUTH_TOKEN": ENTRA_TOKEN}
    return ProviderAccess(name=name, dialect=dialect, inputs=inputs, login=login, logins=logins)
