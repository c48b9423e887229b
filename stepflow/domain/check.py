"""How the outcome of a step's check becomes an intent (registry.md §6 and §7).

Takes: nothing. Gives: `Check` with the rules that follow a pass and a fail.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.definition import StepPrompt
    from stepflow.domain.words import Intent


@dataclass(frozen=True, kw_only=True)
class OutcomeRule:
    """One thing that an outcome leads to. `transition` is the history's word for it (flow.md §7).

    The rule holds while the step has run fewer than `runs_below` times in this visit, this run included, and has been
    sent back fewer than `retries_below` times by a `retry`; None is no limit.
    """

    intent: Intent
    transition: str
    target: str | None = None
    runs_below: int | None = None
    retries_below: int | None = None

    def holds(self, *, runs: int, retries: int) -> bool:
        """Whether the rule may be taken after so many runs and retries in this visit."""
        return (self.runs_below is None or runs < self.runs_below) and (
            self.retries_below is None or retries < self.retries_below
        )


@dataclass(frozen=True, kw_only=True)
class Check:
    """How a step is found to have passed or failed, and what follows; the first rule that holds is taken.

    `prompt` is a second question in the same conversation. Without one `result` is read from the step's own answer;
    where that `is_demanded`, an answer without a readable result has failed, else it has passed.
    """

    on_pass: tuple[OutcomeRule, ...]
    on_fail: tuple[OutcomeRule, ...]
    prompt: StepPrompt | None = None
    is_demanded: bool = False
    handoff_keys: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[OutcomeRule, ...]:
        """All rules, those of a pass first."""
        return (*self.on_pass, *self.on_fail)
