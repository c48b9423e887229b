"""What the program is doing right now, for people who wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_mine: ContextVar[tuple[str, ...]] = ContextVar("activity", default=())
#: Those that have begun and not ended, the newest last; several threads may work.
_all: list[tuple[str, ...]] = []


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Say that this is being done inside the block, as a part of what was being done before."""
    mine = (*_mine.get(), name)
    token = _mine.set(mine)
    _all.append(mine)
    try:
        yield
    finally:
        _all.remove(mine)
        _mine.reset(token)


def current_activity() -> tuple[str, ...]:
    """Return what began last, after what it is a part of; empty if nothing is known."""
    try:
        return _all[-1]
    except IndexError:
        return ()


def oldest_activity() -> tuple[str, ...]:
    """Return what has been done for longest; empty if nothing is known. It is the same object until it ends."""
    try:
        return _all[0]
    except IndexError:
        return ()
