"""The client of GitHub's API: one request per call, no redirect that leads somewhere else, one translation of errors.

PyGithub would follow a transferred issue into another repository, take a redirected write for done and repeat a GET
that is answered with 202.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit

import github
import pydantic
import requests
import requests.utils
from github.Auth import Token
from github.Consts import DEFAULT_USER_AGENT
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester

from stepflow.boundary.connection import configure_session
from stepflow.boundary.images import is_at
from stepflow.boundary.retry_policy import CONFLICT, FORBIDDEN, NOT_FOUND, SERVER_ERRORS, TOO_MANY
from stepflow.domain.connection import DIRECT, Connection, is_loopback
from stepflow.domain.run import LARGEST_IMAGE, ImageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


TIMEOUT_SECONDS = 30
#: The version of the REST API whose answers `github_types` reads. Enterprise Server knows no newer one in all releases.
API_VERSION = "2022-11-28"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
OK, ACCEPTED, NO_CONTENT, ERRORS = 200, 202, 204, 400
GONE, UNPROCESSABLE = 410, 422
LONGEST_DETAIL = 300
#: Bytes. A longer text is not fetched to its end.
LONGEST_TEXT = 200_000_000
MOST_REDIRECTS = 5
_CHUNK = 65_536
_REPOSITORY = re.compile(r"/(?:repositories/\d+|repos/[^/]+/[^/]+)")

#: What the status of an answer would be in REST, by the type of GraphQL's error.
_GRAPHQL_STATUS = {
    "FORBIDDEN": FORBIDDEN,
    "NOT_FOUND": NOT_FOUND,
    "STALE_DATA": CONFLICT,
    "RATE_LIMIT": TOO_MANY,
    "RATE_LIMITED": TOO_MANY,
    "INTERNAL": SERVER_ERRORS,
    "SERVICE_UNAVAILABLE": SERVER_ERRORS,
}


class Redirected(Exception):
    """The answer is somewhere else."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"it answered {status}: moved to {location or 'an unnamed place'}")
        self.status, self.location = status, location


class NotReady(requests.RequestException):
    """The server will know later."""


class NotGitHub(requests.RequestException):
    """Something else than GitHub answered."""


#: What a call of the client, or reading its answer, can raise.
VENDOR_ERRORS = (github.GithubException, requests.RequestException, Redirected, pydantic.ValidationError)


class _ErrorAnswer(pydantic.BaseModel):
    message: str | None = None


class _GraphQLError(pydantic.BaseModel):
    message: str = "no message"
    type: str = ""
    extensions: dict[str, Any] | None = None

    @property
    def status(self) -> int:
        """What the status would be in REST. An error that names no kind is one of the server's own."""
        if not self.type and not self.extensions:
            return SERVER_ERRORS
        return _GRAPHQL_STATUS.get(self.type, ERRORS)


class _GraphQLErrors(pydantic.BaseModel):
    errors: list[_GraphQLError] = []


class GitHubClient(Requester):
    """The requests of one repository. Where the repository itself was renamed, its new address is used from then on."""

    def __init__(
        self,
        *,
        api_url: str,
        repository: str,
        token: str | None,
        connection: Connection = DIRECT,
    ) -> None:
        base_url = api_url.rstrip("/")
        super().__init__(
            auth=Token(token) if token else None,
            base_url=base_url,
            timeout=TIMEOUT_SECONDS,
            user_agent=DEFAULT_USER_AGENT,
            per_page=100,
            verify=True,
            retry=None,
            pool_size=None,
            lazy=True,
            api_version=API_VERSION,
        )
        self._base = urlsplit(base_url)
        is_plain = self._base.scheme == "http"
        connection_class = HTTPRequestsConnectionClass if is_plain else HTTPSRequestsConnectionClass
        self._connection = connection_class(self._base.hostname or "", self._base.port, timeout=TIMEOUT_SECONDS)
        configure_session(self._connection.session, connection)
        self._way = connection
        self._connection.session.hooks["response"].append(_check_response)
        self._old, self._new = f"/repos/{repository}", f"/repos/{repository}"

    def ask(
        self,
        verb: str,
        url: str,
        *,
        parameters: dict[str, Any] | None = None,
        body: object = None,
        full: bool = False,
    ) -> tuple[dict[str, Any], Any]:
        """One request: the headers and the JSON of its answer. `url` is below the repository's when it is relative;
        `full` asks for texts in every form that GitHub knows, HTML among them (REST, "Media types")."""
        whole = url if "://" in url else self._old + url
        if "://" in url and not self._is_own(split_url(url)):
            raise NotGitHub("the answer leads to another server")
        try:
            status, headers, text = self._send(verb, whole, parameters, body, full)
        except Redirected as redirected:
            if not self._renamed(redirected):
                raise
            # Once more at the new address.
            status, headers, text = self._send(verb, whole, parameters, body, full)
        try:
            data = json.loads(text) if text else None
        except (ValueError, RecursionError):
            if status < ERRORS or text.startswith(("{", "[")):
                raise NotGitHub("the answer is no JSON") from None
            data = {"data": text}
        if status >= ERRORS:
            raise self._failure(status, headers, data)
        return headers, data

    def graphql(self, query: str, **variables: object) -> Any:  # noqa: ANN401 - JSON
        """The data of a GraphQL document's answer."""
        body = {"query": query, "variables": variables}
        headers, data = self.ask("POST", self.graphql_url, body=body)
        if not isinstance(data, dict):
            raise NotGitHub("the answer is not GraphQL")
        if errors := _GraphQLErrors.model_validate(data).errors:
            known = (error.status for error in errors if error.status != ERRORS)
            status = TOO_MANY if "retry-after" in headers else next(known, ERRORS)
            raise self._failure(status, headers, {"message": "; ".join(error.message for error in errors)})
        return data.get("data")

    def stored_text(self, url: str, *, last_bytes: int) -> str:
        """The end of a text that the API keeps elsewhere, at most so many bytes; empty when it is gone or longer than
        `LONGEST_TEXT`."""
        try:
            self.ask("GET", url)
        except Redirected as found:
            return self._fetch_end(found.location, last_bytes).decode("utf-8-sig", errors="replace")
        raise NotGitHub("the answer does not say where the text is")

    def _fetch_end(self, location: str, last_bytes: int) -> bytes:
        with self._stored(location) as response:
            if response.status_code in (NOT_FOUND, GONE):
                return b""
            if response.status_code != OK:
                raise NotGitHub("the text is not where the answer said")
            return _end(response.iter_content(_CHUNK), last_bytes)

    def stored_image(self, address: str, *, hosts: frozenset[str]) -> bytes | ImageProblem:
        """What is at the address of an attachment, as long as it leads to no other hosts than these."""
        for _ in range(MOST_REDIRECTS):
            if not is_at(address, hosts):
                return ImageProblem.LED_AWAY
            with self._stored(address) as response:
                status = response.status_code
                if status == OK:
                    return _whole(response.iter_content(_CHUNK)) or ImageProblem.TOO_LARGE
                if status == TOO_MANY or status >= SERVER_ERRORS:
                    raise self.createException(status, dict(response.headers), {})
                if status not in REDIRECTS:
                    break
                address = urljoin(address, response.headers.get("location", ""))
        return ImageProblem.FAILED

    @contextmanager
    def _stored(self, location: str) -> Iterator[requests.Response]:
        """The answer at an address outside of the API, which our token never goes to."""
        parts = split_url(location)
        is_local = parts.scheme == self._base.scheme == "http" and is_loopback(parts.hostname or "")
        if not is_local and parts.scheme != "https":
            raise NotGitHub("the answer leads to an address without encryption")
        with requests.Session() as session:
            configure_session(session, self._way)
            with session.get(location, stream=True, allow_redirects=False, timeout=TIMEOUT_SECONDS) as response:
                yield response

    def pages(self, url: str, *, newest_first: bool = False, full: bool = False, **parameters: str) -> Iterator[Any]:
        """The pages of a list; `newest_first` begins with the last one."""
        page: str | None = url
        query: dict[str, Any] | None = {**parameters, "per_page": self.per_page}
        if newest_first and (last := link_to(self.ask("GET", url, parameters=query)[0], "last")):
            page, query = last, None
        while page:
            headers, listed = self.ask("GET", page, parameters=query, full=full)
            yield listed or []
            page, query = link_to(headers, "prev" if newest_first else "next") if listed else None, None

    @property
    def has_moved(self) -> bool:
        """Whether an answer said that the repository has another name, or another owner, now."""
        return self._new != self._old

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        super().close()

    def _is_own(self, parts: SplitResult) -> bool:
        """Whether an address that the server gave is one of its own API's."""
        return (
            parts.scheme in (self._base.scheme, "https")
            and (parts.hostname, parts.port) == (self._base.hostname, self._base.port)
            and parts.path.startswith((self._base.path, "/api/"))
        )

    def _send(
        self,
        verb: str,
        url: str,
        parameters: dict[str, Any] | None = None,
        body: object = None,
        full: bool = False,
    ) -> tuple[int, dict[str, Any], str]:
        headers = {"Accept": "application/vnd.github.full+json"} if full else {}
        return self.requestJson(verb, self._address(url), parameters, headers, body, self._connection)

    def _failure(self, status: int, headers: dict[str, Any], data: Any) -> github.GithubException:  # noqa: ANN401 - JSON
        """PyGithub's exception for an answer of GitHub's, which is known by its form."""
        _ErrorAnswer.model_validate(data or {})
        return self.createException(status, headers, data)

    def _address(self, url: str) -> str:
        """The same at the repository's present address, which a renaming may have changed."""
        parts = split_url(url)
        prefix = self._base.path if parts.netloc else ""
        path = parts.path.removeprefix(prefix)
        if path != self._old and not path.startswith(f"{self._old}/"):
            return url
        return parts._replace(path=prefix + self._new + path.removeprefix(self._old)).geturl()

    def _renamed(self, redirected: Redirected) -> bool:
        """True when the repository itself is elsewhere now; a transferred issue alone is nothing to follow."""
        if self._new != self._old:
            return False
        try:
            self._send("GET", self._old)
        except Redirected as moved:
            parts = split_url(moved.location)
            path = parts.path.removeprefix(self._base.path)
            if (not parts.netloc or self._is_own(parts)) and _REPOSITORY.fullmatch(path):
                self._new = path
        return self._new != self._old


def _check_response(response: requests.Response, **_options: object) -> None:
    """What PyGithub must not see; it is read to its end, so that its connection can be used again."""
    status, is_json = response.status_code, "json" in response.headers.get("content-type", "")
    _ = response.content
    if status in REDIRECTS:
        raise Redirected(status, response.headers.get("location", ""))
    if status == ACCEPTED:
        raise NotReady("the answer is not ready yet")
    if status < ERRORS and status != NO_CONTENT and not is_json:
        # A proxy's page with 200 would pass for a write that was done.
        raise NotGitHub("the answer is no JSON")


def _end(chunks: Iterable[bytes], last_bytes: int) -> bytes:
    """No more than the end is held; nothing when there are more than `LONGEST_TEXT`."""
    end, size = bytearray(), 0
    for chunk in chunks:
        size += len(chunk)
        if size > LONGEST_TEXT:
            return b""
        end += chunk
        del end[: max(len(end) - last_bytes, 0)]
    return bytes(end)


def _whole(chunks: Iterable[bytes]) -> bytes:
    """All of an image; nothing when there is more than `LARGEST_IMAGE`, however much was announced."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_IMAGE:
            return b""
    return bytes(data)


def split_url(url: str) -> SplitResult:
    """The parts of an address that a server gave."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        raise NotGitHub("an address in the answer is none") from None
    return parts


def link_to(headers: Mapping[str, str], relation: str) -> str | None:
    """The address behind a relation of the `Link` header, such as `next`."""
    links = requests.utils.parse_header_links(headers.get("link", ""))
    return next((link["url"] for link in links if link.get("rel") == relation), None)
