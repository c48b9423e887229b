"""What an eval of two definitions of an agent produces: the trials on each case, and the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stepflow.domain.words import Outcome


class EvalVerdict(StrEnum):
    """What is shown at 95 % confidence about the candidate."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A definition as an eval runs it. `name` says where it comes from; an empty `model` is the definition's own."""

    name: str
    digest: str
    model: str = ""

    def __str__(self) -> str:
        model = f", model {self.model}" if self.model else ""
        return f"{self.name} ({self.digest[:12]}{model})"


@dataclass(frozen=True, kw_only=True)
class EvalTrial:
    """One run of a variant on a case. It is a success if the run completed and the hidden checks pass.

    `failure` says why it is none. `cost_usd` is None if a price is unknown. `run_folder` is relative to the eval's.
    """

    success: bool
    outcome: Outcome
    failure: str = ""
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    iterations: int = 0
    tokens: int = 0
    run_folder: str = ""


@dataclass(frozen=True, kw_only=True)
class EvalPair:
    """The trials of both variants on one case."""

    case: str
    issue: int
    title: str
    candidate: EvalTrial
    baseline: EvalTrial


@dataclass(frozen=True, kw_only=True)
class DroppedCase:
    """A case that can show nothing, or a change that makes no case, and why."""

    case: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class EvalComparison:
    """The success rates of candidate and baseline on the same cases. `low` and `high` bound the difference of the two
    rates (candidate − baseline) at 95 % confidence."""

    cases: int
    only_candidate: int
    only_baseline: int
    both: int
    difference: float
    low: float
    high: float
    verdict: EvalVerdict


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything about one eval. `ended` says why no further case was tried."""

    agent: str
    candidate: Variant
    baseline: Variant
    pairs: tuple[EvalPair, ...]
    dropped: tuple[DroppedCase, ...]
    comparison: EvalComparison
    #: The cost of all runs, including those without a result. One whose price is unknown counts as its whole budget.
    spent_usd: float
    ended: str
    folder: str

    def trials(self, *, of_candidate: bool) -> tuple[EvalTrial, ...]:
        """Return one variant's trials, by case."""
        return tuple(pair.candidate if of_candidate else pair.baseline for pair in self.pairs)
