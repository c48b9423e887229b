"""Shows an eval: lines for a terminal, JSON, and a page with the runs of both definitions side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from stepflow.domain.json import JsonObject
from stepflow.domain.reports.evaluation import EvalPair, EvalTrial, Evaluation, EvalVerdict
from stepflow.domain.text import count, usd
from stepflow.report.safe_text import Line, Tone, aligned, defuse, mark_of, one_line, render_page, seconds_text

CELL, FAILURE = 60, 300
TONES = {EvalVerdict.BETTER: Tone.GOOD, EvalVerdict.WORSE: Tone.BAD, EvalVerdict.NOT_SHOWN: Tone.PLAIN}


def trial_lines(case: str, is_candidate: bool, trial: EvalTrial) -> list[Line]:
    """Return the line of one trial, and why it failed."""
    mark, name = mark_of(trial.success), one_line(case, CELL)
    figures = f"{trial.outcome}, {usd(trial.cost_usd)}, {seconds_text(trial.seconds)}"
    lines = [Line(mark.tone, defuse(f"{mark.text} {name}  {'candidate' if is_candidate else 'baseline'}: {figures}"))]
    if trial.failure:
        lines.append(Line(Tone.PLAIN, defuse(f"    {one_line(trial.failure, FAILURE)}")))
    return lines


def evaluation_lines(evaluation: Evaluation) -> list[Line]:
    """Return the table of both variants, the cases on which they differ, and the verdict."""
    rows = [
        ("", "definition", "successes", "cost", "per success", "median time"),
        *map(tuple, variant_rows(evaluation)),
    ]
    lines = [Line(Tone.PLAIN, defuse(row)) for row in aligned(rows)]
    for pair in evaluation.pairs:
        if pair.candidate.success != pair.baseline.success:
            who, other = ("candidate", "baseline")[:: 1 if pair.candidate.success else -1]
            lines.append(
                Line(Tone.PLAIN, defuse(f"only the {who} solves {one_line(pair.case, CELL)}; {other}: {why(pair)}"))
            )
    lines += [
        Line(Tone.WARNING, defuse(f"! {one_line(each.case, CELL)} is left out: {one_line(each.reason, FAILURE)}"))
        for each in evaluation.dropped
    ]
    verdict = evaluation.comparison.verdict
    end = f"Ended because {one_line(evaluation.ended, FAILURE)}. Spent {usd(evaluation.spent_usd)}."
    return [
        *lines,
        Line(TONES[verdict], defuse(describe_verdict(evaluation))),
        Line(Tone.PLAIN, defuse(f"{end} Page: {evaluation.folder}/eval.html")),
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
        costs = [trial.cost_usd for trial in trials]
        cost = None if None in costs else sum(each for each in costs if each is not None)
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
