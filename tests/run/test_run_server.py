"""Which GitHub server is asked: flags win over the job's variables, and the two addresses are always of one server."""

from __future__ import annotations

import pytest

from stepflow.boundary.github_client import GitHubClient
from stepflow.errors import InputError
from stepflow.run.readiness import check_collector
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.server import check_addresses, read_addresses

API, SERVER = "github-api-url", "github-server-url"
JOB = {"GITHUB_API_URL": "https://ghes.example/api/v3", "GITHUB_SERVER_URL": "https://ghes.example"}
PUBLIC, PUBLIC_API = "https://github.com", "https://api.github.com"


@pytest.mark.parametrize(
    ("environ", "flags", "api", "server"),
    [
        ({}, {}, PUBLIC_API, PUBLIC),
        (JOB, {}, "https://ghes.example/api/v3", "https://ghes.example"),
        ({"GITHUB_API_URL": "https://ghes.example:8443/api/v3"}, {}, None, "https://ghes.example:8443"),
        ({"GITHUB_SERVER_URL": "https://ghes.example"}, {}, "https://ghes.example/api/v3", None),
        ({"GITHUB_SERVER_URL": "https://octo.ghe.com"}, {}, "https://api.octo.ghe.com", None),
        ({"GITHUB_API_URL": "https://api.octo.ghe.com"}, {}, None, "https://octo.ghe.com"),
        (JOB, {API: PUBLIC_API}, None, PUBLIC),
        (JOB, {SERVER: PUBLIC}, PUBLIC_API, None),
        (JOB, {API: "https://other.example/api/v3"}, None, "https://other.example"),
        (JOB, {API: "https://ghes.example/proxied/v3"}, None, "https://ghes.example"),
        (JOB, {API: "http://127.0.0.1:1234"}, None, "https://ghes.example"),
        ({}, {API: "http://127.0.0.1:1234"}, None, PUBLIC),
    ],
)
def test_both_addresses_come_from_one_server(
    environ: dict[str, str], flags: dict[str, str], api: str | None, server: str | None
) -> None:
    found = read_inputs(read_addresses(environ, flags))
    given = {**{name: environ.get(name.upper().replace("-", "_"), "") for name in (API, SERVER)}, **flags}
    assert found.github_api_url == (api or given[API])
    assert found.github_server_url == (server or given[SERVER])
    check_addresses(found)


@pytest.mark.parametrize(
    ("api", "graphql"),
    [
        (PUBLIC_API, "https://api.github.com/graphql"),
        ("https://ghes.example/api/v3", "https://ghes.example/api/graphql"),
        ("https://api.octo.ghe.com", "https://api.octo.ghe.com/graphql"),
    ],
)
def test_the_address_of_graphql_is_what_runners_have_in_its_variable(api: str, graphql: str) -> None:
    assert GitHubClient(api_url=api, repository="o/r", token=None).graphql_url == graphql


@pytest.mark.parametrize("name", ["github-api-url", "telemetry"])
def test_what_is_printed_of_a_refused_address_is_no_login_and_no_key(name: str) -> None:
    """In each of its parts somebody may have put one."""
    address = "https://ann:s3cret@host.example:4318/otlp?api_key=s3cret#s3cret"
    inputs = read_inputs({name: address if name != "telemetry" else f"endpoint: {address}"})
    with pytest.raises(InputError) as refused:
        (check_collector if name == "telemetry" else check_addresses)(inputs)
    assert "host.example:4318/otlp" in str(refused.value)
    assert "s3cret" not in str(refused.value)
