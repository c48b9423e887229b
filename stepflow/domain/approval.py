"""Approval of a step: what a run asks before the step, and what people answer. Pydantic reads these classes, as all
events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stepflow.domain.json import JsonValue, as_text
from stepflow.domain.words import Permission

#: The start of a comment that approves a plan; the digest follows.
APPROVE = "/stepflow approve"
#: People must see the whole plan before they approve it. A comment holds 65,536 characters, including the text around
#: the plan.
LONGEST_PLAN = 20_000
MOST_PLAN_LINES = 2_000


def plan_text(handoff: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """Return the steps' handoffs as shown to the person who approves them."""
    parts = [f"{step}, {key}:\n{as_text(value)}" for step, values in handoff.items() for key, value in values.items()]
    return "\n\n".join(parts) or "nothing"


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """An approval that a run waits for: of `digest`, by a person with the permission `by`. The `…_left` fields hold the
    rest of each limit, None if there is no limit."""

    step_id: str
    by: Permission
    digest: str
    iterations_left: int
    usd_left: float | None
    tokens_left: int | None

    @property
    def command(self) -> str:
        """Return the comment that approves the plan."""
        return f"{APPROVE} {self.digest}"


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(ApprovalRequest):
    """The run ends before the step until a person answers."""

    event: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswered:
    """The `actor` approved the plan with this `digest`, or rejected it: `digest` is None and `reason` says why."""

    step_id: str
    actor: str
    digest: str | None
    reason: str = ""
    event: Literal["approval_answered"] = "approval_answered"
