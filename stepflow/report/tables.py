"""The tables that job summary and comment share: steps, validators, effects.

Takes: `RunReport`. Gives: Markdown tables of bounded size.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.effect import EffectStatus
from stepflow.domain.figures import usd
from stepflow.report.markdown import code, link, plain, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.effect import Receipt
    from stepflow.domain.report import HistoryEntry, RunReport, ValidatorRun

R = TypeVar("R")

STEP_HEADER = (">#", "Step", "Intent", "Leads to", ">Tools", ">Tokens", ">USD", ">Seconds", "Reason")
VALIDATOR_HEADER = (">Iteration", "Validator", "Result", ">Exit", ">Seconds")
WARNINGS_SHOWN = 20
EFFECT_HEADER = ("Effect", "Status", "Detail", "Link")
MARKS = {
    EffectStatus.APPLIED: "✅",
    EffectStatus.FAILED: "❌",
    EffectStatus.FORBIDDEN: "❌",
    EffectStatus.PLANNED: "▫️",
    EffectStatus.SKIPPED: "▫️",
}


def step_table(report: RunReport, rows: int) -> str:
    """One row per iteration; from the middle of a long run rows are left out, with a note."""
    shown, left_out = ends_of(report.history, rows)
    lines: list[Sequence[str]] = [_step_row(line, report) for line in shown]
    if left_out:
        note = f"*{left_out:,} iterations left out; the run folder's report has them*"
        lines.insert(len(shown) // 2, ("…", note, *[""] * (len(STEP_HEADER) - 2)))
    return table(STEP_HEADER, lines)


def validator_table(report: RunReport, rows: int) -> str:
    """One row per run of a validator, the last ones of a long run."""
    left_out = len(report.validators) - rows
    lines: list[Sequence[str]] = [_validator_row(run) for run in report.validators[-rows:]]
    if left_out > 0:
        lines.insert(0, ("…", f"*{left_out:,} earlier runs left out*", "", "", ""))
    return table(VALIDATOR_HEADER, lines)


def guard_warnings(runs: Sequence[ValidatorRun]) -> str:
    """What was changed under validators or hidden from them, as a list; what is said again and again stands once."""
    last = {(run.name, text): run.iteration for run in runs for text in run.warnings}
    shown = list(last.items())[-WARNINGS_SHOWN:]
    return "\n".join(f"- ⚠️ {plain(name)}, iteration {at}: {plain(text, 600)}" for (name, text), at in shown)


def effect_table(report: RunReport) -> str:
    """One row per effect, with where it led."""
    return table(EFFECT_HEADER, (_effect_row(receipt) for receipt in report.effects))


def ends_of(items: Sequence[R], count: int) -> tuple[tuple[R, ...], int]:
    """All items, or the first and the last ones, and how many were left out between them."""
    if len(items) <= count:
        return tuple(items), 0
    half = count // 2
    return (*items[:half], *items[-half:]), len(items) - 2 * half


def _step_row(line: HistoryEntry, report: RunReport) -> Sequence[str]:
    intent = line.intent or line.transition
    shown = intent if line.transition in (intent, "none") else f"{intent} ({line.transition})"
    check = f"check {line.check_result.result}: {line.check_result.message}" if line.check_result else ""
    closed = line.target is None and line.transition in ("closing", "complete")
    ended = report.history[-1] is line and report.success
    leads = "end" if closed and ended else "not done" if closed else code(line.target or "")
    cells = (str(line.iteration), code(line.step_id), plain(shown), leads, str(line.tool_calls))
    figures = (f"{line.usage.total:,}", usd(line.cost_usd).lstrip("$"), f"{line.seconds:.1f}")
    return (*cells, *figures, plain(check or line.reason, 140))


def _validator_row(run: ValidatorRun) -> Sequence[str]:
    if run.passed:
        result = "✅ passed"
    else:
        pattern = f" {code(run.pattern)}" if run.pattern else ""
        result = f"❌ failed{pattern}, attempt {run.attempt}, then {plain(run.action or 'stop')}"
    # Red in spite of exit 0 means that the output was not as demanded.
    exited = str(run.exit_code) if run.passed or run.exit_code else ""
    return (str(run.iteration), code(run.name), result, exited, f"{run.seconds:.1f}")


def _effect_row(receipt: Receipt) -> Sequence[str]:
    commit = f" {code(receipt.commit[:12])}" if receipt.commit else ""
    where = link("open", receipt.url) if receipt.url else ""
    status = f"{MARKS[receipt.status]} {receipt.status}"
    return (code(receipt.kind), status, f"{plain(receipt.detail)}{commit}", where)
