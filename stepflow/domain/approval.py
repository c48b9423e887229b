"""What a run asks before a step that needs approval, and what is answered. Read by pydantic, as all events are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stepflow.domain.json import JsonValue, as_text
from stepflow.domain.words import Permission

#: How a comment begins that approves a plan; its digest follows.
APPROVE = "/stepflow approve"


#: Whoever approves a plan must have seen it whole, and a comment takes 65,536 characters with all that is around it.
LONGEST_PLAN = 20_000


MOST_PLAN_LINES = 2_000


def plan_text(handoff: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """What the steps handed on, as whoever approves it is shown it."""
    parts = [f"{step}, {key}:\n{as_text(value)}" for step, values in handoff.items() for key, value in values.items()]
    return "\n\n".join(parts) or "nothing"


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """What a run waits for: an approval of `digest`, by somebody with the permission `by`. Of the limits so much is
    left, None where there is none."""

    step_id: str
    by: Permission
    digest: str
    iterations_left: int
    usd_left: float | None
    tokens_left: int | None

    @property
    def command(self) -> str:
        """The comment that approves it."""
        return f"{APPROVE} {self.digest}"


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(ApprovalRequest):
    """The run ends before the step, until somebody answers."""

    event: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswered:
    """The `actor` approved the step, with this `digest`, or rejected it for a `reason`; `digest` is then None."""

    step_id: str
    actor: str
    digest: str | None
    reason: str = ""
    event: Literal["approval_answered"] = "approval_answered"
