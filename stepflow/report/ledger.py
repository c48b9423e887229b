"""The ledger: its figures from what was read on GitHub, and the same as a table, as JSON, and as one page with a
plot, which fetches nothing and runs no script."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from statistics import median

from pydantic import TypeAdapter

from stepflow.domain.json import JsonObject
from stepflow.domain.reports.ledger import (
    AcceptedOnDay,
    AgentChange,
    AgentFigures,
    Ledger,
    RepositoryHistory,
    RunRecord,
)
from stepflow.domain.text import Spent, count, usd
from stepflow.domain.words import Outcome
from stepflow.report.document import publish_document
from stepflow.report.safe_text import Line, Tone, aligned, one_line, render_page

_DIGITS = 6


def compute_ledger(history: RepositoryHistory) -> Ledger:
    """Return the figures of each agent and digest, by agent and the day of its first run."""
    runs = defaultdict[tuple[str, str], list[RunRecord]](list)
    changes = defaultdict[tuple[str, str], list[AgentChange]](list)
    for run in history.runs:
        runs[run.agent, run.record.digest].append(run.record)
    for change in history.changes:
        changes[change.agent, change.digest].append(change)
    first = {version: min(record.day for record in records) for version, records in runs.items()}
    versions = sorted({*runs, *changes}, key=lambda version: (version[0], first.get(version, ""), version[1]))
    return Ledger(
        repository=history.repository,
        account=history.account,
        read_on=history.read_on,
        since=history.since,
        figures=tuple(_figures(*version, runs[version], changes[version]) for version in versions),
        totals=tuple(_totals(history, Counter(agent for agent, _ in versions))),
        accepted=tuple(_accepted_by_day(history.changes)),
        unlisted_usd=round(history.unlisted.usd, _DIGITS),
        is_unlisted_lower_bound=history.unlisted.at_least,
        other_accounts=history.other_accounts,
    )


def _totals(history: RepositoryHistory, versions: Counter[str]) -> Iterator[AgentFigures]:
    """Yield the figures of all versions together, for each agent with several."""
    for agent in (agent for agent, number in versions.items() if number > 1):
        runs = [run.record for run in history.runs if run.agent == agent]
        yield _figures(agent, "", runs, [change for change in history.changes if change.agent == agent])


def _figures(agent: str, digest: str, runs: Sequence[RunRecord], changes: Sequence[AgentChange]) -> AgentFigures:
    cost = sum((run.cost for run in runs), Spent())
    merged = [change for change in changes if change.merged_on]
    accepted = sum(not change.is_reverted for change in merged)
    minutes = [run.minutes for run in runs if run.outcome is not None]
    return AgentFigures(
        agent=agent,
        digest=digest,
        runs=len(runs),
        completed=sum(run.outcome is Outcome.COMPLETED for run in runs),
        pull_requests=len(changes),
        open=sum(change.is_open for change in changes),
        merged=len(merged),
        merged_untouched=sum(change.is_untouched for change in merged),
        reverted=len(merged) - accepted,
        closed_unmerged=sum(not (change.merged_on or change.is_open) for change in changes),
        accepted=accepted,
        cost_usd=round(cost.usd, _DIGITS),
        is_lower_bound=cost.at_least,
        cost_per_run_usd=_share(cost.usd, len(runs)),
        cost_per_accepted_usd=_share(cost.usd, accepted),
        median_minutes=round(median(minutes), 1) if minutes else None,
    )


def _share(usd: float, number: int) -> float | None:
    return round(usd / number, _DIGITS) if number else None


def _accepted_by_day(changes: Sequence[AgentChange]) -> Iterator[AcceptedOnDay]:
    """Yield the growing number of accepted changes of each version, on each day on which it grew."""
    on_day = Counter(
        (change.merged_on, change.agent, change.digest)
        for change in changes
        if change.merged_on and not change.is_reverted
    )
    total = Counter[tuple[str, str]]()
    for (day, agent, digest), number in sorted(on_day.items()):
        total[agent, digest] += number
        yield AcceptedOnDay(day=day, agent=agent, digest=digest, accepted=total[agent, digest])


COLUMNS = (
    *("agent", "digest", "runs", "completed", "pull requests", "open", "merged", "untouched", "reverted", "closed"),
    *("$/run", "$/accepted", "minutes"),
)
UNKNOWN, ALL = "unknown", "all"
NOTHING = "–"


def ledger_lines(ledger: Ledger) -> list[Line]:
    """Return the table and what one must know to read it."""
    if not ledger.figures:
        table: tuple[str, ...] = (f"No run by {one_line(ledger.account)} in {one_line(ledger.repository)}.",)
    else:
        rows = (_cells(each, each.digest or UNKNOWN) for each in ledger.figures)
        table = (*aligned([COLUMNS, *rows, *(_cells(each, ALL) for each in ledger.totals)]), "")
    return [Line(Tone.PLAIN, text) for text in (*table, *ledger_notes(ledger))]


def _cells(figures: AgentFigures, version: str) -> tuple[str, ...]:
    numbers = (figures.runs, figures.completed, figures.pull_requests, figures.open, figures.merged)
    ends = (figures.merged_untouched, figures.reverted, figures.closed_unmerged)
    return (
        one_line(figures.agent, 40),
        version,
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
    if ledger.totals:
        notes.append(
            "A pull request counts for the definition that wrote it last, and a run for its own. The lines `all` have "
            "what an agent's definitions cost and brought together."
        )
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
    return publish_document(_adapter().json_schema(mode="serialization"), "stepflow ledger")


@cache
def _adapter() -> TypeAdapter[Ledger]:
    return TypeAdapter(Ledger)


#: Lines in the plot, as many as have colors. The table has every version.
MOST_LINES = 8
WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 48, WIDTH - 16, 14, HEIGHT - 30
#: Parts of each axis.
PARTS = 4


def ledger_html(ledger: Ledger) -> str:
    """Return the whole page."""
    return render_page(
        "ledger.html.j2",
        *("report.css", "ledger.css"),
        name=one_line(ledger.repository),
        ledger=ledger,
        notes=ledger_notes(ledger),
        plot=_draw_plot(ledger) if ledger.accepted else None,
        totals={name: sum(getattr(each, name) for each in ledger.figures) for name in TOTALS},
        costliest=max((each.cost_per_accepted_usd or 0.0 for each in ledger.figures), default=0.0),
        cost_words=cost_words,
        count=count,
        all=ALL,
        one_line=one_line,
        unknown=UNKNOWN,
        nothing=NOTHING,
        size={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
    )


TOTALS = ("runs", "pull_requests", "merged", "reverted", "accepted")


def _draw_plot(ledger: Ledger) -> dict[str, object]:
    """Return the lines of the versions with the most accepted changes, and the places and texts of both axes."""
    # Of equal ones, the newest.
    ranked = sorted((each for each in reversed(ledger.figures) if each.accepted), key=lambda each: -each.accepted)
    shown = [each for each in ledger.figures if each in ranked[:MOST_LINES]]
    first, last = ledger.accepted[0].day - timedelta(days=1), max(ledger.read_on, ledger.accepted[-1].day)
    most, days = ranked[0].accepted, (last - first).days

    def x(day: date) -> float:
        return round(LEFT + (RIGHT - LEFT) * (day - first).days / days, 1)

    def y(number: int) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * number / most, 1)

    def path(figures: AgentFigures) -> str:
        points = [each for each in ledger.accepted if (each.agent, each.digest) == (figures.agent, figures.digest)]
        line = " ".join(f"H{x(each.day)} V{y(each.accepted)}" for each in points)
        return f"M{x(points[0].day)} {y(0)} {line} H{x(last)}"

    dates = {first + timedelta(days=round(days * part / PARTS)) for part in range(PARTS + 1)}
    numbers = {round(most * part / PARTS) for part in range(PARTS + 1)}
    return {
        "curves": [(each, path(each)) for each in shown],
        "dates": [(x(day), str(day)) for day in sorted(dates)],
        "numbers": [(y(number), f"{number:,}") for number in sorted(numbers)],
        "left_out": len(ranked) - len(shown),
    }
