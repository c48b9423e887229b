"""The run's comment on the issue: the job summary in short.

Takes: `RunReport`. Gives: Markdown without pictures and without HTML but folds, as the boundary's filter demands.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.report.advice import next_step
from stepflow.report.markdown import details, fence, html_text, link, plain
from stepflow.report.removed import removed_text
from stepflow.report.summary import headline
from stepflow.report.tables import effect_table, ends_of, guard_warnings, step_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.report import RunReport, ValidatorRun

WAY_SHOWN = 12
STEP_ROWS = 20
NOTES = 10
REMOVED_SHOWN = 20
CODE_TAG = re.compile("</?code>")


def comment_summary(report: RunReport, *, notes: Sequence[str] = (), run_url: str = "") -> str:
    """The default text of the run's one comment. `run_url` leads to the job with the full summary."""
    parts = [
        _without_code_tags(headline(report).replace("## ", "### ", 1)),
        # A success is told before its effects are written: what to do then is seen by looking at them.
        "" if report.success else f"**What to do next:** {next_step(report)}",
        _validators(report),
        # Of a success the boundary tells them itself, also below a text of the model's.
        "" if report.success else guard_warnings(tuple(_last_runs(report).values())),
        _red_output(report),
        _without_code_tags(effect_table(report)) if report.effects else "",
        "\n".join(f"- {plain(note, 400)}" for note in notes[:NOTES]),
        removed_part(report),
        _way(report),
        link("The run with its full summary", run_url) if run_url else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def removed_part(report: RunReport) -> str:
    """What the model did not see of the issue's text, as the comment tells it; empty when that is nothing."""
    return removed_text(report, REMOVED_SHOWN)


def _without_code_tags(text: str) -> str:
    """What the summary shows as code, as words. All tags of these texts are the engine's: others are escaped."""
    return CODE_TAG.sub("", text)


def _validators(report: RunReport) -> str:
    """Each validator once, as it stood at its last run. Of many all red ones are shown."""
    runs = _last_runs(report).values()
    green = [run.name for run in runs if run.passed]
    left = max(0, min(len(green), len(runs) - WAY_SHOWN))
    hidden = set(green[len(green) - left :])
    shown = [f"{'✅' if run.passed else '❌'} {plain(run.name)}" for run in runs if run.name not in hidden]
    more = f" ✅ {left:,} more" if left else ""
    return f"**Validators:** {' '.join(shown)}{more}" if runs else ""


def _last_runs(report: RunReport) -> dict[str, ValidatorRun]:
    return {run.name: run for run in report.validators}


def _red_output(report: RunReport) -> str:
    """The output of the validator that ended the run, for whoever must mend it."""
    if report.success or not report.validators or report.validators[-1].passed:
        return ""
    run = report.validators[-1]
    if not run.output_tail.strip():
        return ""
    return details(f"Output of {html_text(run.name)}", fence(run.output_tail, lines=40))


def _way(report: RunReport) -> str:
    if not report.history:
        return ""
    shown, left_out = ends_of(report.history, WAY_SHOWN)
    names = [html_text(line.step_id) for line in shown]
    if left_out:
        names.insert(len(names) // 2, f"… {left_out:,} more …")
    return details(f"The way it took: {' → '.join(names)}", _without_code_tags(step_table(report, STEP_ROWS)))
