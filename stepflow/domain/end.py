"""How a run, or its flow, ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from stepflow.domain.words import Outcome, Stage


@dataclass(frozen=True, kw_only=True)
class End:
    """How a run or its flow ended, in which stage, and why."""

    outcome: Outcome
    stage: Stage = Stage.FLOW
    reason: str
    #: Code of the rule that was broken, if any. The journal does not hold it.
    code: Annotated[str | None, Field(exclude=True)] = field(default=None, compare=False)
