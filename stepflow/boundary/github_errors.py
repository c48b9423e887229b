"""GitHub's errors in our words.

Takes: an exception of PyGithub or requests. Gives: a `WriteFailed` that says what to change.
May touch: nothing. The message is redacted and shortened; headers and requests are never looked at.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

import github
import requests

from stepflow.boundary.writer import WriteFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.domain.redact import Redactor
    from stepflow.errors import StepflowError

P = ParamSpec("P")
R = TypeVar("R")
TOO_MANY = 429
LONGEST_DETAIL = 300
VENDOR_ERRORS = (
    github.GithubException,
    github.BadAttributeException,
    requests.RequestException,
    # What PyGithub raises when a server redirects elsewhere or answers with another shape than GitHub's.
    AssertionError,
    RuntimeError,
    KeyError,
    TypeError,
)
_HINTS = {
    401: "The token is not accepted: check `github-token`.",
    403: "The token lacks a permission: the job needs `contents: write`, `issues: write` and `pull-requests: write`.",
    404: "The repository or issue does not exist, or the token may not see it: check `permissions` of the job.",
    TOO_MANY: "The rate limit is used up: start the run again later; what was written is updated, not written twice.",
}


class Adapter(Protocol):
    """What speaks to GitHub and tells its failures in our words."""

    def failure(self, action: str, exc: Exception) -> StepflowError:
        """The vendor's exception at this method, in our words."""
        ...


A = TypeVar("A", bound=Adapter)


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


def write_failed(method: str, repository: str, exc: Exception, redactor: Redactor) -> WriteFailed:
    """What the call of a `Writer` method came to; `status` 429 stands for every rate limit."""
    place = f"GitHub failed at `{method}` in {repository}"
    if not isinstance(exc, github.GithubException):
        return WriteFailed(redactor(f"{place}: no usable answer came ({type(exc).__name__})."))
    status = TOO_MANY if isinstance(exc, github.RateLimitExceededException) else exc.status
    message = redactor(f"{place}: it answered {exc.status} ({_said(exc)}).")
    return WriteFailed(message, status=status, hint=_HINTS.get(status, ""))


def _said(exc: github.GithubException) -> str:
    if not isinstance(exc.data, dict):
        return "no message"
    errors = exc.data.get("errors")
    return f"{exc.data.get('message') or 'no message'}{f' {errors}' if errors else ''}"[:LONGEST_DETAIL]
