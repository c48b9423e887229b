"""Patterns that an agent's author wrote, searched for in texts that others wrote: never longer than a few seconds."""

from __future__ import annotations

import time
import warnings

# Reads what `re` reads, and takes a time limit: `re` takes none, and engines without backtracking lack lookarounds.
import regex

#: For all searches of one question together, in seconds of this process's own time.
SECONDS = 2.0


class PatternFault(ValueError):
    """A text that is no regular expression."""


class PatternTooSlow(Exception):
    """A search that did not end in its time. What it would have found is not known."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f'the pattern "{pattern[:100]}" takes longer than {SECONDS:g} s')


class Search:
    """Searches that have one time limit together."""

    def __init__(self) -> None:
        self._left = SECONDS

    def __call__(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found anywhere in the text. Raises `PatternTooSlow`."""
        begun = time.process_time()
        try:
            if self._left <= 0:
                raise TimeoutError
            return _compile(pattern).search(text, timeout=self._left) is not None
        except (TimeoutError, MemoryError) as exc:
            raise PatternTooSlow(pattern) from exc
        finally:
            self._left -= time.process_time() - begun


def check_pattern(pattern: str) -> None:
    """Raises `PatternFault` for what cannot be searched for."""
    _compile(pattern)


def _compile(pattern: str) -> regex.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return regex.compile(pattern, regex.VERSION0)
        except (regex.error, OverflowError, RecursionError, ValueError) as exc:
            raise PatternFault(str(exc)) from exc
