"""The run's comment on the issue: the job summary in short.

Takes: `RunReport` and the agent. Gives: Markdown; the boundary's filter for text that leaves comes after it.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.report.advice import next_step
from stepflow.report.markdown import code, details, fence, html_text, link, plain
from stepflow.report.summary import graph_block, headline
from stepflow.report.tables import effect_table, ends_of, step_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.report import RunReport, ValidatorRun

WAY_SHOWN = 12
STEP_ROWS = 20
NOTES = 10
#: A comment holds 65,536 characters; the picture must not crowd out the words.
GRAPH_LIMIT = 12_000


def comment_summary(
    report: RunReport, agent: AgentDefinition | None = None, *, notes: Sequence[str] = (), run_url: str = ""
) -> str:
    """The default text of the run's one comment. `run_url` leads to the job with the full summary."""
    parts = [
        headline(report).replace("## ", "### ", 1),
        # A success is told before its effects are written: what to do then is seen by looking at them.
        "" if report.success else f"**What to do next:** {next_step(report)}",
        _validators(report),
        _red_output(report),
        effect_table(report) if report.effects else "",
        "\n".join(f"- {plain(note, 400)}" for note in notes[:NOTES]),
        _way(report, agent),
        link("The run with its full summary", run_url) if run_url else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _validators(report: RunReport) -> str:
    """Each validator once, as it stood at its last run."""
    last: dict[str, ValidatorRun] = {run.name: run for run in report.validators}
    shown = (f"{'✅' if run.passed else '❌'} {code(run.name)}" for run in list(last.values())[:WAY_SHOWN])
    return f"**Validators:** {' '.join(shown)}" if last else ""


def _red_output(report: RunReport) -> str:
    """The output of the validator that ended the run, for whoever must mend it."""
    if report.success or not report.validators or report.validators[-1].passed:
        return ""
    run = report.validators[-1]
    if not run.output_tail.strip():
        return ""
    return details(f"Output of {html_text(run.name)}", fence(run.output_tail, lines=40))


def _way(report: RunReport, agent: AgentDefinition | None) -> str:
    if not report.history:
        return ""
    shown, left_out = ends_of(report.history, WAY_SHOWN)
    names = [html_text(line.step_id) for line in shown]
    if left_out:
        names.insert(len(names) // 2, f"… {left_out:,} more …")
    body = "\n\n".join(filter(None, [graph_block(report, agent, GRAPH_LIMIT), step_table(report, STEP_ROWS)]))
    return details(f"The way it took: {' → '.join(names)}", body)
