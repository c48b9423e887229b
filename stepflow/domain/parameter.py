"""A run argument that an agent declares.

Takes: nothing. Gives: `Parameter` (registry.md §2.3).
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.json import JsonValue


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A run argument that the agent declares (registry.md §2.3). `cli` is its flag."""

    name: str
    type: str
    cli: str
    description: str = ""
    required: bool = False
    default: JsonValue = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    enum: tuple[JsonValue, ...] | None = None
