"""The page of a run, `report.html`: one file that needs no network and shows everything that the journal knows.

No text of the run can become markup: Jinja2 escapes it, and the script only makes text nodes of it. What a dry run
would have written is rendered as Markdown without HTML. The page's own policy lets no other script run and nothing be
fetched (security.md case 31).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from stepflow.domain.effect import EffectKind
from stepflow.domain.figures import count, usd
from stepflow.report.diff import Diffs
from stepflow.report.graph.flow_graph import cost_words, flow_graph, walked_path
from stepflow.report.graph.svg import graph_svg
from stepflow.report.html.timeline import Timeline, web_address
from stepflow.report.lines import mark_of
from stepflow.report.rendered import markdown_html, read_text, render
from stepflow.report.safe_text import cut, one_line, seconds_text
from stepflow.report.summary import EDGE_LIMIT, figures
from stepflow.report.wording import OUTCOMES, count_canaries, describe_hosts, describe_reason, next_step, reached_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Entry
    from stepflow.domain.json import JsonValue
    from stepflow.domain.report import HistoryEntry, RunReport
    from stepflow.domain.run import IssueImage

#: Effects whose text begins with a title.
HAVE_TITLES = (EffectKind.OPEN_PULL_REQUEST, EffectKind.CREATE_RELEASE)
PIECES_SHOWN = 200
HOSTS_SHOWN = 2_000
PROBLEMS_SHOWN = 200
ANSWER_SHOWN = 20_000
#: Characters of all images together.
IMAGES_SHOWN = 4_000_000
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
#: Rows of the table for a browser without scripts.
PLAIN_ROWS = 200
#: Nothing is fetched, since images are in the page itself; no form is sent, no other script runs, and this one can make
#: no markup out of text.
POLICY = (
    "default-src 'none'; img-src data:; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
#: What could end the script element that holds the data, or begin a comment in it.
MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def _texts(report: RunReport) -> Iterator[tuple[str, str, Markup]]:
    """What a dry run would have written: the kind of effect, a title where it has one, and the text as it looks."""
    for kind, text in report.texts.items():
        title, _, body = text.partition("\n\n") if kind in HAVE_TITLES else ("", "", text)
        yield kind, one_line(title), markdown_html(body)


def _images(images: Sequence[IssueImage]) -> Iterator[tuple[str, str]]:
    """Each image of the issue in words, and as an address that holds it, where it is one that the model has seen and
    the page does not grow too large."""
    left = IMAGES_SHOWN
    for image in images:
        shows = image.type is not None and len(image.data) <= left and BASE64.fullmatch(image.data)
        left -= len(image.data) if shows else 0
        yield one_line(str(image), 400), f"data:{image.type};base64,{image.data}" if shows else ""


def _step_sums(history: Sequence[HistoryEntry]) -> list[dict[str, object]]:
    """One line per step, in the order in which the run came to them. `share` is a step's part of the run's time in
    percent."""
    steps: dict[str, list[HistoryEntry]] = {}
    for line in history:
        steps.setdefault(line.step_id, []).append(line)
    whole = sum(line.seconds for line in history) or 1.0
    sums: list[dict[str, object]] = []
    for step, lines in steps.items():
        costs, seconds = [line.cost_usd for line in lines], sum(line.seconds for line in lines)
        figures: dict[str, object] = {
            "step": one_line(step),
            "kind": lines[0].kind.value if lines[0].kind else "",
            "visits": len(lines),
            "tools": sum(line.tool_calls for line in lines),
            "tokens": f"{sum(line.usage.total for line in lines):,}",
            "cost": usd(None if None in costs else sum(cost or 0.0 for cost in costs)),
            "seconds": seconds_text(seconds),
            "share": round(100 * seconds / whole),
        }
        sums.append(figures)
    return sums


def _indented(value: Mapping[str, JsonValue]) -> str:
    return cut(json.dumps(value, ensure_ascii=False, indent=2, default=dict), ANSWER_SHOWN)


def _about(timeline: Timeline, report: RunReport) -> Iterator[tuple[str, str]]:
    """What the run was about, for its first lines: texts, each with the address that it leads to."""
    if (issue := timeline.subject) and issue.title.strip():
        yield f"#{issue.number} {one_line(issue.title, 200)}", web_address(issue.url)
    pushed = next((each for each in report.effects if each.kind is EffectKind.PUSH_BRANCH), None)
    if branch := pushed.detail if pushed else report.kept_branch:
        yield f"branch {one_line(branch, 200)}", web_address(pushed.url) if pushed else ""
    if timeline.began is not None:
        yield f"{datetime.fromtimestamp(timeline.began, UTC):%Y-%m-%d %H:%M} UTC", ""


def _facts(timeline: Timeline, report: RunReport) -> Iterator[tuple[str, str]]:
    if timeline.began is not None:
        yield "Began", f"{datetime.fromtimestamp(timeline.began, UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield "Run", report.run_id
    yield "Verdict type", report.verdict_type
    yield "Definition", report.definition_digest[:12]
    if report.guidance:
        yield "Guidance", one_line(", ".join(map(str, report.guidance)), 400)
    yield "Base commit", report.base_commit[:12]
    yield "Run folder", report.host_run_folder or report.run_folder
    if report.spec_violations:
        yield "Spec violations", count(report.spec_violations, "time")
    for layer, state in report.isolation.items():
        yield f"Sandbox, {one_line(layer)}", one_line(state, 300)
    if report.canaries:
        reached = "".join(f"; {canary}: {report.canaries[canary]}" for canary in reached_places(report.canaries))
        yield "Sandbox, self-test", one_line(count_canaries(report.canaries) + reached, 400)
    if report.hosts:
        yield "Sandbox, hosts", one_line(describe_hosts(report.hosts), HOSTS_SHOWN)


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
    timeline = Timeline(report.history, count=count)
    for entry in entries:
        timeline.add(entry)
    changed = diffs()
    graph = _graph(report, agent) if agent else ""
    style = read_text("html/report.css") + read_text("graph/graph.css")
    script = read_text("html/report.js")
    return render(
        "html/report.html.j2",
        policy=POLICY.format(script=_digest(script), style=_digest(style)),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        data=_embedded(timeline.data(changed)),
        graph=Markup(graph),  # noqa: S704 - drawn by a template that escapes
        too_large=agent is not None and not graph,
        mark_of=mark_of,
        name=one_line(report.agent) or "stepflow",
        ended=OUTCOMES[report.outcome],
        reason=describe_reason(report.reason),
        advice=markdown_html(f"**What to do next:** {next_step(report)}"),
        figures=figures(report),
        report=report,
        timeline=timeline,
        diffs_note=changed.note,
        has_changes=bool(changed.run.files),
        sums=_step_sums(report.history),
        texts=[*_texts(report)],
        images=[*_images(timeline.images)],
        about=[*_about(timeline, report)],
        facts=[*_facts(timeline, report)],
        most={"pieces": PIECES_SHOWN, "problems": PROBLEMS_SHOWN, "rows": PLAIN_ROWS},
        indented=_indented,
        seconds_text=seconds_text,
        usd=usd,
        web_address=web_address,
    )


def _graph(report: RunReport, agent: AgentDefinition) -> str:
    """The picture; empty when it is too large."""
    path = walked_path(report)
    if len(flow_graph(agent, path).edges) > EDGE_LIMIT:
        return ""
    first = {line.step_id: f"#i{line.iteration}" for line in reversed(report.history)}
    return graph_svg(agent, path, costs=cost_words(report), links=first)


def _embedded(data: Mapping[str, JsonValue]) -> Markup:
    """JSON that an HTML parser reads as plain text. A lone surrogate, which only JSON can spell, stays spelled."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character, spelled in MARKUP.items():
        text = text.replace(character, spelled)
    return Markup(text.encode("utf-8", "backslashreplace").decode())  # noqa: S704 - nothing in it is markup any more


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
