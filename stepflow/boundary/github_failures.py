"""What GitHub's client raises in our words, with what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import github
import requests

from stepflow.boundary.github_client import (
    GONE,
    LONGEST_DETAIL,
    UNPROCESSABLE,
    Redirected,
)
from stepflow.boundary.retry_policy import CONFLICT, FORBIDDEN, NOT_FOUND, SERVER_ERRORS, TOO_MANY, WriteFailed
from stepflow.domain.connection import DIRECT, Connection, certificate_problem, stays_closed
from stepflow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.secrets import Redactor

_AGAIN = "Start the run again when GitHub works (see githubstatus.com): what was written is not written twice."
_HINTS = {
    None: f"The answer was lost or is none of GitHub's: check the network and proxies. {_AGAIN}",
    401: "The token is not accepted: check `github-token`.",
    FORBIDDEN: "The token lacks a permission: the job needs `contents: write`, `issues: write` and "
    "`pull-requests: write`.",
    NOT_FOUND: "The repository or issue does not exist (any more), or the token may not see it: check `permissions` of "
    "the job.",
    CONFLICT: "Somebody else writes to the run's branches at the same time: start the run again.",
    GONE: "The issue was deleted, or issues are turned off in the repository's settings: commits that were pushed are "
    "on their branch.",
    UNPROCESSABLE: "GitHub did not accept what was to be written: fix what it names, then start the run again.",
    TOO_MANY: "The rate limit is used up: start the run again later; what was written is not written twice.",
}
#: Whole messages of GitHub's that say more than their status.
_MESSAGE_HINTS = {
    (FORBIDDEN, "Unable to create comment because issue is locked."): "The issue is locked: unlock it, then start the "
    "run again.",
    (FORBIDDEN, "Repository was archived so is read-only."): "The repository is archived, so nobody can write to it.",
    (
        GONE,
        "This issue was deleted",
    ): "The issue was deleted, so nothing can be written to it; commits that were pushed are on their branch.",
    (GONE, "Issues are disabled for this repo"): "Issues are turned off in the repository: turn them on (Settings → "
    "General → Features), then start the run again; commits that were pushed are on their branch.",
    (GONE, "Issues has been disabled in this repository."): "Issues are turned off in the repository: turn them on "
    "(Settings → General → Features), then start the run again; commits that were pushed are on their branch.",
}
_MOVED = (
    "The issue was transferred, or the address leads elsewhere, and nothing is written there: start the run on the "
    "issue where it is now."
)


_READ_HINTS = {
    401: "The token is not accepted: check `read-token`.",
    403: "The token lacks a permission: to read it needs `{permission}: read` (and `metadata: read`).",
    NOT_FOUND: "There is no such {subject}, or it cannot be seen with this token: check the number and `read-token`.",
}
_NO_LIST = (
    "The repository cannot be seen, or has no issues: pass `read-token: ${{ github.token }}` and give the job the "
    "permission `issues: read`."
)


@dataclass(frozen=True)
class Subject:
    """What is read, the permission that it takes, and what to do where it is not found, if that is something else."""

    name: str
    permission: str
    missing: str = ""


ISSUE, ISSUE_LIST = Subject("issue", "issues"), Subject("issue", "issues", missing=_NO_LIST)
PULL_REQUEST = Subject("pull request", "pull-requests")
WORKFLOW_RUN = Subject("run or job", "actions")
BRANCH = Subject("branch", "contents")
_PERMISSION = re.compile(r"(\w+)=(read|write|admin)")


def write_failed(
    doing: str, repository: str, exc: Exception, redactor: Redactor, *, connection: Connection = DIRECT
) -> WriteFailed:
    """The failure of what GitHub was asked to do; `status` 429 stands for every rate limit."""
    failure = f"GitHub did not {doing} in {repository}"
    if isinstance(exc, Redirected):
        return WriteFailed(redactor(f"{failure}: {exc}."), status=exc.status, hint=_MOVED)
    if not isinstance(exc, github.GithubException):
        return _unanswered(failure, exc, redactor, connection)
    headers = exc.headers or {}
    status = TOO_MANY if _is_limit(exc, headers) else exc.status
    said = redactor(_said(exc))[:LONGEST_DETAIL]
    message = exc.data.get("message") if isinstance(exc.data, dict) else None
    hint = lacking_permission(exc) or _HINTS.get(status, "")
    hint = _MESSAGE_HINTS.get((exc.status, str(message)), hint)
    message = redactor(f"{failure}: it answered {exc.status} ({said}).")
    failed = WriteFailed(message, status=status, hint=_AGAIN if status >= SERVER_ERRORS else hint)
    failed.invalid_fields = _invalid_fields(exc)
    failed.retry_after = _number(headers.get("retry-after"))
    if headers.get("x-ratelimit-remaining") == "0":
        failed.resets_at = _number(headers.get("x-ratelimit-reset"))
    return failed


def _unanswered(failure: str, exc: Exception, redactor: Redactor, connection: Connection) -> WriteFailed:
    """No answer of GitHub's came: the way is closed, or something else answered."""
    said = str(exc) if isinstance(exc, requests.ConnectionError) else ""
    problem = certificate_problem(said)
    if problem:
        what = f"its certificate does not count{connection.through}: {problem}"
    else:
        what = f"no usable answer came{connection.through} ({type(exc).__name__})"
    lost = isinstance(exc, requests.ConnectionError | requests.Timeout)
    failed = WriteFailed(
        redactor(f"{failure}: {what}."), hint=(connection.advice(said) if lost else "") or _HINTS[None]
    )
    return failed.given_up() if stays_closed(said) else failed


def lacking_permission(exc: Exception) -> str:
    """What a refused token needs, by GitHub's own words: `x-accepted-github-permissions`. Empty where it gives none."""
    if not isinstance(exc, github.GithubException) or exc.status != FORBIDDEN or _is_limit(exc, exc.headers or {}):
        return ""
    sets = (exc.headers or {}).get("x-accepted-github-permissions", "").split(";")
    named = [_PERMISSION.findall(each) for each in sets]
    alternatives = [" and ".join(f"`{name.replace('_', '-')}: {level}`" for name, level in each) for each in named]
    needed = " or ".join(filter(None, alternatives))
    return f"The token lacks a permission: it needs {needed}." if needed else ""


def _is_limit(exc: github.GithubException, headers: Mapping[str, str]) -> bool:
    """Whether the answer is a rate limit: GitHub says so with 429, or with 403 and words or headers."""
    says_so = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    limited = isinstance(exc, github.RateLimitExceededException) or (exc.status == FORBIDDEN and says_so)
    return limited or exc.status == TOO_MANY


def _number(text: str | None) -> float | None:
    """The seconds in a header; the date that HTTP also allows there is none of GitHub's forms."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _invalid_fields(exc: github.GithubException) -> frozenset[str]:
    errors = exc.data.get("errors") if isinstance(exc.data, dict) else None
    listed = errors if isinstance(errors, list) else []
    return frozenset(str(e.get("field")) for e in listed if isinstance(e, dict) and e.get("code") == "invalid")


def _said(exc: github.GithubException) -> str:
    if not isinstance(exc.data, dict):
        return "no message"
    if "<html" in str(exc.data.get("data", "")).lower():
        return "an HTML page, as proxies send it"
    errors = exc.data.get("errors")
    return f"{exc.data.get('message') or 'no message'}{f' {errors}' if errors else ''}"


def read_failed(
    doing: str,
    subject: Subject,
    repository: str,
    exc: Exception,
    redactor: Redactor,
    *,
    connection: Connection = DIRECT,
) -> WriteFailed | InputError:
    """The same before a run, where what `read-token` or another number can mend is an `InputError`."""
    failed = write_failed(doing, repository, exc, redactor, connection=connection)
    if failed.status not in _READ_HINTS:
        return failed
    hint = _READ_HINTS[failed.status].format(subject=subject.name, permission=subject.permission)
    if failed.status == NOT_FOUND and subject.missing:
        hint = subject.missing
    return InputError(failed.message, hint=lacking_permission(exc) or hint)
