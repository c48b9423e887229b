"""What the loop reacts to: the values that gate, router and completion return, and how a flow ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepflow.domain.checkout import Closing
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Intent, Outcome, Stage


@dataclass(frozen=True, kw_only=True)
class FormatError:
    """One way in which an answer does not fit its schema. `path` is like `items[2].name`, `(answer)` for the root."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The gate found an allowed intent. `handoff` is keyed by last segment and by full path (prompts.md §6.1);
    `missing` lists handoff fields that the answer did not hold; `violation` is set when `failFast: false` was used.
    `transition` is the history's word where that is not the intent (flow.md §7)."""

    intent: Intent
    reason: str
    target: str | None = None
    transition: str | None = None
    handoff: Mapping[str, JsonValue] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    violation: str | None = None

    @property
    def word(self) -> str:
        """What the history calls this decision (flow.md §11)."""
        return self.transition or self.intent


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """No intent could be determined; `reason` names what was found and what is allowed. `lacking` says in general
    what is missing."""

    reason: str
    lacking: str = "no intent in the answer"


Decision = Decided | Undecided


@dataclass(frozen=True, kw_only=True)
class GoTo:
    """Run this step next. `by_prefix`: the default `initial.X` → `continuation.X` was used (flow.md §6.1)."""

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
    """A red validator, with what its retry prompt needs (prompts.md §9.3). `values` holds the extracted parameters."""

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
    """A rule of the boundary that a closing breaks. `message` names the rule and what breaks it; `advice` is for the
    agent, `hint` for people. One that `refuses` ends the run; of any other the boundary only leaves something out."""

    message: str
    advice: str
    hint: str = ""
    refuses: bool = True


@dataclass(frozen=True, kw_only=True)
class Done:
    """Nothing is left to check. `validated` is false when a red validator was skipped; `closing` is what the validators
    saw, None without any."""

    validated: bool
    closing: Closing | None = None


@dataclass(frozen=True, kw_only=True)
class NotDone:
    """A validator is red and the entry has attempts left: the flow goes on with a retry prompt."""

    failure: ValidatorFailure


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A validator is red and the run ends."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Unproven:
    """What would be pushed breaks a rule of the boundary, or is not what green validators saw: the run is refused."""

    reason: str


Verdict = Done | NotDone | Failed | Unproven


@dataclass(frozen=True, kw_only=True)
class FlowResult:
    """How a flow ended. `answer` is the closing answer and `step_id` the step it came from (the last one begun
    otherwise); `validated` is true only when every validator was green at the last closing; `closing` is what they saw:
    nothing else may leave (boundary.md §4)."""

    outcome: Outcome
    stage: Stage
    reason: str
    step_id: str
    iterations: int
    answer: JsonObject | None = None
    handoff: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    validated: bool = False
    closing: Closing | None = None
