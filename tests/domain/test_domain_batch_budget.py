"""The budget for all issues of a batch: however their costs fall, the sum is exact and never more than the budget."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.reports.report import BatchBudget, Gathered, IssuePage, IssueResult, PlannedIssue
from stepflow.domain.words import Outcome
from tests.tried import tried

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("total", "each", "most"), [(0.3, 0.1, 3), (0.29, 0.1, 2), (500, 5, 100), (4.99, 5, 0), (0, 5, 0), (1e-5, 1e-6, 10)]
)
def test_as_many_issues_as_the_budget_covers(total: float, each: float, most: int) -> None:
    assert BatchBudget(total=total, each=each).most_issues == most


@tried(50)
@given(st.integers(0, 100 * MILLION), st.integers(1, 5 * MILLION), st.data())
def test_pages_never_cost_more_than_the_budget(total: int, each: int, data: st.DataObject) -> None:
    """In millionths of a dollar, which are exact. Each job costs at most what it may, and of some it is not known."""
    left, spent, page = Decimal(total) / MILLION, 0, 0
    while page < 4:
        page += 1
        budget = BatchBudget(total=float(left), each=each / MILLION)
        costs = data.draw(st.lists(st.integers(0, each), max_size=min(budget.most_issues, 9)))
        known = [data.draw(st.booleans()) for _ in costs]
        counted = [cost / MILLION if is_known else None for cost, is_known in zip(costs, known, strict=True)]
        spent += sum(costs)
        missing = sum((each - cost) * (not is_known) for cost, is_known in zip(costs, known, strict=True))
        assert left - budget.left_after(counted) == Decimal(sum(costs) + missing) / MILLION
        left = budget.left_after(counted)
    assert spent <= total
    assert left >= 0


def test_a_page_counts_what_it_may_cost_and_a_table_what_it_cost() -> None:
    budget = BatchBudget(total=10, each=4)
    page = IssuePage(label="bug", issues=(PlannedIssue(number=7, text=""),), budget=budget)
    assert page.budget_left == 6
    assert IssuePage(label="bug").budget_left is None
    done = IssueResult(issue=7, outcome=Outcome.COMPLETED, reason="", cost_usd=1.25)
    lost = IssueResult(issue=8, outcome=None, reason="no report")
    assert Gathered(results=(done, lost), budget=budget).budget_left == Decimal("4.75")
    assert Gathered(results=(done,)).budget_left is None
