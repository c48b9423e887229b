"""Google's credentials: what a credentials file says, and the access tokens that it gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
from google.auth import identity_pool
from google.auth.exceptions import GoogleAuthError, TransportError
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from stepflow.errors import InputError
from stepflow.model.access import GUIDE
from stepflow.model.faults import LoginFailed
from stepflow.model.http_client import LOGIN_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.json import JsonObject

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_HINT = "Check the login step before this one: its account, its workload identity provider and the job's permissions."
#: By the `type` of a file. One that starts a program to get its credentials is none of them.
_KINDS: Mapping[str, Any] = {
    "service_account": service_account.Credentials.from_service_account_info,
    "authorized_user": user_credentials.Credentials.from_authorized_user_info,
    "external_account": identity_pool.Credentials.from_info,
}
#: google-auth has types, but not for its constructors.
_UNREACHABLE: Any = TransportError


class GoogleCredentials:
    """Credentials as the SDK's client wants them, renewed here and through our own HTTP client: by the SDK's the
    environment would steer. Raises `InputError` for a file that gives none."""

    #: So that the SDK never renews them itself.
    expired = False

    def __init__(self, info: JsonObject, http: httpx2.Client) -> None:
        self._http = http
        self._credentials = _credentials(info)
        self._seen: dict[str, None] = {}

    @property
    def token(self) -> str | None:
        """The access token as it is now."""
        token: str | None = self._credentials.token
        return token

    def log_in(self) -> None:
        """Have a token that does not expire while a call begins. Raises `LoginFailed`."""
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
        """What no message may hold."""
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
        """One request, as google-auth wants it sent."""
        try:
            answer = self._http.request(
                method, url, content=body, headers=dict(headers or {}), timeout=timeout or LOGIN_TIMEOUT
            )
        except httpx2.HTTPError as error:
            raise _UNREACHABLE(f"{type(error).__name__}: {error}", retryable=True) from error
        return SimpleNamespace(status=answer.status_code, headers=answer.headers, data=answer.content)


def _credentials(info: JsonObject) -> Any:  # noqa: ANN401 - google-auth's classes share no typed constructor
    kind = str(info.get("type"))
    if kind not in _KINDS or "executable" in _source(info):
        raise InputError(
            f"The file of GOOGLE_APPLICATION_CREDENTIALS holds credentials of a kind that is not taken: {kind}.",
            hint=f"Taken are {', '.join(_KINDS)} (from a file or an address). See {GUIDE}.",
        )
    try:
        return _KINDS[kind](info, scopes=[SCOPE])
    except (GoogleAuthError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"The file of GOOGLE_APPLICATION_CREDENTIALS is no whole {kind}: {error}.",
            hint="Let the login step write it again.",
        ) from error


def _source(info: JsonObject) -> JsonObject:
    source = info.get("credential_source")
    return source if isinstance(source, dict) else {}
