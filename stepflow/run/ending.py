"""How a run ended.

Takes: nothing. Gives: `Ending`.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.words import Outcome


@dataclass(frozen=True, kw_only=True)
class Ending:
    """An outcome and its complete reason, which says where the run stopped (flow.md §11)."""

    outcome: Outcome
    reason: str
