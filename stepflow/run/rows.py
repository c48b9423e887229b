"""The rows of a preflight.

Takes: a name and what was found. Gives: `Check`.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.preflight import Check, CheckState
from stepflow.domain.words import Outcome
from stepflow.errors import StepflowError
from stepflow.run.ending import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def ok(name: str, detail: str) -> Check:
    """Nothing stands in the way."""
    return Check(name=name, state=CheckState.OK, detail=detail)


def warning(name: str, detail: str) -> Check:
    """A run would begin, and somebody should know."""
    return Check(name=name, state=CheckState.WARNING, detail=detail)


def failed(name: str, detail: str, outcome: Outcome) -> Check:
    """A run would end with this outcome before it spends a token."""
    return Check(name=name, state=CheckState.FAILED, detail=detail, outcome=outcome)


def unknown(name: str, where_to_look: str) -> Check:
    """Not to be known from here."""
    return Check(name=name, state=CheckState.UNKNOWN, detail=where_to_look)


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> tuple[Check, ...]:
    """The rows that `look` gives, or one that says why it gives none."""
    try:
        return tuple(look())
    except StepflowError as error:
        return (failed(name, str(error), outcome_of(error)),)
