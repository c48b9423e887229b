"""Reports on many runs: a batch of issues as its planned page and the table of its results, and an eval of two
definitions as lines, JSON, and a page with the runs of both side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from stepflow.domain.json import JsonObject
from stepflow.domain.reports.evaluation import EvalPair, EvalTrial, Evaluation, EvalVerdict
from stepflow.domain.reports.report import Gathered, IssuePage, IssueResult
from stepflow.domain.text import count, cut, sum_costs, usd
from stepflow.domain.words import Outcome
from stepflow.report.safe_text import (
    Line,
    Tone,
    aligned,
    json_line,
    mark_of,
    one_line,
    plain,
    render,
    render_page,
    seconds_text,
)

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


def gathered_lines(gathered: Gathered) -> list[Line]:
    """Return one line per issue, then the totals."""
    return [*map(_line, gathered.results), Line(Tone.PLAIN, describe_totals(gathered))]


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
    whole = json_line(gathered_document(gathered))
    if len(whole.encode("utf-16-le", errors="surrogatepass")) <= LARGEST_JSON:
        return whole
    return json_line({"issues": [], "totals": _totals(gathered)})


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


def _line(result: IssueResult) -> Line:
    mark = mark_of(result.outcome).text
    issue = f"#{result.issue}" if result.issue else "?"
    where = result.pull_request_url or result.reason
    text = f"{mark} {issue} {result.outcome or NO_REPORT} {usd(result.cost_usd)} {where}"
    return Line(Tone.PLAIN, one_line(text, 240))


def _pull_requests(gathered: Gathered) -> int:
    return sum(bool(result.pull_request_url) for result in gathered.results)


CELL, FAILURE = 60, 300
TONES = {EvalVerdict.BETTER: Tone.GOOD, EvalVerdict.WORSE: Tone.BAD, EvalVerdict.NOT_SHOWN: Tone.PLAIN}


def trial_lines(case: str, is_candidate: bool, trial: EvalTrial) -> list[Line]:
    """Return the line of one trial, and why it failed."""
    mark, name = mark_of(trial.success), one_line(case, CELL)
    figures = f"{trial.outcome}, {usd(trial.cost_usd)}, {seconds_text(trial.seconds)}"
    lines = [Line(mark.tone, f"{mark.text} {name}  {'candidate' if is_candidate else 'baseline'}: {figures}")]
    if trial.failure:
        lines.append(Line(Tone.PLAIN, f"    {one_line(trial.failure, FAILURE)}"))
    return lines


def evaluation_lines(evaluation: Evaluation) -> list[Line]:
    """Return the table of both variants, the cases on which they differ, and the verdict."""
    rows = [
        ("", "definition", "successes", "cost", "per success", "median time"),
        *map(tuple, variant_rows(evaluation)),
    ]
    lines = [Line(Tone.PLAIN, row) for row in aligned(rows)]
    for pair in evaluation.pairs:
        if pair.candidate.success != pair.baseline.success:
            who, other = ("candidate", "baseline")[:: 1 if pair.candidate.success else -1]
            lines.append(Line(Tone.PLAIN, f"only the {who} solves {one_line(pair.case, CELL)}; {other}: {why(pair)}"))
    lines += [
        Line(Tone.WARNING, f"! {one_line(each.case, CELL)} is left out: {one_line(each.reason, FAILURE)}")
        for each in evaluation.dropped
    ]
    verdict = evaluation.comparison.verdict
    end = f"Ended because {one_line(evaluation.ended, FAILURE)}. Spent {usd(evaluation.spent_usd)}."
    return [
        *lines,
        Line(TONES[verdict], describe_verdict(evaluation)),
        Line(Tone.PLAIN, f"{end} Page: {evaluation.folder}/eval.html"),
    ]


def why(pair: EvalPair) -> str:
    """Return why the variant that failed alone did so."""
    failed = pair.baseline if pair.candidate.success else pair.candidate
    return one_line(failed.failure, FAILURE) or failed.outcome


def describe_verdict(evaluation: Evaluation) -> str:
    """Return the verdict with its interval, in one sentence."""
    comparison = evaluation.comparison
    figures = (
        f"{count(comparison.cases, 'case')}, difference of the success rates {points(comparison.difference)}, 95 % "
        f"confidence interval {points(comparison.low)} to {points(comparison.high)}"
    )
    match comparison.verdict:
        case EvalVerdict.NOT_SHOWN:
            return f"No difference shown: {figures}"
        case verdict:
            return f"The candidate is {verdict}: {figures}"


def points(share: float) -> str:
    """Format a difference of rates in percentage points."""
    return f"{100 * share:+.0f} points".replace("+0 ", "0 ").replace("-0 ", "0 ").replace("-", "−")


def variant_rows(evaluation: Evaluation) -> list[Sequence[str]]:
    """Return the figures of both variants: role, definition, successes, cost, cost per success and median time."""
    rows: list[Sequence[str]] = []
    for role, variant, of_candidate in (
        ("candidate", evaluation.candidate, True),
        ("baseline", evaluation.baseline, False),
    ):
        trials = evaluation.trials(of_candidate=of_candidate)
        successes = sum(trial.success for trial in trials)
        cost = sum_costs(trial.cost_usd for trial in trials)
        per_success = usd(cost / successes) if successes and cost is not None else "–"
        times = sorted(trial.seconds for trial in trials)
        median = seconds_text(times[len(times) // 2]) if times else "–"
        solved = f"{successes} of {len(trials)}"
        rows.append((role, one_line(str(variant), 2 * CELL), solved, usd(cost), per_success, median))
    return rows


def evaluation_json(evaluation: Evaluation) -> JsonObject:
    """Return everything as a JSON object."""
    document: JsonObject = json.loads(json.dumps(asdict(evaluation)))
    return {"schema": 1, "verdict": evaluation.comparison.verdict.value, **document}


def evaluation_html(evaluation: Evaluation) -> str:
    """Return the page: one file that needs no network and no script, next to the folders of the runs."""
    return render_page(
        "evaluation.html.j2",
        "report.css",
        evaluation=evaluation,
        verdict=describe_verdict(evaluation),
        tone=TONES[evaluation.comparison.verdict],
        rows=variant_rows(evaluation),
        mark_of=mark_of,
        one_line=one_line,
        usd=usd,
        seconds_text=seconds_text,
        count=count,
    )
