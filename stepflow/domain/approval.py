"""What a run asks before a step that needs approval, and what is answered. Read by pydantic, as all events are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepflow.domain.words import Permission

#: How a comment begins that approves a plan; its digest follows.
APPROVE = "/stepflow approve"


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
