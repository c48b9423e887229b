"""The page of `stepflow ledger` in a real Chromium: it looks as it should, and runs and asks for nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from accessible import violations
from conftest import Open

from stepflow.domain.reports.ledger import AgentChange, AgentRun, Ledger, RepositoryHistory, RunRecord
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from stepflow.report.ledger import compute_ledger, ledger_html

pytestmark = pytest.mark.browser

BEGIN = date(2026, 3, 2)
HOSTILE = "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)>"
LOOKS = [(width, scheme) for width in (1280, 1100, 390) for scheme in ("light", "dark")]


def ledger(versions: int = 4, *, name: str = "o/r", agent: str = "fixer") -> Ledger:
    """Versions of one agent, each better and dearer than the one before; the first had nothing accepted."""
    runs, changes = [], []
    for version in range(versions):
        digest = f"{version:x}" * 12
        for each in range(12):
            day = BEGIN + timedelta(days=9 * version + each)
            cost = Spent(usd=0.4 + version / 3, at_least=version == 1)
            record = RunRecord(
                run=f"{version}-{each}",
                digest=digest[:12],
                outcome=Outcome.COMPLETED,
                cost=cost,
                minutes=3.0 + version,
                day=f"{day}",
            )
            runs.append(AgentRun(agent=agent, record=record))
            change = AgentChange(number=each, agent=agent, digest=digest[:12], is_untouched=each % 2 == 0)
            changes.append(replace(change, merged_on=day) if each < 4 * version else change)
    history = RepositoryHistory(
        repository=name,
        account="github-actions[bot]",
        read_on=BEGIN + timedelta(days=60),
        runs=tuple(runs),
        changes=tuple(changes),
        unlisted=Spent(usd=12.5),
        other_accounts=(name,),
    )
    return compute_ledger(history)


def test_every_column_is_in_sight_on_a_laptop(open_page: Open) -> None:
    page = open_page(ledger_html(ledger(16)), width=1100, scheme="light").page
    wide = "[...document.querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)"
    assert page.evaluate(wide) == [0, 0]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_it_fits_the_screen_and_is_accessible(open_page: Open, npm: Path, width: int, scheme: str) -> None:
    view = open_page(ledger_html(ledger()), width=width, scheme=scheme)
    view.picture(f"ledger-{width}-{scheme}", whole=True)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(view.page, npm) == []
    assert (view.said, view.foreign) == ([], [])


def test_every_version_has_a_line_a_bar_and_a_row(open_page: Open) -> None:
    page = open_page(ledger_html(ledger())).page
    assert page.locator(".curve").count() == page.locator(".legend li").count() == 3
    # The last one has all of them together.
    assert page.locator("tbody tr").count() == 5
    assert page.locator("tbody progress").count() == 4
    assert page.locator("tbody td:nth-child(12)").all_text_contents()[:2] == ["–", "$2.20+"]
    colors = page.eval_on_selector_all(".curve", "all => all.map(each => getComputedStyle(each).stroke)")
    assert len(set(colors)) == 3


def test_many_versions_leave_the_plots_readable(open_page: Open) -> None:
    view = open_page(ledger_html(ledger(16)))
    view.picture("ledger-many", whole=True)
    assert view.page.locator(".curve").count() == 8
    assert view.page.locator("tbody tr").count() == 17
    assert "7 more in the table" in view.page.inner_text("#accepted")


def test_names_from_github_are_text(open_page: Open) -> None:
    view = open_page(ledger_html(ledger(name=HOSTILE, agent=HOSTILE)))
    assert (view.said, view.foreign) == ([], [])
    assert view.page.locator("script, img").count() == 0
    assert HOSTILE[:20] in view.page.inner_text("h1")
