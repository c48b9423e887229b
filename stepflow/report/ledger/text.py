"""The ledger as a table for a terminal, and as JSON."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter

from stepflow.domain.json import JsonObject, published
from stepflow.domain.reports.ledger import AgentFigures, Ledger
from stepflow.domain.text import count, usd
from stepflow.report.document import SCHEMA
from stepflow.report.safe_text import aligned, one_line

COLUMNS = (
    *("agent", "digest", "runs", "completed", "pull requests", "open", "merged", "untouched", "reverted", "closed"),
    *("$/run", "$/accepted", "minutes"),
)
UNKNOWN = "unknown"
NOTHING = "–"


def ledger_lines(ledger: Ledger) -> list[str]:
    """Return the table and what one must know to read it."""
    if not ledger.figures:
        return [f"No run by {one_line(ledger.account)} in {one_line(ledger.repository)}.", *ledger_notes(ledger)]
    lines = aligned([COLUMNS, *(_cells(each) for each in ledger.figures)])
    return [*lines, "", *ledger_notes(ledger)]


def _cells(figures: AgentFigures) -> tuple[str, ...]:
    numbers = (figures.runs, figures.completed, figures.pull_requests, figures.open, figures.merged)
    ends = (figures.merged_untouched, figures.reverted, figures.closed_unmerged)
    return (
        one_line(figures.agent, 40),
        figures.digest or UNKNOWN,
        *(f"{number:,}" for number in (*numbers, *ends)),
        cost_words(figures.cost_per_run_usd, figures),
        cost_words(figures.cost_per_accepted_usd, figures),
        NOTHING if figures.median_minutes is None else f"{figures.median_minutes:,.1f}",
    )


def cost_words(amount: float | None, figures: AgentFigures) -> str:
    """Return a cost, with a plus if it is a lower bound."""
    return NOTHING if amount is None else f"{usd(amount)}{'+' if figures.is_lower_bound else ''}"


def ledger_notes(ledger: Ledger) -> list[str]:
    """Return what the figures include, and what they leave out."""
    since = f"since {ledger.since}, " if ledger.since else ""
    notes = [
        f"{one_line(ledger.repository)}, {since}as of {ledger.read_on}: what {one_line(ledger.account)} wrote there.",
        "Accepted means merged, and not reverted within 14 days. Untouched means merged without anybody else's commit.",
    ]
    if any(figures.is_lower_bound for figures in ledger.figures):
        notes.append("A cost with a plus is a lower bound, since the price of some turns is not known.")
    if ledger.unlisted_usd:
        plus = "+" if ledger.is_unlisted_lower_bound else ""
        notes.append(
            f"Older runs, whose comments keep no record of each, cost another {usd(ledger.unlisted_usd)}{plus}."
        )
    if ledger.other_accounts:
        names = ", ".join(one_line(name, 40) for name in ledger.other_accounts[:5])
        whose = count(len(ledger.other_accounts), "other account")
        notes.append(f"Comments of {whose} look like a run's and were not counted: {names}. Use --author to count one.")
    return notes


def ledger_json(ledger: Ledger) -> JsonObject:
    """Return the ledger as a JSON object."""
    return {"schema": 1, **_adapter().dump_python(ledger, mode="json")}


def ledger_schema() -> JsonObject:
    """Return the JSON Schema of the ledger."""
    schema = _adapter().json_schema(mode="serialization")
    schema["properties"] = {"schema": {"const": 1, "type": "integer"}, **schema["properties"]}
    schema["required"] = [*schema["properties"]]
    return published({"$schema": SCHEMA, **schema, "title": "stepflow ledger"})


@cache
def _adapter() -> TypeAdapter[Ledger]:
    return TypeAdapter(Ledger)
