"""GitHub's published OpenAPI description, cut down to the operations that the loopback server speaks.

`python -m tests.servers.openapi` cuts it down again, from the npm package `@octokit/openapi` (MIT, by GitHub).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from openapi_core.templating.responses.exceptions import ResponseNotFound
from werkzeug.datastructures import Headers, ImmutableMultiDict

from tests.servers.npm_package import fetch_member

PACKAGE = "@octokit/openapi"
VERSION = "23.0.2"
SERVER = "https://api.github.com"
NOW = "2026-01-02T03:04:05Z"
REPO = "/repos/{owner}/{repo}"
DESCRIPTION = Path(__file__).parent / "github-openapi.json"
#: Keys of the description whose text only explains it to people; a property may have such a name too.
ANNOTATIONS = frozenset({"summary", "example", "operationId", "tags", "externalDocs"})
OPERATIONS = {
    "/user": ["get"],
    REPO: ["get"],
    f"{REPO}/issues": ["get"],
    f"{REPO}/issues/{{issue_number}}": ["get", "patch"],
    f"{REPO}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPO}/issues/comments": ["get"],
    f"{REPO}/issues/events": ["get"],
    "/search/issues": ["get"],
    f"{REPO}/issues/comments/{{comment_id}}": ["get", "patch"],
    f"{REPO}/issues/{{issue_number}}/labels": ["get", "post"],
    f"{REPO}/issues/{{issue_number}}/labels/{{name}}": ["delete"],
    f"{REPO}/issues/{{issue_number}}/reactions": ["post"],
    f"{REPO}/labels": ["get"],
    f"{REPO}/pulls": ["get", "post"],
    f"{REPO}/pulls/{{pull_number}}": ["get", "patch"],
    f"{REPO}/pulls/{{pull_number}}/commits": ["get"],
    f"{REPO}/pulls/{{pull_number}}/files": ["get"],
    f"{REPO}/pulls/{{pull_number}}/comments": ["get"],
    f"{REPO}/pulls/{{pull_number}}/reviews": ["get", "post"],
    f"{REPO}/pulls/{{pull_number}}/reviews/{{review_id}}": ["put"],
    f"{REPO}/pulls/{{pull_number}}/reviews/{{review_id}}/dismissals": ["put"],
    f"{REPO}/actions/artifacts": ["get"],
    f"{REPO}/actions/artifacts/{{artifact_id}}/{{archive_format}}": ["get"],
    f"{REPO}/actions/runs/{{run_id}}/jobs": ["get"],
    f"{REPO}/actions/jobs/{{job_id}}/logs": ["get"],
    f"{REPO}/actions/workflows/{{workflow_id}}/dispatches": ["post"],
    f"{REPO}/actions/workflows/{{workflow_id}}/runs": ["get"],
    f"{REPO}/compare/{{basehead}}": ["get"],
    f"{REPO}/releases": ["get", "post"],
    f"{REPO}/collaborators/{{username}}/permission": ["get"],
    f"{REPO}/commits/{{ref}}": ["get"],
    f"{REPO}/rules/branches/{{branch}}": ["get"],
}


@cache
def _description() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(DESCRIPTION.read_text(encoding="utf-8"))
    return described


@cache
def load_contract() -> Contract:
    """What GitHub publishes about the operations that we use. A test of its own holds that the description is valid."""
    return Contract(api=OpenAPI.from_dict(_description(), config=Config(spec_validator_cls=None)))


@cache
def smallest(name: str) -> Mapping[str, Any]:
    """The smallest object that fits a schema of the description: its required properties, with empty values."""
    return MappingProxyType(_smallest(_description()["components"]["schemas"][name]))


def _smallest(schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        schema = _description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if schema.get("nullable"):
        return None
    if schema["type"] == "object":
        return {name: _smallest(schema["properties"][name]) for name in schema.get("required", [])}
    if schema["type"] == "string":
        first = schema.get("enum", [""])[0]
        return {"uri": SERVER, "date-time": NOW}.get(schema.get("format", ""), first)
    return {"array": [], "integer": 0, "boolean": False}[schema["type"]]


@dataclass(frozen=True)
class Exchange:
    """One request and its answer, in the shape that openapi-core reads."""

    method: str
    path: str
    parameters: RequestParameters
    body: bytes = b""
    status_code: int = 200
    data: bytes = b""
    content_type: str = "application/json"
    headers: Headers = field(default_factory=Headers)
    host_url: str = SERVER


@dataclass(frozen=True)
class Contract:
    """Compares what goes over the wire with what GitHub publishes."""

    api: OpenAPI

    def violations(
        self, method: str, path: str, query: list[tuple[str, str]], body: bytes, status: int, data: bytes
    ) -> list[str]:
        """What GitHub would not understand, and what the server would not get from GitHub."""
        asked, unknown = self._request_problem(method, path, tuple(query), body)
        answered = self._response_problem(method, path, status, data)
        return [problem for problem in ("" if unknown and status >= 400 else asked, answered) if problem]

    # Tests ask for the same again and again, and comparing takes ten times longer than answering.
    @lru_cache(maxsize=4096)  # noqa: B019 - `load_contract` makes one
    def _request_problem(
        self, method: str, path: str, query: tuple[tuple[str, str], ...], body: bytes
    ) -> tuple[str, bool]:
        """What is wrong with the request, and whether it is that GitHub has no such operation."""
        try:
            self.api.validate_request(_exchange(method, path, query=query, body=body))
        except OpenAPIError as exc:
            return f"request {method} {path}: {exc} {exc.__cause__ or ''}", _missing(exc)
        return "", False

    @lru_cache(maxsize=4096)  # noqa: B019 - `load_contract` makes one
    def _response_problem(self, method: str, path: str, status: int, data: bytes) -> str:
        exchange = _exchange(method, path, status_code=status, data=data)
        try:
            self.api.validate_response(exchange, exchange)
        except ResponseNotFound:
            return f"response {method} {path}: GitHub never answers {status}" if status < 400 else ""
        except OpenAPIError as exc:
            return f"response {method} {path} {status}: {exc} {exc.__cause__ or ''}"
        return ""


def _exchange(method: str, path: str, *, query: tuple[tuple[str, str], ...] = (), **more: Any) -> Exchange:
    parameters = RequestParameters(query=ImmutableMultiDict(query), header=Headers(), cookie=ImmutableMultiDict())
    return Exchange(method=method.lower(), path=path, parameters=parameters, **more)


def _missing(exc: OpenAPIError) -> bool:
    return type(exc).__name__ in {"PathNotFound", "OperationNotFound"}


def _cut(description: dict[str, Any]) -> dict[str, Any]:
    """The operations we use with all components that they reach, without what only explains them to people."""
    paths = {
        path: {method: description["paths"][path][method] for method in methods} for path, methods in OPERATIONS.items()
    }
    components: dict[str, dict[str, Any]] = {}

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        if not isinstance(node, dict):
            return
        for key in [key for key in node if key.startswith("x-") or (key in ANNOTATIONS and isinstance(node[key], str))]:
            del node[key]
        if isinstance(node.get("description"), str):
            # A response must have one.
            node["description"] = ""
        node.pop("examples", None)
        reference = node.get("$ref")
        if isinstance(reference, str):
            _, _, kind, name = reference.split("/")
            if name not in components.setdefault(kind, {}):
                components[kind][name] = description["components"][kind][name]
                walk(components[kind][name])
        for value in node.values():
            walk(value)

    walk(paths)
    return {
        "openapi": description["openapi"],
        "info": {"title": description["info"]["title"], "version": description["info"]["version"]},
        "servers": [{"url": SERVER}],
        "paths": paths,
        "components": components,
    }


if __name__ == "__main__":
    published = json.loads(fetch_member(PACKAGE, VERSION, "generated/api.github.com.json"))
    DESCRIPTION.write_text(json.dumps(_cut(published), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{PACKAGE}@{VERSION}: {len(OPERATIONS)} paths in {DESCRIPTION}")
