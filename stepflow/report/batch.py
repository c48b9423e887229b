"""Reports on a batch of issues: the planned page, and the table of results as lines, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from stepflow.domain.json import JsonObject, compact
from stepflow.domain.reports.report import Gathered, IssuePage, IssueResult
from stepflow.domain.text import count, cut, usd
from stepflow.domain.words import Outcome
from stepflow.report.safe_text import defuse, mark_of, one_line, plain, render, seconds_text

ROWS = 1500
LONGEST_REASON = 160
#: A job's outputs may total 1 MB, counted as UTF-16 (docs.github.com, Actions, "Passing information between jobs").
LARGEST_JSON = 900_000
NO_REPORT = "no report"


def describe_page(page: IssuePage) -> str:
    """Return one or two sentences about what was planned."""
    whole = len(page.issues) + page.waiting
    label = f'labeled "{one_line(page.label, 60)}"'
    budget = page.budget
    if budget and page.waiting and not page.issues:
        return (
            f"planned none of {count(whole, 'open issue')} {label}: {usd(budget.total)} is left for all of them, and "
            f"one may cost {usd(budget.each)}"
        )
    if not page.issues:
        return f"no open issue {label} is left to take"
    numbers = f"#{page.issues[0].number} to #{page.issues[-1].number}"
    text = f"planned {len(page.issues):,} of {count(whole, 'open issue')} {label}, {numbers}"
    if budget:
        text += f", with {usd(budget.total)} for all of them and at most {usd(budget.each)} for each"
    return f"{text}; the next page begins after #{page.after}" if page.after else text


def page_summary(page: IssuePage) -> str:
    """Return the same sentences for the job summary."""
    text = describe_page(page)
    return f"## {plain(text[:1].upper() + text[1:])}\n"


def describe_totals(gathered: Gathered) -> str:
    """Return the totals in one line."""
    outcomes = Counter(result.outcome or NO_REPORT for result in gathered.results)
    named = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
    unpriced = f" and what {count(gathered.unpriced, 'run')} of unknown price cost" if gathered.unpriced else ""
    left, budget = gathered.budget_left, gathered.budget
    of_budget = f" ({usd(float(left))} is left of {usd(budget.total)})" if budget and left is not None else ""
    parts = (
        f"{count(len(gathered.results), 'issue')}{': ' if named else ''}{named}",
        count(_pull_requests(gathered), "pull request"),
        count(sum(result.iterations for result in gathered.results), "iteration"),
        f"{sum(result.tokens for result in gathered.results):,} tokens",
        f"{usd(gathered.cost_usd)}{unpriced}{of_budget}",
        f"{seconds_text(sum(result.seconds for result in gathered.results))} of work",
    )
    return " · ".join(parts)


def gathered_lines(gathered: Gathered) -> list[str]:
    """Return one line per issue, then the totals."""
    return [*(_line(result) for result in gathered.results), defuse(describe_totals(gathered))]


def gathered_summary(gathered: Gathered) -> str:
    """Return the table for the job summary. If there are too many issues, those that did not complete come first."""
    shown: Sequence[IssueResult] = gathered.results
    if len(shown) > ROWS:
        shown = sorted(shown, key=lambda result: result.outcome is Outcome.COMPLETED)[:ROWS]
    return render(
        "gathered.md.j2",
        gathered=gathered,
        issues=len(gathered.results),
        shown=shown,
        totals=describe_totals(gathered),
        count=count,
    )


def gathered_document(gathered: Gathered) -> JsonObject:
    """Return the table as a JSON object."""
    results = [{**asdict(result), "reason": cut(result.reason, LONGEST_REASON)} for result in gathered.results]
    return {"issues": [*results], "totals": _totals(gathered)}


def gathered_json(gathered: Gathered) -> str:
    """Return the table as a job output. If the list of issues would be too long for one, it is empty."""
    whole = compact(gathered_document(gathered))
    if len(whole.encode("utf-16-le", errors="surrogatepass")) <= LARGEST_JSON:
        return whole
    return compact({"issues": [], "totals": _totals(gathered)})


def _totals(gathered: Gathered) -> JsonObject:
    outcomes = Counter(str(result.outcome or NO_REPORT) for result in gathered.results)
    return {
        "issues": len(gathered.results),
        "completed": gathered.completed,
        "outcomes": dict(outcomes),
        "pull_requests": _pull_requests(gathered),
        "iterations": sum(result.iterations for result in gathered.results),
        "tokens": sum(result.tokens for result in gathered.results),
        "cost_usd": gathered.cost_usd,
        "cost_unknown": gathered.unpriced,
        "seconds": sum(result.seconds for result in gathered.results),
    }


def _line(result: IssueResult) -> str:
    mark = mark_of(result.outcome).text
    issue = f"#{result.issue}" if result.issue else "?"
    where = result.pull_request_url or result.reason
    return defuse(one_line(f"{mark} {issue} {result.outcome or NO_REPORT} {usd(result.cost_usd)} {where}", 240))


def _pull_requests(gathered: Gathered) -> int:
    return sum(bool(result.pull_request_url) for result in gathered.results)
