"""The job summary: what happened, for the person who opens the run's page.

Takes: `RunReport`, the agent, and what only the caller knows. Gives: Markdown, always under GitHub's 1 MiB.
May touch: nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepflow.domain.figures import count, usd
from stepflow.domain.problem import Severity
from stepflow.domain.words import Outcome
from stepflow.report.advice import next_step
from stepflow.report.graph import flow_graph, mermaid_graph, walked_path
from stepflow.report.markdown import code, details, fence, html_text, link, plain
from stepflow.report.plain import seconds_text
from stepflow.report.removed import removed_text
from stepflow.report.tables import effect_table, guard_warnings, step_table, validator_table
from stepflow.report.wording import canaries_counted, reached_places, told_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.report import RunReport

#: GitHub drops a step's whole summary from 1 MiB on; other steps' words do not count.
LIMIT = 1_000_000
STEP_ROWS = 200
VALIDATOR_ROWS = 100
OUTPUTS = 5
PROBLEMS = 30
REMOVED_SHOWN = 100
#: GitHub's Mermaid refuses larger ones and shows an error in their place.
GRAPH_LIMIT = 40_000
EDGE_LIMIT = 400


def job_summary(
    report: RunReport,
    agent: AgentDefinition | None = None,
    *,
    notes: Sequence[str] = (),
    limit: int = LIMIT,
) -> str:
    """The summary. `notes` are what else a person should know, such as files left uncommitted. `limit` in bytes."""
    sections = (
        headline(report),
        f"**What to do next:** {next_step(report)}",
        _graph(report, agent),
        _steps(report),
        _validators(report),
        _effects(report),
        _problems(report),
        _notes(report, notes),
        removed_text(report, REMOVED_SHOWN, title="### Removed from the issue's text"),
        _answer(report),
        _sandbox(report),
        _facts(report),
    )
    return _fit([section for section in sections if section], limit)


def headline(report: RunReport) -> str:
    """How it ended, why, and what it cost."""
    issue = f" on issue #{report.issue}" if report.issue is not None else ""
    name = plain(report.agent) or "stepflow"
    reason = plain(told_reason(report.outcome, report.reason), 1000)
    lines = [f"## {mark(report.outcome)} {name}{issue}: {report.outcome}", f"**Reason:** {reason}"]
    verdict = [f"**Verdict:** {plain(report.verdict, 300)}"] if report.verdict else []
    known = [f"code {code(report.code)}"] if report.code else []
    validated = "validated" if report.validated else "not validated"
    # What never began has no figures: a skipped event, definitions that were only checked.
    cost = [report.issue_cost] if report.issue_cost else []
    told = [validated, *figures(report), *cost] if report.run_id or report.history else []
    facts = [*verdict, *known, *told]
    return "\n\n".join([*lines, " · ".join(facts)] if facts else lines)


def figures(report: RunReport) -> list[str]:
    """Iterations, tokens, money and time, as words."""
    return [
        count(report.iterations, "iteration"),
        count(report.usage.total, "token"),
        usd(report.cost_usd) if report.cost_usd is not None else "cost unknown",
        seconds_text(report.seconds),
    ]


def failure_told(report: RunReport) -> str:
    """Where the issue was told of a failure; or, where it was not, why."""
    told = report.failure_report or ""
    return link("The issue's comment tells what happened", told) if told.startswith("http") else plain(told, 600)


def mark(outcome: Outcome) -> str:
    """A sign that can be read from afar."""
    if outcome is Outcome.COMPLETED:
        return "✅"
    return "⏭️" if outcome is Outcome.SKIPPED else "⏹️" if outcome is Outcome.CANCELLED else "❌"


def graph_block(report: RunReport, agent: AgentDefinition | None, limit: int = GRAPH_LIMIT) -> str:
    """The registry's graph with the walked path, as a block that GitHub draws; empty when it is too large."""
    path = walked_path(report)
    if agent is None or len(flow_graph(agent, path).edges) > EDGE_LIMIT:
        return ""
    picture = mermaid_graph(agent, path)
    return f"```mermaid\n{picture}```" if len(picture) <= limit else ""


def _graph(report: RunReport, agent: AgentDefinition | None) -> str:
    if agent is None:
        return ""
    block = graph_block(report, agent)
    legend = "Blue: work, yellow: verification, green: closure. Thick: the way this run took."
    large = "The graph is too large for GitHub's picture; `stepflow graph --run` draws it."
    return f"### The way it took\n\n{block}\n\n{legend}" if block else f"### The way it took\n\n{large}"


def _steps(report: RunReport) -> str:
    return f"### Steps\n\n{step_table(report, STEP_ROWS)}" if report.history else ""


def _validators(report: RunReport) -> str:
    if not report.validators:
        return ""
    red = [run for run in report.validators if not run.passed and run.output_tail.strip()][-OUTPUTS:]
    outputs = (
        details(f"Output of {html_text(run.name)} in iteration {run.iteration}", fence(run.output_tail, lines=40))
        for run in red
    )
    parts = ("### Validators", validator_table(report, VALIDATOR_ROWS), guard_warnings(report.validators), *outputs)
    return "\n\n".join(part for part in parts if part)


def _effects(report: RunReport) -> str:
    told = failure_told(report)
    reported = f"\n\n{told}" if told else ""
    if report.effects:
        return f"### Effects on GitHub\n\n{effect_table(report)}{reported}"
    if not report.run_id and report.outcome in (Outcome.COMPLETED, Outcome.SKIPPED):
        return ""
    return f"### Effects on GitHub\n\nNone: nothing was planned or written.{reported}"


def _problems(report: RunReport) -> str:
    shown = [problem for problem in report.problems if problem.severity is not Severity.NOTE]
    if not shown:
        return ""
    items = [f"- {plain(str(problem), 600)}" for problem in shown[:PROBLEMS]]
    more = [f"- and {len(shown) - PROBLEMS} more: `stepflow validate` lists them all"] if shown[PROBLEMS:] else []
    return "### Problems of the definition\n\n" + "\n".join([*items, *more])


def _notes(report: RunReport, notes: Iterable[str]) -> str:
    violations = count(report.spec_violations, "time")
    spec = [f"- `failFast: false` chose an intent {violations}"] if report.spec_violations else []
    items = [*spec, *(f"- {plain(note, 600)}" for note in list(notes)[:PROBLEMS])]
    return "### Notes\n\n" + "\n".join(items) if items else ""


def _answer(report: RunReport) -> str:
    if report.structured_output is None:
        return ""
    return details("The closing answer", fence(json.dumps(report.structured_output, indent=1), lines=60))


def _sandbox(report: RunReport) -> str:
    """What kept the tools apart from the rest, layer by layer."""
    if not report.isolation:
        return ""
    rows = [*report.isolation.items()]
    if report.canaries:
        rows.append(("canaries", canaries_counted(report.canaries)))
        rows += ((place, report.canaries[place]) for place in reached_places(report.canaries))
    table = "\n".join(f"| {plain(layer)} | {plain(state, 300)} |" for layer, state in rows)
    return details("The sandbox of tools and validators", f"| Layer | State |\n| --- | --- |\n{table}")


def _facts(report: RunReport) -> str:
    return f"<sub>{' · '.join(_fact_texts(report))}</sub>" if report.run_id else ""


def _fact_texts(report: RunReport) -> Iterator[str]:
    yield f"run {code(report.run_id)}"
    yield f"definition {code(report.definition_digest[:12])}"
    if report.base_commit:
        yield f"base commit {code(report.base_commit[:12])}"
    if report.host_run_folder or report.run_folder:
        yield f"run folder {code(report.host_run_folder or report.run_folder, 200)}"


def _fit(sections: Sequence[str], limit: int) -> str:
    """Whole sections only: half a table or half a picture would be worse than none."""
    note = "*The summary is cut here: GitHub takes at most 1 MiB. The run folder's report has the rest.*\n"
    room = limit - len(note.encode())
    kept: list[str] = []
    for section in sections:
        room -= len(section.encode()) + 2
        if room < 0:
            return "\n\n".join([*kept, note])
        kept.append(section)
    return "\n\n".join(kept) + "\n"
