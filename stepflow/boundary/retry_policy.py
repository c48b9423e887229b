"""Waits out what passes by itself: rate limits, 5xx and lost connections. PyGithub's own retries are off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TypeVar

from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.ports import Clock

T = TypeVar("T")

MAX_TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0
#: What GitHub asks for when it limits without saying for how long; doubled each time.
FIRST_LIMIT_WAIT = 60.0
#: A limit that lasts longer is not waited out: the runner's minutes cost money too.
LONGEST_LIMIT_WAIT = 900.0
#: The deadline is there so that time is left to write; so much of that time may pass waiting.
GRACE = 120.0
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, TOO_MANY, SERVER_ERRORS = 401, 403, 404, 409, 429, 500


class GitHubFailed(BoundaryError):
    """GitHub, or the way to it, failed. `passes`: the same may succeed a little later; `limited`: a rate limit forbids
    it until then, `retry_after` seconds from the answer or at `resets_at` (seconds since the epoch), if it said so."""

    passes = False
    limited = False
    retry_after: float | None = None
    resets_at: float | None = None

    def given_up(self, hint: str = "") -> Self:
        """The same failure, which nobody waits out any more, perhaps with another hint."""
        self.passes, self.hint = False, hint or self.hint
        return self


class WriteFailed(GitHubFailed):
    """GitHub did not do what was asked. `status` is the HTTP status, None when no answer came; 429 stands for every
    rate limit. `invalid_fields` are those of the request that it does not take."""

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
        """The policy of a boundary that opens now, in a run with this deadline."""
        until = clock.now() + LONGEST_LIMIT_WAIT if deadline is None else max(deadline, clock.now() + GRACE)
        return cls(clock=clock, until=until, note=note)

    def repeat(self, action: Callable[[], T]) -> T:
        """Do until it works what changes nothing when it is done twice: a question, or the same text written again."""
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
        """The same for a write that gives nothing; `done` says whether it is there."""

        def written() -> bool:
            write()
            return True

        self.write(written, find=lambda: done() or None)

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
