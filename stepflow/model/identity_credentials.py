"""The job's identity in exchange for a token of the model's service: no key is stored anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from anthropic.lib.credentials import WorkloadIdentityCredentials

from stepflow.model.faults import LoginFailed
from stepflow.model.http_client import LOGIN_TIMEOUT
from stepflow.model.statuses import is_transient_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anthropic.lib.credentials import AccessToken

#: For whom the identity token is; Anthropic's documentation of GitHub Actions as identity provider names it.
AUDIENCE = "https://api.anthropic.com"
_RUNNER = "The runner gives identity tokens to jobs with the permission `id-token: write`; see the log of the runner."
_FIRST_REFUSAL = 400


class IdentityCredentials:
    """The SDK's workload identity over the job's identity token, which is fetched anew for each exchange.

    The SDK calls it, and calls it again before the token expires. `secrets` are the tokens that it has seen.
    `http` leads to the model's service at `address`, `runner` to `token_url`, where the job's identity comes from for
    `token_bearer`; `ids` are the federation's, by the SDK's names.
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
        """A fresh token of the service. Raises `LoginFailed`, or the SDK's `WorkloadIdentityError`."""
        token = self._exchange(force_refresh=force_refresh)
        self._seen[token.token] = None
        return token

    def secrets(self) -> tuple[str, ...]:
        """What no message may hold."""
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
            raise LoginFailed("The runner's identity service gave what is no token.", transient=True) from error
        if not isinstance(token, str) or not token:
            raise LoginFailed("The runner's identity service gave an empty token.", transient=True)
        return token
