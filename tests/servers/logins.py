"""Where a job logs in, on loopback: the runner's identity service, and Google's token services."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.servers.loopback import Handler, LoopbackServer

Json = dict[str, Any]
REQUEST_TOKEN = "request-token-of-the-job"


@dataclass
class LoginServer(LoopbackServer):
    """Gives identity tokens to whoever has the job's request token, and Google's access tokens for a signed or an
    exchanged assertion. `status` and `body` stand in the place of every answer once they are set."""

    status: int = 200
    body: str = ""
    lifetime: int = 3600
    audiences: list[str] = field(default_factory=list)
    identities: list[str] = field(default_factory=list)
    google_tokens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self)))

    @property
    def job(self) -> dict[str, str]:
        """The variables that a runner gives to a job with `id-token: write`."""
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/identity?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
        }

    @property
    def service_account(self) -> Json:
        """A credentials file with the private key of a service account."""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": "my-project",
            "private_key_id": "k1",
            "private_key": pem.decode(),
            "client_email": "ci@my-project.iam.gserviceaccount.com",
            "token_uri": f"{self.url}/google/token",
        }

    @property
    def external_account(self) -> Json:
        """A credentials file as google-github-actions/auth writes it: it holds the job's request token."""
        return {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/g",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}/google/sts",
            "credential_source": {
                "url": f"{self.url}/identity?api-version=2.0&audience=google",
                "headers": {"Authorization": f"Bearer {REQUEST_TOKEN}"},
                "format": {"type": "json", "subject_token_field_name": "value"},
            },
        }

    def answer(self, path: str, form: dict[str, list[str]], bearer: str) -> tuple[int, Json]:
        """What one request gets."""
        parts = urlsplit(path)
        if parts.path == "/identity":
            return self._identity(parse_qs(parts.query), bearer)
        if parts.path == "/google/token":
            return self._google(self._is_signed(form["assertion"][0]))
        if parts.path == "/google/sts":
            return self._google(form["subject_token"][0] in self.identities)
        return 404, {}

    def _identity(self, query: dict[str, list[str]], bearer: str) -> tuple[int, Json]:
        if bearer.lower() != f"bearer {REQUEST_TOKEN}" or query.get("api-version") != ["2.0"]:
            return 401, {}
        self.audiences += query.get("audience", [])
        claims = json.dumps({"sub": "repo:o/r:ref:refs/heads/main", "jti": len(self.identities)}).encode()
        self.identities.append(f"eyJhbGciOiJub25lIn0.{base64.urlsafe_b64encode(claims).decode()}.c2ln")
        return 200, {"count": 1, "value": self.identities[-1]}

    def _is_signed(self, assertion: str) -> bool:
        from google.auth import jwt

        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        claims = jwt.decode(assertion, certs=public, audience="https://oauth2.googleapis.com/token")
        return claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"

    def _google(self, proven: bool) -> tuple[int, Json]:
        if not proven:
            return 401, {"error": "invalid_grant", "error_description": "the assertion proves nothing"}
        self.google_tokens.append(f"ya29.given-{len(self.google_tokens)}")
        token = {"access_token": self.google_tokens[-1], "token_type": "Bearer", "expires_in": self.lifetime}
        return 200, token | {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}


def _handler_for(logins: LoginServer) -> type[Handler]:
    class LoginHandler(Handler):
        # Google's library leaves a connection open that the server does not close.
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            self._give({})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            self._give(parse_qs(raw.decode()))

        def _give(self, form: dict[str, list[str]]) -> None:
            status, value = logins.answer(self.path, form, self.headers.get("authorization", ""))
            spoilt = logins.status != 200 or logins.body
            body = (logins.body if spoilt else json.dumps(value)).encode()
            self.send_response(logins.status if logins.status != 200 else status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return LoginHandler
