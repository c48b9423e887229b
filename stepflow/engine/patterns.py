"""Search untrusted text, within a time limit, for patterns that an agent's author wrote."""

from __future__ import annotations

import time
import warnings

# Accepts the syntax of `re`, and a time limit: `re` has none, and engines without backtracking lack lookarounds.
import regex

#: CPU time, in seconds, that all searches of one `Search` share.
SECONDS = 2.0


class PatternFault(ValueError):
    """The text is not a regular expression."""


class PatternTooSlow(Exception):
    """A search ran out of time, so whether it matches is unknown."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f'the pattern "{pattern[:100]}" takes longer than {SECONDS:g} s')


class Search:
    """Searches that share one time limit."""

    def __init__(self) -> None:
        self._seconds_left = SECONDS

    def __call__(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found anywhere in the text. Raises `PatternTooSlow`."""
        begun = time.process_time()
        try:
            if self._seconds_left <= 0:
                raise TimeoutError
            return _compile(pattern).search(text, timeout=self._seconds_left) is not None
        except (TimeoutError, MemoryError) as exc:
            raise PatternTooSlow(pattern) from exc
        finally:
            self._seconds_left -= time.process_time() - begun


def check_pattern(pattern: str) -> None:
    """Raises `PatternFault` if the text is not a regular expression."""
    _compile(pattern)


def _compile(pattern: str) -> regex.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return regex.compile(pattern, regex.VERSION0)
        except (regex.error, OverflowError, RecursionError, ValueError) as exc:
            raise PatternFault(str(exc)) from exc
