"""A changed copy of a frozen dataclass, quickly.

Takes: a dataclass without slots and without checks of its own, and new values of its fields. Gives: the copy.
May touch: nothing. `dataclasses.replace` looks at every field in Python, and a state of twenty fields changes at each
event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The type checker knows the fields of that one.
    from dataclasses import replace
else:

    def replace(record: object, **changes: object) -> object:
        """The same as the standard library's, without its looks."""
        copy = object.__new__(type(record))
        copy.__dict__.update(record.__dict__, **changes)
        return copy


__all__ = ["replace"]
