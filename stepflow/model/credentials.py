"""Credentials that expire and are renewed here: Google's access tokens, and tokens that the model's service exchanges
for the job's identity. No key is stored."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx2
from anthropic import AnthropicError
from anthropic.lib.credentials import AccessToken, WorkloadIdentityCredentials

from stepflow.domain.conversation import ModelFault
from stepflow.domain.json import JsonObject
from stepflow.errors import InputError
from stepflow.model.http_client import LOGIN_TIMEOUT
from stepflow.model.models import GUIDE, is_transient_status

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_HINT = "Check the login step before this one: its account, its workload identity provider and the job's permissions."
#: The audience of the identity token, from Anthropic's documentation of GitHub Actions as an identity provider.
AUDIENCE = "https://api.anthropic.com"
_RUNNER = "The runner gives identity tokens to jobs with the permission `id-token: write`; see the log of the runner."
_FIRST_REFUSAL = 400


class LoginFailed(AnthropicError):
    """No credential for the model's service is available. `fault` says why; if it is `transient`, a retry may help.

    Derives from the SDK's base error, so that the SDK passes it through instead of reporting a connection error.
    """

    def __init__(self, reason: str, *, hint: str = "", transient: bool = False) -> None:
        super().__init__(reason)
        self.fault = ModelFault(reason=reason, hint=hint, transient=transient)


class GoogleCredentials:
    """Credentials in the form that the SDK's client expects. They are renewed here through stepflow's HTTP client,
    because the environment can influence the SDK's. The constructor raises `InputError` for a file without usable
    credentials."""

    #: Always false, so that the SDK never renews them itself.
    expired = False

    def __init__(self, info: JsonObject, http: httpx2.Client) -> None:
        self._http = http
        self._credentials = _credentials(info)
        self._seen: dict[str, None] = {}

    @property
    def token(self) -> str | None:
        """Return the current access token."""
        token: str | None = self._credentials.token
        return token

    def log_in(self) -> None:
        """Get a token that will not expire while a call begins. Raise `LoginFailed` on failure."""
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        if self._credentials.token and not self._credentials.expired:
            return
        try:
            self._credentials.refresh(self._send)
        except GoogleAuthError as error:
            said = " ".join(str(part) for part in error.args[:1]) or type(error).__name__
            raise LoginFailed(
                f"The login at Google failed: {said}",
                hint=_HINT,
                transient=bool(error.retryable),
            ) from error
        self._seen[self._credentials.token or ""] = None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets to keep out of messages."""
        return tuple(token for token in self._seen if token)

    def _send(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_more: object,
    ) -> SimpleNamespace:
        """Send one request in the way that google-auth expects."""
        from google.auth.exceptions import TransportError  # noqa: PLC0415

        try:
            answer = self._http.request(
                method, url, content=body, headers=dict(headers or {}), timeout=timeout or LOGIN_TIMEOUT
            )
        except httpx2.HTTPError as error:
            # The constructors of google-auth are untyped.
            unreachable: Any = TransportError
            raise unreachable(f"{type(error).__name__}: {error}", retryable=True) from error
        return SimpleNamespace(status=answer.status_code, headers=answer.headers, data=answer.content)


def _credentials(info: JsonObject) -> Any:  # noqa: ANN401 - google-auth's classes share no typed constructor
    # Loaded here: installed only with the extra `vertex`.
    from google.auth import identity_pool  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
    from google.oauth2 import credentials, service_account  # noqa: PLC0415

    # Credentials that start a program are not supported.
    kinds: Mapping[str, Any] = {
        "service_account": service_account.Credentials.from_service_account_info,
        "authorized_user": credentials.Credentials.from_authorized_user_info,
        "external_account": identity_pool.Credentials.from_info,
    }
    kind = str(info.get("type"))
    if kind not in kinds or "executable" in _source(info):
        raise InputError(
            f"The file of GOOGLE_APPLICATION_CREDENTIALS contains credentials of an unsupported kind: {kind}.",
            hint=f"Supported are {', '.join(kinds)} (from a file or an address). See {GUIDE}.",
        )
    try:
        return kinds[kind](info, scopes=[SCOPE])
    except (GoogleAuthError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"The file of GOOGLE_APPLICATION_CREDENTIALS is not a complete {kind}: {str(error).rstrip('.')}.",
            hint="Let the login step write it again.",
        ) from error


def _source(info: JsonObject) -> JsonObject:
    source = info.get("credential_source")
    return source if isinstance(source, dict) else {}


class IdentityCredentials:
    """The SDK's workload identity, based on the job's identity token. Each exchange fetches a new one.

    The SDK calls this object, and again before the token expires. `secrets` returns the tokens seen so far. `http`
    connects to the model's service at `address`. `runner` connects to `token_url`, which issues the job's identity for
    `token_bearer`. `ids` are the ids of the federation, by the SDK's names.
    """

    def __init__(
        self,
        token_url: str,
        token_bearer: str,
        *,
        runner: httpx2.Client,
        address: str,
        http: httpx2.Client,
        ids: Mapping[str, Any],
    ) -> None:
        self._token_url, self._token_bearer, self._runner = token_url, token_bearer, runner
        self._seen: dict[str, None] = {}
        self._exchange = WorkloadIdentityCredentials(
            identity_token_provider=self._identity_token, http_client=http, **ids
        )
        self._exchange.bind_base_url(address)

    def __call__(self, *, force_refresh: bool = False) -> AccessToken:
        """Return a new token of the service. Raise `LoginFailed`, or the SDK's `WorkloadIdentityError`, on failure."""
        token = self._exchange(force_refresh=force_refresh)
        self._seen[token.token] = None
        return token

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets to keep out of messages."""
        return (self._token_bearer, self._token_url, *self._seen)

    def _identity_token(self) -> str:
        url = httpx2.URL(self._token_url).copy_merge_params({"audience": AUDIENCE})
        try:
            answer = self._runner.get(
                url, headers={"Authorization": f"Bearer {self._token_bearer}"}, timeout=LOGIN_TIMEOUT
            )
        except httpx2.HTTPError as error:
            reason = f"The runner's identity service cannot be reached: {type(error).__name__}: {error}"
            raise LoginFailed(reason.rstrip(": ") + ".", transient=True) from error
        if answer.status_code >= _FIRST_REFUSAL:
            raise LoginFailed(
                f"The runner's identity service gives this job no token: it answered {answer.status_code}.",
                hint=_RUNNER,
                transient=is_transient_status(answer.status_code),
            )
        token = self._token_in(answer)
        self._seen[token] = None
        return token

    def _token_in(self, answer: httpx2.Response) -> str:
        try:
            token = answer.json()["value"]
        except (ValueError, LookupError, TypeError) as error:
            raise LoginFailed(
                "The runner's identity service gave something that is not a token.", transient=True
            ) from error
        if not isinstance(token, str) or not token:
            raise LoginFailed("The runner's identity service gave an empty token.", transient=True)
        return token
