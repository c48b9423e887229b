"""How a validator was before the first call of the model: in the event that tells it and in the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BaseCheck:
    """A validator as it was before the first call of the model."""

    name: str
    command: str
    passed: bool
    exit_code: int
    seconds: float
    output_tail: str
