"""Values that the loop reacts to: the results of gate, router and completion, requests for approval, and how a flow
ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stepflow.domain.checkout import Closing
from stepflow.domain.json import JsonObject, JsonValue, as_text
from stepflow.domain.words import Intent, Outcome, Permission, Stage


@dataclass(frozen=True, kw_only=True)
class FormatError:
    """A mismatch between an answer and its schema. `path` is like `items[2].name`, or `(answer)` for the root."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The gate found an allowed intent."""

    intent: Intent
    reason: str
    target: str | None = None
    #: The history's name for the decision if it differs from the intent (flow.md §7).
    transition: str | None = None
    #: Keyed by last segment and by full path (prompts.md §6.1).
    handoff: Mapping[str, JsonValue] = field(default_factory=dict)
    #: Handoff fields that the answer does not contain.
    missing: tuple[str, ...] = ()
    #: Set if `failFast: false` was used.
    violation: str | None = None

    @property
    def word(self) -> str:
        """Return the history's name for this decision (flow.md §11)."""
        return self.transition or self.intent


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """The gate could not determine an intent. `reason` names what was found and what is allowed; `lacking` says in
    general terms what is missing."""

    reason: str
    lacking: str = "no intent in the answer"


Decision = Decided | Undecided


@dataclass(frozen=True, kw_only=True)
class GoTo:
    """Run this step next. `by_prefix`: the step is the default, `initial.X` → `continuation.X` (flow.md §6.1)."""

    step_id: str
    by_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class Close:
    """Start the completion procedure."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the run without success."""

    outcome: Outcome
    reason: str


Move = GoTo | Close | Stop


@dataclass(frozen=True, kw_only=True)
class ValidatorFailure:
    """A failed validator and the data for its retry prompt (prompts.md §9.3). `values` holds the extracted
    parameters."""

    validator: str
    pattern: str
    description: str
    error: str
    exit_code: int
    stdout: str
    stderr: str
    attempt: int
    max_attempts: int
    values: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A boundary rule that a closing breaks. `message` names the rule and what breaks it; `advice` is for the agent,
    `hint` for people. If `refuses` is set, the run ends; otherwise the boundary only leaves something out."""

    message: str
    advice: str
    hint: str = ""
    refuses: bool = True


@dataclass(frozen=True, kw_only=True)
class Done:
    """No check is left. `validated` is false if a failed validator was skipped. `closing` is the state that the
    validators checked, None without validators."""

    validated: bool
    closing: Closing | None = None


@dataclass(frozen=True, kw_only=True)
class NotDone:
    """A validator failed and the entry has attempts left: the flow continues with a retry prompt."""

    failure: ValidatorFailure


#: A stop is `validation_failed` if a validator failed. It is `refused` if what the run would push breaks a rule of the
#: boundary, or differs from what the passing validators checked.
Verdict = Done | NotDone | Stop


@dataclass(frozen=True, kw_only=True)
class FlowResult:
    """How a flow ended."""

    outcome: Outcome
    stage: Stage
    reason: str
    #: The step that gave the closing answer; without one, the last step that began.
    step_id: str
    iterations: int
    #: The closing answer.
    answer: JsonObject | None = None
    handoff: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    #: True only if every validator passed at the last closing.
    validated: bool = False
    #: The state that the validators checked; nothing else may be pushed (boundary.md §4).
    closing: Closing | None = None


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
