"""Failures of GitHub, described with what to do about them, and the policy for retrying those that pass by themselves:
rate limits, 5xx and lost connections. PyGithub's own retries are off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from stepflow.domain.connection import Connection, certificate_problem, stays_closed
from stepflow.domain.secrets import Redactor
from stepflow.errors import BoundaryError, InputError
from stepflow.ports import Clock

T = TypeVar("T")

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, UNPROCESSABLE = 401, 403, 404, 409, 410, 422
UNAVAILABLE = 451
TOO_MANY, SERVER_ERRORS = 429, 500
MAX_TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0
#: What GitHub asks for when it limits without saying for how long; doubled each time.
FIRST_LIMIT_WAIT = 60.0
#: A limit that lasts longer is not waited out: the runner's minutes cost money too.
LONGEST_LIMIT_WAIT = 900.0
#: The deadline is there so that time is left to write; so much of that time may pass waiting.
GRACE = 120.0
#: Characters of what GitHub says.
LONGEST_DETAIL = 300
_AGAIN = "Start the run again when GitHub works (see githubstatus.com): what was written is not written twice."
_HINTS = {
    None: f"The answer was lost or did not come from GitHub: check the network and proxies. {_AGAIN}",
    UNAUTHORIZED: "The token is not accepted: check `github-token`, and whether it has expired or was revoked. A job's "
    "own token ends with its job.",
    FORBIDDEN: "The token lacks a permission: the job needs `contents: write`, `issues: write` and "
    "`pull-requests: write`.",
    NOT_FOUND: "The repository or issue does not exist (any more), or the token may not see it: check `permissions` of "
    "the job.",
    CONFLICT: "Somebody else is writing to the run's branches: start the run again.",
    GONE: "The issue was deleted, or issues are turned off in the repository's settings: commits that were pushed are "
    "on their branch.",
    UNPROCESSABLE: "GitHub rejected the write: fix what it names, then start the run again.",
    TOO_MANY: "The rate limit is used up: start the run again later; what was written is not written twice.",
}
_TURNED_OFF = (
    "Issues are turned off in the repository: turn them on (Settings → General → Features), then start the run again; "
    "commits that were pushed are on their branch."
)
#: Whole messages of GitHub's that say more than their status.
_MESSAGE_HINTS = {
    (FORBIDDEN, "Unable to create comment because issue is locked."): "The issue is locked: unlock it, then start the "
    "run again.",
    (
        GONE,
        "This issue was deleted",
    ): "The issue was deleted, so nothing can be written to it; commits that were pushed are on their branch.",
    (GONE, "Issues are disabled for this repo"): _TURNED_OFF,
    (GONE, "Issues has been disabled in this repository."): _TURNED_OFF,
}
UNARCHIVE = "Unarchive it (Settings → General → Danger Zone), then start the agent again."
#: What organizations and GitHub refuse, whatever the token's permissions are, by words of the answer.
_POLICIES = (
    (re.compile(r"archived so (?:it )?is read-only", re.IGNORECASE), f"The repository is archived. {UNARCHIVE}"),
    (
        re.compile(r"SAML", re.IGNORECASE),
        "The organization requires SAML single sign-on: authorize the token for it (Settings → Developer settings → "
        "the token → Configure SSO), or use the job's own token or that of a GitHub App.",
    ),
    (
        re.compile(r"IP allow list", re.IGNORECASE),
        "The organization has an IP allow list, and the runner's address is not on it: add the address (organization "
        "settings → Authentication security), or run the job on a runner whose address is on it.",
    ),
    (
        re.compile(r"(?:OAuth App|third-party).* (?:access )?restrictions?", re.IGNORECASE),
        "The organization restricts third-party applications: let one of its owners approve this one (organization "
        "settings → Third-party Access), or use the job's own token.",
    ),
    (
        re.compile(r"forbids access via", re.IGNORECASE),
        "The organization forbids tokens of this kind or with this lifetime: use the job's own token, that of a GitHub "
        "App, or a token that its policy allows (organization settings → Personal access tokens).",
    ),
    (
        re.compile(r"installation has been suspended", re.IGNORECASE),
        "The installation of the GitHub App is suspended: let an owner of the organization resume it (organization "
        "settings → GitHub Apps).",
    ),
    (
        re.compile(r"access blocked|unavailable due to", re.IGNORECASE),
        "GitHub has disabled the repository, so nothing can be read or written: its owner learns the reason on the "
        "repository's page.",
    ),
    (
        re.compile(r"\b(?:is|are|been) blocked|^blocked", re.IGNORECASE),
        "The owner of the repository has blocked this account: let the owner unblock it, or use another account's "
        "token.",
    ),
    (
        re.compile(r"account (?:was|is|has been) suspended|Your account", re.IGNORECASE),
        "The account of the token is suspended: use another account's token.",
    ),
)


def describe_policy(said: str) -> str:
    """Return what to do about a refusal that no permission of the token would change; empty for any other."""
    return next((hint for words, hint in _POLICIES if words.search(said)), "")


_MOVED = (
    "The issue was transferred, or the address leads elsewhere, and nothing is written there: start the run on the "
    "issue where it is now."
)
_READ_HINTS = {
    UNAUTHORIZED: "The token is not accepted: check `read-token`, and whether it has expired or was revoked.",
    FORBIDDEN: "The token lacks a permission: to read it needs `{permission}: read` (and `metadata: read`).",
    NOT_FOUND: "There is no such {subject}, or it cannot be seen with this token: check the number and `read-token`.",
}
_NO_LIST = (
    "The repository cannot be seen, or has no issues: pass `read-token: ${{ github.token }}` and give the job the "
    "permission `issues: read`."
)
_NO_REPOSITORY = (
    "The repository cannot be seen with this token: pass `read-token: ${{ github.token }}` and give the job the "
    "permission `contents: read`."
)


class GitHubFailed(BoundaryError):
    """GitHub, or the way to it, failed. `passes`: the same may succeed a little later; `limited`: a rate limit forbids
    it until then, `retry_after` seconds from the answer or at `resets_at` (seconds since the epoch), if it said so."""

    passes = False
    limited = False
    retry_after: float | None = None
    resets_at: float | None = None

    def given_up(self, hint: str = "") -> Self:
        """Return the same failure, which nobody waits out any more, perhaps with another hint."""
        self.passes, self.hint = False, hint or self.hint
        return self


class WriteFailed(GitHubFailed):
    """GitHub did not do what was asked. `status` is the HTTP status, None when no answer came; 429 stands for every
    rate limit. `said` is what GitHub says, and `invalid_fields` are those of the request that it rejects."""

    said = ""
    invalid_fields: frozenset[str] = frozenset()

    def __init__(self, message: str, *, status: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.limited = status == TOO_MANY
        self.passes = status is None or status == TOO_MANY or status >= SERVER_ERRORS


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long to wait for GitHub. `until` is the time at which the last wait must be over; `note` gets every wait as
    one line for people. Without a clock nothing is tried twice."""

    clock: Clock | None = None
    until: float = 0.0
    note: Callable[[str], None] = lambda _message: None

    @classmethod
    def of(cls, clock: Clock, deadline: float | None, note: Callable[[str], None]) -> RetryPolicy:
        """Return the policy of a boundary that opens now, in a run with this deadline."""
        until = clock.now() + LONGEST_LIMIT_WAIT if deadline is None else max(deadline, clock.now() + GRACE)
        return cls(clock=clock, until=until, note=note)

    def repeat(self, action: Callable[[], T]) -> T:
        """Retry an action that changes nothing when it is repeated: a read, or writing the same text again."""
        return self.write(action, find=lambda: None)

    def write(self, write: Callable[[], T], *, find: Callable[[], T | None]) -> T:
        """Write. After a failure that may pass it waits and looks first: a lost answer does not mean a lost write.

        `find` gives what the write would have given, None when it is not there. Both may raise `GitHubFailed`.
        """
        for tries in range(1, MAX_TRIES + 1):
            try:
                if tries > 1 and (existing := find()) is not None:
                    return existing
                return write()
            except GitHubFailed as exc:
                self._wait(exc, tries)
        raise AssertionError("unreachable: the last try raises")

    def ensure(self, write: Callable[[], None], *, done: Callable[[], bool]) -> None:
        """Repeat a write that gives nothing; `done` says whether it is there."""

        def is_written() -> bool:
            write()
            return True

        self.write(is_written, find=lambda: done() or None)

    def _wait(self, failed: GitHubFailed, tries: int) -> None:
        """Wait before the next try, or raise: the failure stays, cannot be waited out, or for too long."""
        if self.clock is None or not failed.passes or tries == MAX_TRIES:
            raise failed.given_up()
        now = self.clock.now()
        seconds = _seconds(failed, tries, now)
        if seconds > LONGEST_LIMIT_WAIT or now + seconds > self.until:
            raise failed.given_up(_too_long(failed, now + seconds))
        self.note(f"waiting {seconds:.0f} s before try {tries + 1} of {MAX_TRIES}: {failed.message}")
        self.clock.sleep(seconds)


def _seconds(failed: GitHubFailed, tries: int, now: float) -> float:
    if failed.retry_after is not None:
        return max(1.0, failed.retry_after)
    if failed.resets_at is not None:
        return max(1.0, failed.resets_at - now + 1)
    if failed.limited:
        return FIRST_LIMIT_WAIT * float(2 ** (tries - 1))
    return min(LONGEST_WAIT, FIRST_WAIT * float(2 ** (tries - 1)))


def _too_long(failed: GitHubFailed, then: float) -> str:
    if not failed.limited:
        return failed.hint
    at = datetime.fromtimestamp(then, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"The limit is lifted at {at}, too late to wait for: start the run again then. Nothing is written twice."


@dataclass(frozen=True)
class ReadSubject:
    """What is read, the permission that it takes, and what to do where it is not found, if that is something else."""

    name: str
    permission: str
    missing: str = ""


ISSUE, ISSUE_LIST = ReadSubject("issue", "issues"), ReadSubject("issue", "issues", missing=_NO_LIST)
PULL_REQUEST = ReadSubject("pull request", "pull-requests")
WORKFLOW_RUN = ReadSubject("run or job", "actions")
REPOSITORY = ReadSubject("repository", "contents", missing=_NO_REPOSITORY)
ARTIFACT = ReadSubject("artifact", "actions")
BRANCH = ReadSubject("branch", "contents")
#: Where a token can be authorized, in the header `X-GitHub-SSO`.
_ADDRESS_OF_SSO = re.compile(r"url=(https://[^\s;,]+)")
_PERMISSION = re.compile(r"\b(\w+)=(read|write|admin)")


class Redirected(Exception):
    """The answer is somewhere else."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"answered {status}: moved to {location or 'an unnamed place'}")
        self.status, self.location = status, location


class AnswerFailed(Exception):
    """GitHub answered with an error. `is_limit`: it is a rate limit, whatever its status."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        data: Mapping[str, Any],
        *,
        is_limit: bool,
        answered: int | None = None,
    ) -> None:
        super().__init__(status)
        self.status, self.headers, self.data, self.is_limit = status, headers, data, is_limit
        #: The HTTP status. An error of GraphQL comes with 200, and its `status` is the equivalent one.
        self.answered = answered or status

    @property
    def detail(self) -> str:
        """What GitHub says."""
        if "<html" in str(self.data.get("data", "")).lower():
            return "an HTML page, as proxies send it"
        message, errors = self.data.get("message") or "no message", self.data.get("errors")
        if isinstance(errors, list) and all(isinstance(each, str) for each in errors):
            return ": ".join((message, *filter(None, ("; ".join(errors),))))
        return f"{message} {errors}" if errors else message

    @property
    def policy(self) -> str:
        """What to do about a policy that refuses the token; empty if it is something else."""
        if self.is_limit or self.status < UNAUTHORIZED or self.status >= SERVER_ERRORS:
            return ""
        sso = self.headers.get("x-github-sso", "")
        hint = describe_policy(f"SAML {self.detail}" if sso else self.detail)
        if address := _ADDRESS_OF_SSO.search(sso):
            hint += f" GitHub gives the address {address[1]} for it."
        return hint or (describe_policy("access blocked") if self.status == UNAVAILABLE else "")

    @property
    def lacking_permission(self) -> str:
        """What a refused token needs, by the header `x-accepted-github-permissions`; empty where GitHub gives none."""
        if self.status != FORBIDDEN or self.is_limit:
            return ""
        sets = self.headers.get("x-accepted-github-permissions", "").split(";")
        named = [_PERMISSION.findall(each) for each in sets]
        alternatives = [" and ".join(f"`{name.replace('_', '-')}: {level}`" for name, level in each) for each in named]
        needed = " or ".join(filter(None, alternatives))
        return f"The token lacks a permission: it needs {needed}." if needed else ""

    @property
    def invalid_fields(self) -> frozenset[str]:
        """The fields of the request that GitHub rejects."""
        errors = self.data.get("errors")
        listed = errors if isinstance(errors, list) else []
        return frozenset(str(e.get("field")) for e in listed if isinstance(e, dict) and e.get("code") == "invalid")


def write_failed(
    doing: str, repository: str, exc: Exception, redactor: Redactor, *, host: str, connection: Connection
) -> WriteFailed:
    """Return the failure of what GitHub, at this host, was asked to do; `status` 429 stands for every rate limit."""
    failure = f"GitHub did not {doing} in {repository}"
    if isinstance(exc, Redirected):
        return WriteFailed(redactor(f"{failure}: {host} {exc}."), status=exc.status, hint=_MOVED)
    if not isinstance(exc, AnswerFailed):
        return _unanswered_failure(failure, exc, redactor, host, connection)
    status = TOO_MANY if exc.is_limit else exc.status
    hint = exc.policy or exc.lacking_permission or _HINTS.get(status, "")
    hint = _MESSAGE_HINTS.get((exc.status, str(exc.data.get("message"))), hint)
    said = redactor(exc.detail)[:LONGEST_DETAIL]
    message = redactor(f"{failure}: {host} answered {exc.answered} ({said}).")
    failed = WriteFailed(message, status=status, hint=_AGAIN if status >= SERVER_ERRORS else hint)
    failed.said, failed.invalid_fields = said, exc.invalid_fields
    failed.retry_after = _number(exc.headers.get("retry-after"))
    if exc.headers.get("x-ratelimit-remaining") == "0":
        failed.resets_at = _number(exc.headers.get("x-ratelimit-reset"))
    return failed


def _unanswered_failure(
    failure: str, exc: Exception, redactor: Redactor, host: str, connection: Connection
) -> WriteFailed:
    """Describe that no answer of GitHub's came: the way is closed, or something else answered."""
    import requests  # noqa: PLC0415 - costs time that most runs need not pay

    said = str(exc) if isinstance(exc, requests.ConnectionError) else ""
    if problem := certificate_problem(said):
        what = f"the certificate of {host} was rejected{connection.through}: {problem}"
    else:
        what = f"no usable answer came ({type(exc).__name__}) from {host}{connection.through}"
    advice = connection.advice(said) if isinstance(exc, requests.ConnectionError | requests.Timeout) else ""
    failed = WriteFailed(redactor(f"{failure}: {what}."), hint=advice or _HINTS[None])
    return failed.given_up() if stays_closed(said) else failed


def _number(text: str | None) -> float | None:
    """Return the seconds in a header; the date that HTTP also allows there is none of GitHub's forms."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def read_failed(
    doing: str,
    subject: ReadSubject,
    repository: str,
    exc: Exception,
    redactor: Redactor,
    *,
    host: str,
    connection: Connection,
) -> WriteFailed | InputError:
    """Return the failure of a read before a run: an `InputError` if `read-token` or another number can fix it."""
    failed = write_failed(doing, repository, exc, redactor, host=host, connection=connection)
    if not isinstance(exc, AnswerFailed) or failed.status not in _READ_HINTS:
        return failed
    hint = _READ_HINTS[failed.status].format(subject=subject.name, permission=subject.permission)
    if failed.status == NOT_FOUND and subject.missing:
        hint = subject.missing
    return InputError(failed.message, hint=exc.policy or exc.lacking_permission or hint)
