"""The page that was planned and the table of what came of many issues, as people and programs read them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepflow.domain.reports.report import BatchBudget, Gathered, IssuePage, IssueResult, PlannedIssue
from stepflow.domain.words import Outcome
from stepflow.report.many_runs import (
    describe_page,
    describe_totals,
    gathered_json,
    gathered_lines,
    gathered_summary,
    page_summary,
)

#: What GitHub documents: bytes of a job's outputs, by UTF-16.
OUTPUTS = 1_000_000


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le"))


def page(*numbers: int, waiting: int = 0) -> IssuePage:
    return IssuePage(label="bug", issues=tuple(PlannedIssue(number=each, text="") for each in numbers), waiting=waiting)


def test_a_page_is_told_with_its_numbers_and_where_the_next_one_begins() -> None:
    assert describe_page(page(7)) == 'planned 1 of 1 open issue labeled "bug", #7 to #7'
    described = describe_page(page(7, 9, waiting=4_998))
    assert described == 'planned 2 of 5,000 open issues labeled "bug", #7 to #9; the next page begins after #9'
    assert describe_page(page()) == 'no open issue labeled "bug" is left to take'
    assert page_summary(page()).startswith("## No open issue")


def test_a_budget_for_all_is_told_with_what_is_left_of_it() -> None:
    budget = BatchBudget(total=10, each=4)
    described = describe_page(replace(page(7, 9, waiting=3), budget=budget))
    assert described == (
        'planned 2 of 5 open issues labeled "bug", #7 to #9, with $10.00 for all of them and at most $4.00 for each; '
        "the next page begins after #9"
    )
    poor = replace(page(waiting=3), budget=BatchBudget(total=3.2, each=4))
    assert describe_page(poor) == (
        'planned none of 3 open issues labeled "bug": $3.20 is left for all of them, and one may cost $4.00'
    )
    results = (
        IssueResult(issue=7, outcome=Outcome.COMPLETED, reason="", cost_usd=0.1),
        IssueResult(issue=8, outcome=Outcome.COMPLETED, reason="", cost_usd=None),
        IssueResult(issue=9, outcome=None, reason="no report"),
    )
    assert "$0.1000 and what 1 run of unknown price cost ($1.90 is left of $10.00)" in describe_totals(
        Gathered(results=results, budget=budget)
    )


def test_the_totals_are_one_line() -> None:
    results = (
        IssueResult(issue=7, outcome=Outcome.COMPLETED, reason="", iterations=3, tokens=1200, cost_usd=0.5, seconds=60),
        IssueResult(issue=9, outcome=None, reason="no report"),
    )
    assert describe_totals(Gathered(results=results)) == (
        "2 issues: 1 completed, 1 no report · 0 pull requests · 3 iterations · 1,200 tokens · $0.5000 · 60 s of work"
    )
    assert describe_totals(Gathered(results=())).startswith("0 issues · ")
    assert gathered_lines(Gathered(results=results))[0].startswith("✓ #7 completed $0.5000")


@pytest.mark.whole
def test_ten_thousand_reports_fit_a_summary_and_an_output() -> None:
    done = IssueResult(issue=1, outcome=Outcome.COMPLETED, reason="字" * 500, agent="fixer" * 10)
    failed = IssueResult(issue=2, outcome=Outcome.ABORTED, reason="no")
    gathered = Gathered(results=(*[done] * 9_999, failed))
    summary = gathered_summary(gathered)
    assert len(summary.encode()) < 1024 * 1024
    assert "8,500 issues are left out" in summary
    assert "| #2 |" in summary
    assert utf16(gathered_json(gathered)) < OUTPUTS
    assert json.loads(gathered_json(gathered))["totals"]["completed"] == 9_999
