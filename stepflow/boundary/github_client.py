"""Sends requests to GitHub's API with PyGithub over a custom connection. PyGithub's own connection would follow a
transferred issue into another repository, treat a redirected write as done, and repeat a GET that is answered with 202.

PyGithub's objects are not used. If a field is missing, they send another request to an address from the answer, or
return None.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urljoin, urlsplit

import github
import pydantic
import requests
import requests.adapters
import requests.utils
from github.Auth import Token
from github.Consts import headerRateLimit, headerRateRemaining, headerRateReset
from github.Requester import HTTPSRequestsConnectionClass

from stepflow.boundary.git import system_authorities
from stepflow.boundary.github_failures import (
    CONFLICT,
    FORBIDDEN,
    GONE,
    NOT_FOUND,
    SERVER_ERRORS,
    TOO_MANY,
    UNPROCESSABLE,
    AnswerFailed,
    Redirected,
)
from stepflow.boundary.image_addresses import is_at
from stepflow.domain.activity import activity
from stepflow.domain.connection import DIRECT, Connection, is_loopback
from stepflow.domain.run import LARGEST_IMAGE, ImageProblem

TIMEOUT_SECONDS = 30
#: The version of the REST API that `github_types` reads. It is the newest one that all releases of Enterprise Server
#: know.
API_VERSION = "2022-11-28"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
OK, ACCEPTED, NO_CONTENT, ERRORS = 200, 202, 204, 400
#: In bytes. The download of a longer text is stopped.
LONGEST_TEXT = 200_000_000
MOST_REDIRECTS = 5
PAGE_SIZE = 100
_CHUNK = 65_536
_PORTS = {"http": 80, "https": 443}
_REPOSITORY = re.compile(r"/(?:repositories/\d+|repos/[^/]+/[^/]+)")

#: The equivalent REST status of each type of GraphQL error.
_GRAPHQL_STATUS = {
    "FORBIDDEN": FORBIDDEN,
    "NOT_FOUND": NOT_FOUND,
    "STALE_DATA": CONFLICT,
    "RATE_LIMIT": TOO_MANY,
    "RATE_LIMITED": TOO_MANY,
    "UNPROCESSABLE": UNPROCESSABLE,
    "BRANCH_PROTECTION_RULE_VIOLATION": UNPROCESSABLE,
    "INTERNAL": SERVER_ERRORS,
    "SERVICE_UNAVAILABLE": SERVER_ERRORS,
}


class NotReady(requests.RequestException):
    """The server has no answer yet."""


class NotGitHub(requests.RequestException):
    """The answer did not come from GitHub."""


#: Errors that a call of the client, or reading its answer, can raise.
VENDOR_ERRORS = (AnswerFailed, requests.RequestException, Redirected, pydantic.ValidationError)


class _ErrorAnswer(pydantic.BaseModel):
    message: str | None = None


class _GraphQLError(pydantic.BaseModel):
    message: str = "no message"
    type: str = ""
    extensions: dict[str, Any] | None = None

    @property
    def status(self) -> int:
        """The equivalent REST status. An error without a type is the server's own."""
        if not self.type and not self.extensions:
            return SERVER_ERRORS
        return _GRAPHQL_STATUS.get(self.type, ERRORS)


class _GraphQLAnswer(pydantic.BaseModel):
    data: Any = None
    errors: list[_GraphQLError] = []


class _Connection(HTTPSRequestsConnectionClass):
    """Uses the configured connection, and passes only acceptable answers to PyGithub."""

    def __init__(self, server: SplitResult, connection: Connection) -> None:
        port = server.port or _PORTS[server.scheme]
        super().__init__(server.hostname or "", port, timeout=TIMEOUT_SECONDS)
        self.protocol = server.scheme
        configure_session(self.session, connection)
        # Runs before requests follows a redirect.
        self.session.hooks["response"].append(_check_answer)


class _DirectSession(requests.Session):
    """Follows no redirect and reads no address of one: with `allow_redirects=False`, requests would still raise
    `ValueError` for a malformed address."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """There is none."""


class GitHubClient:
    """Sends the requests for one repository. If the repository itself was renamed, later requests use its new
    address."""

    def __init__(
        self,
        *,
        api_url: str,
        repository: str,
        token: str | None,
        connection: Connection = DIRECT,
    ) -> None:
        base_url = api_url.rstrip("/")
        self._github = github.Github(
            auth=Token(token) if token else None,
            base_url=base_url,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
            api_version=API_VERSION,
        )
        self._base, self._way = urlsplit(base_url), connection
        self._connection = _Connection(self._base, connection)
        self._repository = f"/repos/{repository}"
        #: Whether an answer said that the repository now has another name or owner.
        self.has_moved = False

    def turn_to(self, repository: str) -> None:
        """Use this name of the repository from now on."""
        self._repository = f"/repos/{repository}"

    def url_of(self, number: int) -> str:
        """Return the address of a repository by its id, which no renaming and no transfer changes."""
        return f"{self._base.geturl()}/repositories/{number}"

    def id_behind(self, name: str) -> int | None:
        """Return the id of the repository to which a name leads, its own or a former one; None for no repository."""
        try:
            _, data = self.ask("GET", f"{self._base.geturl()}/repos/{name}")
        except Redirected as moved:
            parts = split_url(moved.location)
            path = parts.path.removeprefix(self._base.path)
            number = re.fullmatch(r"/repositories/(\d+)", path)
            return int(number[1]) if number and (not parts.netloc or self._is_own(parts)) else None
        except AnswerFailed as exc:
            if exc.status != NOT_FOUND:
                raise
            return None
        return pydantic.TypeAdapter(int).validate_python(data.get("id"))

    @property
    def search_url(self) -> str:
        """The address of the search for issues, which is not below a repository."""
        return f"{self._base.geturl()}/search/issues"

    @property
    def graphql_url(self) -> str:
        """The address of GraphQL, which follows from that of the API."""
        return self._github.requester.graphql_url

    def ask(
        self,
        verb: str,
        url: str,
        *,
        parameters: dict[str, Any] | None = None,
        body: object = None,
        full: bool = False,
    ) -> tuple[dict[str, Any], Any]:
        """Send one request, and return the headers and the JSON of its answer. A relative `url` is below the
        repository's. `full` requests texts in every form that GitHub has, including HTML (REST, "Media types")."""
        accept = {"Accept": "application/vnd.github.full+json"} if full else {}
        try:
            status, headers, text = self._send(verb, url, parameters, accept, body)
        except Redirected:
            if not self._find_repository():
                raise
            # Try again at the new address.
            status, headers, text = self._send(verb, url, parameters, accept, body)
        try:
            data = json.loads(text) if text else None
        except (ValueError, RecursionError):
            if status < ERRORS or text.startswith(("{", "[")):
                raise NotGitHub("the answer is not JSON") from None
            data = {"data": text}
        if status >= ERRORS:
            raise self._failure(status, headers, data)
        return headers, data

    def pages(
        self, url: str, parameters: Mapping[str, str] | None = None, *, newest_first: bool = False, full: bool = False
    ) -> Iterator[Any]:
        """Yield the pages of a list. `newest_first` begins with the last page."""
        first = page = {**(parameters or {}), "per_page": str(PAGE_SIZE)}
        if newest_first:
            page = query_of_link(self.ask("GET", url, parameters=first)[0], "last") or first
        while page:
            headers, listed = self.ask("GET", url, parameters=page, full=full)
            yield listed
            page = query_of_link(headers, "prev" if newest_first else "next") if listed else {}

    def graphql(self, query: str, **variables: object) -> Any:  # noqa: ANN401 - JSON
        """Return the data of the answer to a GraphQL document."""
        body = {"query": query, "variables": variables}
        headers, data = self.ask("POST", self.graphql_url, body=body)
        answer = _GraphQLAnswer.model_validate(data)
        if answer.errors:
            known = (error.status for error in answer.errors if error.status != ERRORS)
            status = TOO_MANY if "retry-after" in headers else next(known, ERRORS)
            said = {"message": "; ".join(error.message for error in answer.errors)}
            raise self._failure(status, headers, said, answered=OK if status in (ERRORS, UNPROCESSABLE) else None)
        return answer.data

    def stored_bytes(self, url: str, *, last_bytes: int) -> bytes:
        """Return the end of a file that is stored outside of the API, at most `last_bytes` bytes. Return no bytes if
        the file is gone or longer than `LONGEST_TEXT`."""
        try:
            self.ask("GET", url)
        except AnswerFailed as exc:
            if exc.status not in (NOT_FOUND, GONE):
                raise
            return b""
        except Redirected as found:
            with self._open_stored(found.location) as response:
                if response.status_code in (NOT_FOUND, GONE):
                    return b""
                if response.status_code != OK:
                    raise NotGitHub("the text is not where the answer said") from None
                return _read_end(response, last_bytes, longest=LONGEST_TEXT)
        raise NotGitHub("the answer does not say where the text is")

    def stored_image(self, address: str, *, hosts: frozenset[str]) -> bytes | ImageProblem:
        """Return the content of an attachment. Every redirect must stay on one of the `hosts`."""
        for _ in range(MOST_REDIRECTS):
            if not is_at(address, hosts):
                return ImageProblem.LED_AWAY
            with self._open_stored(address) as response:
                status = response.status_code
                if status == OK:
                    return _read_end(response, LARGEST_IMAGE, longest=LARGEST_IMAGE) or ImageProblem.TOO_LARGE
                if status == TOO_MANY or status >= SERVER_ERRORS:
                    raise self._failure(status, {name.lower(): value for name, value in response.headers.items()}, {})
                if status not in REDIRECTS:
                    break
            try:
                address = urljoin(address, response.headers.get("location", ""))
            except ValueError:
                return ImageProblem.LED_AWAY
        return ImageProblem.FAILED

    @property
    def oauth_scopes(self) -> frozenset[str]:
        """The scopes of the token, according to the answers so far."""
        return frozenset(filter(None, self._github.oauth_scopes or ()))

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    @contextmanager
    def _open_stored(self, location: str) -> Iterator[requests.Response]:
        """Open an address outside of the API. The token is never sent there."""
        parts = split_url(location)
        is_local = parts.scheme == self._base.scheme == "http" and is_loopback(parts.hostname or "")
        if not is_local and parts.scheme != "https":
            raise NotGitHub("the answer leads to an address without encryption")
        with _DirectSession() as session:
            configure_session(session, self._way)
            with session.get(location, stream=True, timeout=TIMEOUT_SECONDS) as response:
                yield response

    def _send(
        self,
        verb: str,
        url: str,
        parameters: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        body: object = None,
    ) -> tuple[int, dict[str, Any], str]:
        whole = url if "://" in url else self._repository + url
        with activity(f"asking {self._base.hostname}"):
            return self._github.requester.requestJson(verb, whole, parameters, headers, body, self._connection)

    def _failure(
        self,
        status: int,
        headers: Mapping[str, str],
        data: Any,  # noqa: ANN401 - JSON
        *,
        answered: int | None = None,
    ) -> AnswerFailed:
        """Return the failure for an error answer from GitHub. A rate limit has the status 429, or the status 403 with
        certain words or headers."""
        message = _ErrorAnswer.model_validate(data or {}).message or ""
        says_so = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
        limited = status == FORBIDDEN and (says_so or self._github.requester.isRateLimitError(message))
        return AnswerFailed(status, headers, data or {}, is_limit=limited or status == TOO_MANY, answered=answered)

    def _find_repository(self) -> bool:
        """Return whether the repository itself has moved, and use its new address if so. A transferred issue alone is
        not followed."""
        try:
            self._send("GET", "")
        except Redirected as moved:
            parts = split_url(moved.location)
            path = parts.path.removeprefix(self._base.path)
            if (not parts.netloc or self._is_own(parts)) and _REPOSITORY.fullmatch(path):
                self._repository, self.has_moved = path, True
                return True
        return False

    def _is_own(self, parts: SplitResult) -> bool:
        """Return whether an address from the server belongs to its own API."""
        same_host = (parts.hostname, parts.port) == (self._base.hostname, self._base.port)
        return same_host and parts.scheme in (self._base.scheme, "https")


def _check_answer(answer: requests.Response, **_options: object) -> None:
    """Raise an error for answers that PyGithub must not see. Read the answer to its end, so that its connection can be
    used again."""
    status, headers, _ = answer.status_code, answer.headers, answer.content
    if status in REDIRECTS:
        raise Redirected(status, headers.get("location", ""))
    if status == ACCEPTED:
        raise NotReady("the answer is not ready yet")
    if status < ERRORS and status != NO_CONTENT and "json" not in headers.get("content-type", ""):
        # A proxy's page with status 200 would look like a successful write.
        raise NotGitHub("the answer is not JSON")
    try:
        _ = [int(float(headers.get(name, 0))) for name in (headerRateLimit, headerRateRemaining, headerRateReset)]
    except (ValueError, OverflowError):
        raise NotGitHub("a rate limit in the answer is not a number") from None


def _read_end(response: requests.Response, last_bytes: int, *, longest: int) -> bytes:
    """Return the end of the answer, without holding more than that. If the answer has more than `longest` bytes,
    return no bytes, regardless of the announced length."""
    end, size = bytearray(), 0
    for chunk in response.iter_content(_CHUNK):
        size += len(chunk)
        if size > longest:
            return b""
        end += chunk
        del end[: max(len(end) - last_bytes, 0)]
    return bytes(end)


def split_url(url: str) -> SplitResult:
    """Split an address from a server into its parts. Raise `NotGitHub` if it is invalid."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise NotGitHub("an address in the answer is not valid") from None
    return parts


def query_of_link(headers: Mapping[str, str], relation: str) -> dict[str, str]:
    """Return the query for the page that the `Link` header names, such as its `next`, or an empty dictionary if it
    names none. GitHub uses a page number or a cursor. The address of the list itself is known."""
    links = requests.utils.parse_header_links(headers.get("link", ""))
    named = (link["url"] for link in links if link.get("rel") == relation)
    return dict(parse_qsl(split_url(next(named, "")).query))


def configure_session(session: requests.Session, connection: Connection) -> None:
    """Make a session use only this connection, and no proxy, certificate or login from the process's environment."""
    session.trust_env = False
    session.proxies = {"https": connection.proxy} if connection.proxy else {}
    session.mount("https://", _Adapter(connection))


@cache
def _trusting(certificates: str) -> ssl.SSLContext:
    """Return a TLS context that trusts these authorities in addition to the machine's. It is shared by all sessions,
    because reading hundreds of authorities takes time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if system := system_authorities():
        context.load_verify_locations(cafile=str(system))
    if certificates:
        context.load_verify_locations(cadata=certificates)
    return context


class _Adapter(requests.adapters.HTTPAdapter):
    """Trusts the machine's authorities and the connection's. requests adds its bundled public ones."""

    def __init__(self, connection: Connection) -> None:
        self._context = _trusting(connection.certificates)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - requests' own method
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - requests' own method
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)
