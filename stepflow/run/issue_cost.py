"""What all runs on an issue have cost, against `budget-usd-per-issue`.

Takes: a prepared run, what the boundary found in the issue's comments. Gives: the run's own cost, and log entries.
May touch: the run's journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import IssueCostSummed, Noted
from stepflow.domain.figures import usd
from stepflow.domain.spent import Spent
from stepflow.domain.state import fold
from stepflow.journal.reader import iter_journal
from stepflow.run.collect import journal_path

if TYPE_CHECKING:
    from stepflow.ports import Journal
    from stepflow.run.prepare import Prepared

#: The marker keeps six digits.
ROUNDING = 0.00001


def run_cost(prepared: Prepared) -> Spent:
    """What this run has cost so far, in all its parts."""
    state = fold(entry.event for entry in iter_journal(journal_path(prepared)))
    return Spent(usd=state.cost_usd, at_least=state.unpriced)


def tell_issue_cost(prepared: Prepared, journal: Journal, spent: Spent | None, *, run: Spent) -> None:
    """Write the sum down where the issue has a budget; None when nobody looked. `run` is what this
    run has cost."""
    budget = prepared.request.inputs.budget_usd_per_issue
    if budget is None or spent is None:
        return
    journal.append(IssueCostSummed(usd=spent.usd, at_least=spent.at_least, budget_usd=budget))
    before = spent.usd - run.usd
    if prepared.spent is not None and before > prepared.spent.usd + ROUNDING:
        seen = f"{usd(prepared.spent.usd)} of the {usd(before)} that was spent before was seen before the flow"
        why = (
            "read-token belongs to another account than github-token, another run ended meanwhile, or this one goes on "
            "from an older folder"
        )
        journal.append(Noted(level="warning", message=f"[Budget] only {seen}: {why}"))
