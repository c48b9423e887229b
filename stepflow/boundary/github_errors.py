"""GitHub's errors in our words.

Takes: an exception of PyGithub or requests. Gives: a `WriteFailed` that says what to change.
May touch: nothing. The message is redacted and shortened; of the headers only those of the rate limit are looked at.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

import github
import requests

from stepflow.boundary.github_requests import Redirected
from stepflow.boundary.writer import TOO_MANY, WriteFailed
from stepflow.domain.way import DIRECT, Way, certificate_problem, stays_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.boundary.patience import Patience
    from stepflow.domain.redact import Redactor
    from stepflow.errors import StepflowError

P = ParamSpec("P")
R = TypeVar("R")
FORBIDDEN, GONE, UNPROCESSABLE, SERVER_ERRORS = 403, 410, 422, 500
LONGEST_DETAIL = 300
VENDOR_ERRORS = (
    github.GithubException,
    github.BadAttributeException,
    requests.RequestException,
    Redirected,
    # What PyGithub raises when a server leads elsewhere or answers with another shape than GitHub's.
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_AGAIN = "Start the run again when GitHub works (see githubstatus.com): what was written is not written twice."
_HINTS = {
    None: f"The answer was lost or is none of GitHub's: check the network and proxies. {_AGAIN}",
    401: "The token is not accepted: check `github-token`.",
    FORBIDDEN: "The token lacks a permission: the job needs `contents: write`, `issues: write` and "
    "`pull-requests: write`.",
    404: "The repository or issue does not exist (any more), or the token may not see it: check `permissions` of the "
    "job.",
    GONE: "The issue was deleted, so nothing can be written to it; commits that were pushed are on their branch.",
    UNPROCESSABLE: "GitHub did not accept what was to be written: mend what it names, then start the run again.",
    TOO_MANY: "The rate limit is used up: start the run again later; what was written is not written twice.",
}
#: Words of GitHub's that say more than the status.
_SAID_HINTS = {
    "issue is locked": "The issue is locked: unlock it, then start the run again.",
    "archived": "The repository is archived, so nobody can write to it.",
}
_MOVED = (
    "The issue was transferred, or the address leads elsewhere, and nothing is written there: start the run on the "
    "issue where it is now."
)


class Adapter(Protocol):
    """What speaks to GitHub and tells its failures in our words."""

    def failure(self, action: str, exc: Exception) -> StepflowError:
        """The vendor's exception at this method, in our words."""
        ...


class PatientAdapter(Adapter, Protocol):
    """One that waits for answers."""

    patience: Patience


A = TypeVar("A", bound=Adapter)
B = TypeVar("B", bound=PatientAdapter)


def translated(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """Raise the adapter's `failure` instead of anything of the vendor's; the vendor's exception holds the request with
    its token, so it is not kept as the cause."""

    @functools.wraps(method)
    def call(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except VENDOR_ERRORS as exc:
            raise self.failure(method.__name__, exc) from None

    return call


def reading(method: Callable[Concatenate[B, P], R]) -> Callable[Concatenate[B, P], R]:
    """The same for a method that only reads: what may pass is asked again."""
    ask = translated(method)

    @functools.wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.patience.repeat(lambda: ask(self, *args, **kwargs))

    return call


def write_failed(method: str, repository: str, exc: Exception, redactor: Redactor, *, way: Way = DIRECT) -> WriteFailed:
    """What the call of a `Writer` method came to; `status` 429 stands for every rate limit."""
    place = f"GitHub failed at `{method}` in {repository}"
    if isinstance(exc, Redirected):
        return WriteFailed(redactor(f"{place}: {exc}."), status=exc.status, hint=_MOVED)
    if not isinstance(exc, github.GithubException):
        return _unanswered(place, exc, redactor, way)
    headers = exc.headers or {}
    status = TOO_MANY if _is_limit(exc, headers) else exc.status
    said = _said(exc)
    hint = next((hint for words, hint in _SAID_HINTS.items() if words in said), _HINTS.get(status, ""))
    spent = headers.get("x-ratelimit-remaining") == "0"
    return WriteFailed(
        redactor(f"{place}: it answered {exc.status} ({said})."),
        status=status,
        hint=_AGAIN if status >= SERVER_ERRORS else hint,
        retry_after=_number(headers.get("retry-after")),
        resets_at=_number(headers.get("x-ratelimit-reset")) if spent else None,
    )


def _unanswered(place: str, exc: Exception, redactor: Redactor, way: Way) -> WriteFailed:
    """No answer of GitHub's came: the way is closed, or something else answered."""
    said = str(exc) if isinstance(exc, requests.ConnectionError) else ""
    problem = certificate_problem(said)
    told = f"its certificate does not count{way.through}: {problem}"
    if not problem:
        told = f"no usable answer came{way.through} ({type(exc).__name__})"
    lost = isinstance(exc, requests.ConnectionError | requests.Timeout)
    failed = WriteFailed(redactor(f"{place}: {told}."), hint=(way.advice(said) if lost else "") or _HINTS[None])
    return failed.given_up() if stays_closed(said) else failed


def _is_limit(exc: github.GithubException, headers: Mapping[str, str]) -> bool:
    """Whether the answer is a rate limit: GitHub says so with 429, or with 403 and words or headers."""
    told = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    limited = isinstance(exc, github.RateLimitExceededException) or (exc.status == FORBIDDEN and told)
    return limited or exc.status == TOO_MANY


def _number(text: str | None) -> float | None:
    """The seconds in a header; the date that HTTP also allows there is none of GitHub's forms."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _said(exc: github.GithubException) -> str:
    if not isinstance(exc.data, dict):
        return "no message"
    if "<html" in str(exc.data.get("data", "")).lower():
        return "an HTML page, as proxies send it"
    errors = exc.data.get("errors")
    return f"{exc.data.get('message') or 'no message'}{f' {errors}' if errors else ''}"[:LONGEST_DETAIL]
