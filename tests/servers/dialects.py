"""How the same Messages API looks from service to service: addresses, logins, bodies, streams and errors."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import unquote

from tests.servers.messages_api_replies import Failure, Json

OAUTH_BETA = "oauth-2025-04-20"
FEDERATION_BETA = "oidc-federation-2026-04-01"
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}")
#: Ids of models that take only an old version of the API (platform.claude.com, "Claude on Amazon Bedrock (Opus 4.6 and
#: earlier)").
OLD_ON_BEDROCK = (
    "anthropic.claude-opus-4-6-v1",
    "us.anthropic.claude-sonnet-4-6",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "anthropic.claude-haiku-4-5-20251001-v1:0",
    "eu.anthropic.claude-3-7-sonnet-20250219-v1:0",
)


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came. `headers` are lower-cased; requests of the same `connection` came one after the other."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json
    raw: bytes = field(default=b"", repr=False)
    connection: int = 0


@dataclass(frozen=True, kw_only=True)
class Document:
    """An answer that is no message: JSON."""

    value: Json


class Dialect(Protocol):
    """What a service does its own way."""

    stream_type: str

    def read(self, request: Received) -> Received | Failure | Document:
        """The same request at the Anthropic API, or what comes back instead of a message."""

    def frame(self, name: str, text: str) -> bytes:
        """One event of a stream."""

    def error(self, failure: Failure) -> Json:
        """The body of a refusal."""


@dataclass
class AnthropicDialect:
    """The Anthropic API itself, and servers that resemble it; a key in either header."""

    key: str
    stream_type: str = "text/event-stream; charset=utf-8"

    def read(self, request: Received) -> Received | Failure | Document:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key not in (request.headers.get("x-api-key"), bearer):
            return Failure(status=401, error="authentication_error", message="invalid x-api-key")
        if not request.headers.get("anthropic-version"):
            return refused("anthropic-version: header is required")
        return request

    def frame(self, name: str, text: str) -> bytes:
        return f"event: {name}\ndata: {text}\n\n".encode()

    def error(self, failure: Failure) -> Json:
        error = {"type": failure.error, "message": failure.message}
        if failure.details:
            error["details"] = failure.details  # type: ignore[assignment]
        return {"type": "error", "error": error, "request_id": "req_scripted"}


@dataclass
class FederatedDialect(AnthropicDialect):
    """The Anthropic API for a workload identity: identity tokens are exchanged for tokens that expire."""

    key: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    lifetime: int = 600
    refusal: Failure | None = None
    knows: Callable[[str], bool] = bool
    """Whether an identity token is one that was really given out, and for us."""
    exchanges: list[Json] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    def read(self, request: Received) -> Received | Failure | Document:
        if (request.method, request.path) == ("POST", "/v1/oauth/token"):
            return self._exchange(request)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not self.given or token != self.given[-1] or "x-api-key" in request.headers:
            return Failure(status=401, error="authentication_error", message="invalid bearer token")
        if OAUTH_BETA not in request.headers.get("anthropic-beta", "").split(","):
            return Failure(status=401, error="authentication_error", message="OAuth authentication is not supported")
        return request

    def _exchange(self, request: Received) -> Failure | Document:
        betas = request.headers.get("anthropic-beta", "").split(",")
        expected = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", **self.ids}
        sent = {name: value for name, value in request.body.items() if name != "assertion"}
        if self.refusal:
            return self.refusal
        if FEDERATION_BETA not in betas or sent != expected or "authorization" in request.headers:
            return Failure(status=400, error="invalid_request", message=f"wrong exchange: {sent} {betas}")
        if not self.knows(str(request.body["assertion"])):
            return Failure(status=401, error="invalid_grant", message="the assertion is not known")
        self.exchanges.append(request.body)
        self.given.append(f"sk-ant-oat01-given-{len(self.exchanges)}")
        token = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": self.lifetime}
        return Document(value=token)


@dataclass
class VertexDialect(AnthropicDialect):
    """Vertex AI: the model in the path, its version in the body, a Bearer token."""

    project: str = "my-project"
    region: str = "europe-west1"
    is_token: Callable[[str], bool] | None = None

    def read(self, request: Received) -> Received | Failure | Document:
        prefix = f"/v1/projects/{self.project}/locations/{self.region}/publishers/anthropic/models/"
        name, colon, verb = unquote(request.path.removeprefix(prefix)).rpartition(":")
        if not request.path.startswith(prefix) or not colon or "/" in name:
            return Failure(status=404, error="NOT_FOUND", message=f"no such path: {request.path}")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not (self.is_token(token) if self.is_token else token == self.key):
            return Failure(status=401, error="UNAUTHENTICATED", message="invalid authentication credentials")
        if "x-api-key" in request.headers or "model" in request.body:
            return refused("a key or a model where none belongs")
        if (verb == "streamRawPredict") is not bool(request.body.get("stream")):
            return refused(f"{verb} with stream {request.body.get('stream')}")
        return _without_version(request, model=name)

    def error(self, failure: Failure) -> Json:
        return {"error": {"code": failure.status, "message": failure.message, "status": failure.error}}


@dataclass
class FoundryDialect(AnthropicDialect):
    """Microsoft Foundry: the API below a path of the resource, with a key in its own header or an Entra token."""

    token: str = ""

    def read(self, request: Received) -> Received | Failure | Document:
        if not request.path.startswith("/anthropic/"):
            return Failure(status=404, error="404", message="Resource not found")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        by_key = self.key and request.headers.get("api-key") == request.headers.get("x-api-key") == self.key
        by_token = self.token and bearer == self.token and "api-key" not in request.headers
        if not (by_key and not bearer) and not by_token:
            return Failure(status=401, error="401", message="Access denied due to invalid subscription key")
        if not _DATED.fullmatch(request.headers.get("anthropic-version", "")):
            return refused("anthropic-version: header is required")
        return replace(request, path=request.path.removeprefix("/anthropic"))

    def error(self, failure: Failure) -> Json:
        return {"error": {"code": failure.error, "message": failure.message}}


@dataclass
class BedrockDialect(AnthropicDialect):
    """Amazon Bedrock: the model in the path, requests signed or with a Bedrock key, answers in AWS's event frames."""

    key: str = ""
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""
    region: str = "eu-west-1"
    stream_type: str = "application/vnd.amazon.eventstream"

    def read(self, request: Received) -> Received | Failure | Document:
        if problem := self._unsigned(request):
            return Failure(status=403, error="AccessDeniedException", message=problem)
        match = re.fullmatch(r"/model/([^/]+)/(invoke|invoke-with-response-stream)", request.path)
        if not match or request.method != "POST":
            return Failure(status=404, error="ResourceNotFoundException", message=f"no such path: {request.path}")
        if {"model", "stream"} & request.body.keys():
            return refused("extraneous key [model] is not permitted", error="ValidationException")
        model, version = unquote(match[1]), request.body.get("anthropic_version")
        if (model in OLD_ON_BEDROCK or "application-inference-profile" in model) and version != "bedrock-2023-05-31":
            return refused(f"Invalid API version: {version}", error="ValidationException")
        streams = {"stream": True} if match[2] == "invoke-with-response-stream" else {}
        return _without_version(request, model=model, **streams)

    def frame(self, name: str, text: str) -> bytes:
        """Event frames hold the event's JSON as base64; what is no JSON spoils the frame itself."""
        if text == "{not json":
            return event_frame({":event-type": "chunk"}, b"{}")[:-1] + b"\0"
        if name.endswith("Exception"):
            return event_frame({":message-type": "exception", ":exception-type": name}, text.encode())
        payload = json.dumps({"bytes": base64.b64encode(text.encode()).decode(), "p": "abcdefgh"})
        return event_frame({":event-type": "chunk", ":message-type": "event"}, payload.encode())

    def error(self, failure: Failure) -> Json:
        return {"message": failure.message}

    def _unsigned(self, request: Received) -> str:
        given = request.headers.get("authorization", "")
        if self.key:
            return "" if given == f"Bearer {self.key}" else "the Bedrock key is wrong"
        return sigv4_problem(
            request,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            region=self.region,
        )


def refused(message: str, error: str = "invalid_request_error") -> Failure:
    """A request that the service does not take."""
    return Failure(status=400, error=error, message=message)


def _without_version(request: Received, **more: Any) -> Received | Failure:
    body = dict(request.body)
    if not _DATED.search(str(body.pop("anthropic_version", ""))):
        return refused("anthropic_version: Field required")
    return replace(request, path="/v1/messages", body={**body, **more})


def event_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message of AWS's event stream encoding: prelude, headers, payload, each with its checksum."""
    packed = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in {**headers, ":content-type": "application/json"}.items()
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def sigv4_problem(request: Received, *, access_key: str, secret_key: str, session_token: str, region: str) -> str:
    """What is wrong with a signature, computed anew by botocore from what came over the wire; empty when nothing is."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    form = r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), "
    match = re.fullmatch(form + r"Signature=([0-9a-f]{64})", request.headers.get("authorization", ""))
    if not match:
        return "Missing Authentication Token"
    signer, _, region_signed, service, names, signature = match.groups()
    if (signer, region_signed, service) != (access_key, region, "bedrock"):
        return f"signed by {signer} for {region_signed}/{service}"
    if request.headers.get("x-amz-security-token", "") != session_token:
        return "The security token included in the request is invalid"
    if "host" not in names.split(";") or "x-amz-date" not in names.split(";"):
        return f"host and x-amz-date are not signed: {names}"
    signed = {name: request.headers[name] for name in names.split(";")}
    again = AWSRequest(
        method=request.method,
        url=f"http://{request.headers['host']}{request.path}",
        headers=signed,
        data=request.raw,
    )
    again.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(Credentials(access_key, secret_key), service, region)
    expected = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
    return "" if expected == signature else "The request signature we calculated does not match"
