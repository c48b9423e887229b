"""The page of a run, `report.html`: one file that needs no network and shows everything that the journal knows.

Takes: entries, their `RunReport`, the agent, and the diffs of steps where somebody has them. Gives: HTML.
May touch: nothing. No text of the run can become markup: Jinja2 escapes it, the script only makes text nodes of it, and
the page's own policy lets no other script run and nothing be fetched (security.md case 31).
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

from markupsafe import Markup

from stepflow.domain.words import Outcome
from stepflow.report.advice import next_step
from stepflow.report.diff import Diffs
from stepflow.report.graph import cost_words, flow_graph, walked_path
from stepflow.report.html.overview import overview
from stepflow.report.html.timeline import Timeline
from stepflow.report.plain import one_line
from stepflow.report.rendered import read_text, render
from stepflow.report.summary import EDGE_LIMIT, figures
from stepflow.report.svg.draw import graph_svg
from stepflow.report.wording import told_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Entry
    from stepflow.domain.json import JsonValue
    from stepflow.domain.report import RunReport

#: Nothing is fetched, no form is sent, no other script runs, and this one can make no markup out of text.
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
#: A sign and its colour; every other outcome is a failure.
SIGNS = {Outcome.COMPLETED: ("✓", "good"), Outcome.SKIPPED: ("–", ""), Outcome.CANCELLED: ("■", "")}
#: What could end the script element that holds the data, or begin a comment in it.
MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report_html(
    entries: Iterable[Entry],
    report: RunReport,
    agent: AgentDefinition | None = None,
    *,
    count: int | None = None,
    diffs: Callable[[], Diffs] = Diffs,
) -> str:
    """The whole page. `count` is how many entries there are: given, they are not held all at once. `diffs` is asked
    for what the iterations changed when all entries were seen."""
    if count is None:
        entries = tuple(entries)
        count = len(entries)
    timeline = Timeline(report.history, agent, count=count)
    timeline.add_all(entries)
    changed = diffs()
    style = read_text("html/report.css") + read_text("svg/graph.css")
    script = read_text("html/report.js")
    return render(
        "html/report.html.j2",
        policy=POLICY.format(script=_digest(script), style=_digest(style)),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        data=_embedded(timeline.data(changed.steps)),
        graph=Markup(_graph(report, agent)),  # noqa: S704 - drawn by a template that escapes
        too_large=agent is not None and not _is_drawable(report, agent),
        sign=SIGNS.get(report.outcome, ("✗", "bad")),
        name=one_line(report.agent) or "stepflow",
        reason=told_reason(report.outcome, report.reason),
        advice=next_step(report),
        figures=figures(report),
        report=report,
        diffs_note=changed.note,
        **overview(timeline, report),
    )


def _graph(report: RunReport, agent: AgentDefinition | None) -> str:
    if agent is None or not _is_drawable(report, agent):
        return ""
    first = {line.step_id: f"#i{line.iteration}" for line in reversed(report.history)}
    return graph_svg(agent, walked_path(report), costs=cost_words(report), links=first)


def _is_drawable(report: RunReport, agent: AgentDefinition) -> bool:
    return len(flow_graph(agent, walked_path(report)).edges) <= EDGE_LIMIT


def _embedded(data: Mapping[str, JsonValue]) -> Markup:
    """JSON that an HTML parser reads as plain text. A lone surrogate, which only JSON can spell, stays spelled."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character, spelled in MARKUP.items():
        text = text.replace(character, spelled)
    return Markup(text.encode("utf-8", "backslashreplace").decode())  # noqa: S704 - nothing in it is markup any more


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
