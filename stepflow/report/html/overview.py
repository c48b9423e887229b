"""What stands on a page above the timeline: sums per step, validators, effects, removed text, problems, facts.

Takes: the timeline of the entries and their `RunReport`. Gives: the values for the template.
May touch: nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectStatus
from stepflow.domain.figures import count, usd
from stepflow.report.html.run_cards import TONE_OF_STATUS, web_address
from stepflow.report.plain import cut, one_line, seconds_text
from stepflow.report.wording import canaries_counted, reached_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepflow.domain.report import HistoryEntry, RunReport
    from stepflow.report.html.timeline import Timeline

PIECES_SHOWN = 200
PROBLEMS_SHOWN = 200
ANSWER_SHOWN = 20_000
#: Plain signs: a font for pictures may be missing where a page is read.
SIGNS = {
    EffectStatus.APPLIED: "✓",
    EffectStatus.FAILED: "✗",
    EffectStatus.FORBIDDEN: "✗",
    EffectStatus.PLANNED: "–",
    EffectStatus.SKIPPED: "–",
}
#: Rows of the table for a browser without scripts.
PLAIN_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class StepSum:
    """All iterations of one step. `share` is its part of the run's time in percent."""

    step: str
    kind: str
    visits: int
    tools: int
    tokens: str
    cost: str
    seconds: str
    share: int


def overview(timeline: Timeline, report: RunReport) -> dict[str, object]:
    """The values, each text of them bounded."""
    pieces = report.removed_text.pieces[:PIECES_SHOWN]
    told = report.failure_report or ""
    return {
        "sums": step_sums(report.history),
        "validators": [(f"e{seq}", run, seconds_text(run.seconds)) for seq, run in timeline.validators],
        "validators_left_out": len(report.validators) - len(timeline.validators),
        "effects": [
            (effect, SIGNS[effect.status], TONE_OF_STATUS.get(effect.status, ""), web_address(effect.url))
            for effect in report.effects
        ],
        "told": "" if web_address(told) else told,
        "told_url": web_address(told),
        "pieces": [(piece.kind.value, piece.where, piece.text) for piece in pieces],
        "problems": [str(problem) for problem in report.problems[:PROBLEMS_SHOWN]],
        "answer": _json(report.structured_output),
        "handoff": _json({step: dict(values) for step, values in report.handoff.items()}),
        "facts": [*_facts(timeline, report)],
        "plain_rows": [(line, usd(line.cost_usd), line.step_id) for line in report.history[:PLAIN_ROWS]],
    }


def step_sums(history: Sequence[HistoryEntry]) -> list[StepSum]:
    """One line per step, in the order in which the run came to them."""
    lines: dict[str, list[HistoryEntry]] = {}
    for line in history:
        lines.setdefault(line.step_id, []).append(line)
    whole = sum(line.seconds for line in history) or 1.0
    return [_sum(step, own, whole) for step, own in lines.items()]


def _sum(step: str, lines: Sequence[HistoryEntry], whole: float) -> StepSum:
    costs = [line.cost_usd for line in lines]
    seconds = sum(line.seconds for line in lines)
    return StepSum(
        step=one_line(step),
        kind=lines[0].kind.value if lines[0].kind else "",
        visits=len(lines),
        tools=sum(line.tool_calls for line in lines),
        tokens=f"{sum(line.usage.total for line in lines):,}",
        cost=usd(None if None in costs else sum(cost or 0.0 for cost in costs)),
        seconds=seconds_text(seconds),
        share=round(100 * seconds / whole),
    )


def _json(value: Mapping[str, object] | None) -> str:
    return cut(json.dumps(value, ensure_ascii=False, indent=2), ANSWER_SHOWN) if value else ""


def _facts(timeline: Timeline, report: RunReport) -> Iterator[tuple[str, str]]:
    if timeline.began is not None:
        yield "Began", f"{datetime.fromtimestamp(timeline.began, UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield "Run", report.run_id
    yield "Verdict type", report.verdict_type
    yield "Definition", report.definition_digest[:12]
    yield "Base commit", report.base_commit[:12]
    yield "Run folder", report.host_run_folder or report.run_folder
    if report.spec_violations:
        yield "Spec violations", count(report.spec_violations, "time")
    for layer, state in report.isolation.items():
        yield f"Sandbox, {one_line(layer)}", one_line(state, 300)
    if report.canaries:
        reached = "".join(f"; {place}: {report.canaries[place]}" for place in reached_places(report.canaries))
        yield "Sandbox, canaries", one_line(canaries_counted(report.canaries) + reached, 400)
