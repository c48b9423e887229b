"""PyGithub's requests without its own ideas: one request per call, and no redirect that leads somewhere else.

Takes: the API's address, the repository, a token. Gives: a `Requester` for PyGithub's objects.
May touch: the GitHub API. PyGithub would follow a transferred issue into another repository, take a redirected write
for done and repeat a GET that is answered with 202.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from github.Auth import Token
from github.Consts import DEFAULT_USER_AGENT
from github.Repository import Repository
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester

from stepflow.boundary.leading import lead_session
from stepflow.domain.way import DIRECT, Way

if TYPE_CHECKING:
    from github.Requester import RequestsResponse

TIMEOUT_SECONDS = 30
REDIRECTS = frozenset({301, 302, 303, 307, 308})
ACCEPTED, NO_CONTENT, ERRORS = 202, 204, 400
_REPOSITORY = re.compile(r"/(?:repositories/\d+|repos/[^/]+/[^/]+)")


class Redirected(Exception):
    """The answer is somewhere else."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"it answered {status}: moved to {location or 'an unnamed place'}")
        self.status, self.location = status, location


class NotReady(requests.RequestException):
    """The server will know later."""


class NotGitHub(requests.RequestException):
    """Something else than GitHub answered."""


class GitHubRequests(Requester):
    """The requests of one repository. Where the repository itself was renamed, its new address is used from then on."""

    def __init__(
        self, *, api_url: str, repository: str, token: str | None, timeout: int | None = None, way: Way = DIRECT
    ) -> None:
        base_url, seconds = api_url.rstrip("/"), timeout or TIMEOUT_SECONDS
        super().__init__(
            auth=Token(token) if token else None,
            base_url=base_url,
            timeout=seconds,
            user_agent=DEFAULT_USER_AGENT,
            per_page=100,
            verify=True,
            retry=None,
            pool_size=None,
            lazy=True,
        )
        parts = urlsplit(base_url)
        self._server, self._prefix = (parts.scheme, parts.netloc), parts.path
        connection = _PlainHttp if parts.scheme == "http" else _PlainHttps
        self._connection = connection(parts.hostname or "", parts.port, timeout=seconds)
        lead_session(self._connection.session, way)
        self._old, self._new = f"/repos/{repository}", f"/repos/{repository}"

    @property
    def repository(self) -> Repository:
        """The repository, not asked for yet."""
        return Repository(self, url=self._old)

    @property
    def has_moved(self) -> bool:
        """Whether an answer has told that the repository has another name, or another owner, now."""
        return self._new != self._old

    def requestJson(  # noqa: PLR0917 - PyGithub's own method
        self,
        verb: str,
        url: str,
        parameters: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        input: object = None,
        cnx: HTTPRequestsConnectionClass | HTTPSRequestsConnectionClass | None = None,
        follow_302_redirect: bool = False,
    ) -> tuple[int, dict[str, Any], str]:
        """One request; once more at the new address when that is how it turns out that the repository was renamed."""
        if cnx is not None:
            raise RuntimeError("GitHub's answer leads to another server")
        try:
            return super().requestJson(verb, self._address(url), parameters, headers, input, self._connection)
        except Redirected as redirected:
            if not self._renamed(redirected):
                raise
        return super().requestJson(verb, self._address(url), parameters, headers, input, self._connection)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        super().close()

    def _address(self, url: str) -> str:
        """The same at the repository's present address, which a renaming may have changed."""
        parts = urlsplit(url)
        prefix = self._prefix if parts.netloc else ""
        path = parts.path.removeprefix(prefix)
        if path != self._old and not path.startswith(f"{self._old}/"):
            return url
        return parts._replace(path=prefix + self._new + path.removeprefix(self._old)).geturl()

    def _renamed(self, redirected: Redirected) -> bool:
        """True when the repository itself is elsewhere now; a transferred issue alone is nothing to follow."""
        if self._new != self._old:
            return False
        try:
            super().requestJson("GET", self._old, cnx=self._connection)
        except Redirected as moved:
            parts = urlsplit(moved.location)
            here = not parts.netloc or (parts.scheme, parts.netloc) == self._server
            path = parts.path.removeprefix(self._prefix)
            if here and _REPOSITORY.fullmatch(path):
                self._new = path
        return self._new != self._old


class _PlainHttp(HTTPRequestsConnectionClass):
    def getresponse(self) -> RequestsResponse:
        return _plain(super().getresponse())


class _PlainHttps(HTTPSRequestsConnectionClass):
    def getresponse(self) -> RequestsResponse:
        return _plain(super().getresponse())


def _plain(response: RequestsResponse) -> RequestsResponse:
    if response.status in REDIRECTS:
        raise Redirected(response.status, response.headers.get("location", ""))
    if response.status == ACCEPTED:
        raise NotReady("the answer is not ready yet")
    json = "json" in response.headers.get("content-type", "")
    if response.status < ERRORS and response.status != NO_CONTENT and not json:
        # A proxy's page with 200 would pass for a write that was done.
        raise NotGitHub("the answer is no JSON")
    return response
