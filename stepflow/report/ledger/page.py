"""The ledger as one page with two plots. It fetches nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

from stepflow.domain.reports.ledger import AgentFigures, Ledger
from stepflow.report.ledger.text import NOTHING, UNKNOWN, cost_words, ledger_notes
from stepflow.report.page import POLICY
from stepflow.report.rendered import read_text, render
from stepflow.report.safe_text import one_line

#: Lines in the first plot, as many as have colors, and bars in the second. The table has every version.
MOST_LINES, MOST_BARS = 8, 24
WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 14, 30
DATES, STEPS = 5, 4
BAR_LEFT, BAR_HEIGHT = 370, 26


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A labeled place on an axis."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The accepted changes of one version over time. `color` counts from 0."""

    color: int
    name: str
    digest: str
    path: str
    accepted: int


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The first plot."""

    curves: tuple[Curve, ...]
    dates: tuple[Tick, ...]
    numbers: tuple[Tick, ...]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What an accepted change of one version cost; without a length, none was accepted."""

    top: float
    name: str
    digest: str
    length: float
    text: str


def ledger_html(ledger: Ledger) -> str:
    """Return the whole page."""
    style = read_text("report.css") + read_text("ledger.css")
    bars = ledger.figures[-MOST_BARS:]
    return render(
        "ledger.html.j2",
        policy=POLICY.format(style=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()),
        style=Markup(style),  # noqa: S704 - our own file
        name=one_line(ledger.repository),
        ledger=ledger,
        notes=ledger_notes(ledger),
        curves=draw_curves(ledger),
        bars=draw_bars(bars),
        bars_left_out=len(ledger.figures) - len(bars),
        totals=_totals(ledger.figures),
        cost_words=cost_words,
        unknown=UNKNOWN,
        nothing=NOTHING,
        size={
            **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM},
            **{"bar": BAR_HEIGHT, "bars": len(bars) * BAR_HEIGHT + 4, "bar_left": BAR_LEFT},
        },
    )


def _totals(figures: Sequence[AgentFigures]) -> dict[str, int]:
    names = ("runs", "pull_requests", "merged", "reverted", "accepted")
    return {name: sum(getattr(each, name) for each in figures) for name in names}


def draw_curves(ledger: Ledger) -> Curves | None:
    """Place the lines of the versions with the most accepted changes; None without one."""
    if not ledger.accepted:
        return None
    # Of equal ones, the newest.
    ranked = sorted((each for each in reversed(ledger.figures) if each.accepted), key=lambda each: -each.accepted)
    shown = [each for each in ledger.figures if each in ranked[:MOST_LINES]]
    first, last = ledger.accepted[0].day - timedelta(days=1), max(ledger.read_on, ledger.accepted[-1].day)
    step = _step(max(each.accepted for each in shown))
    steps = -(-max(each.accepted for each in shown) // step)
    most, days = step * steps, (last - first).days

    def x(day: date) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (day - first).days / days, 1)

    def y(number: int) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * number / most, 1)

    def path(figures: AgentFigures) -> str:
        points = [each for each in ledger.accepted if (each.agent, each.digest) == (figures.agent, figures.digest)]
        line = " ".join(f"H{x(each.day)} V{y(each.accepted)}" for each in points)
        return f"M{x(points[0].day)} {y(0)} {line} H{x(last)}"

    dates = dict.fromkeys(first + timedelta(days=round(days * part / (DATES - 1))) for part in range(DATES))
    return Curves(
        curves=tuple(
            Curve(
                color=number,
                name=one_line(each.agent, 30),
                digest=each.digest or UNKNOWN,
                path=path(each),
                accepted=each.accepted,
            )
            for number, each in enumerate(shown)
        ),
        dates=tuple(Tick(at=x(day), text=f"{day}") for day in dates),
        numbers=tuple(Tick(at=y(part * step), text=f"{part * step:,}") for part in range(steps + 1)),
        left_out=len(ranked) - len(shown),
    )


def _step(most: int) -> int:
    """Return the smallest round number of which `STEPS` are enough."""
    power = 1
    while True:
        for size in (power, 2 * power, 5 * power):
            if size * STEPS >= most:
                return size
        power *= 10


def draw_bars(figures: Sequence[AgentFigures]) -> tuple[Bar, ...]:
    """Place one bar for each version, below each other."""
    longest = max((each.cost_per_accepted_usd or 0.0 for each in figures), default=0.0)
    return tuple(
        Bar(
            top=number * BAR_HEIGHT,
            name=one_line(each.agent, 16),
            digest=each.digest or UNKNOWN,
            length=round((WIDTH - BAR_LEFT - RIGHT) * (each.cost_per_accepted_usd or 0) / longest, 1)
            if longest
            else 0.0,
            text=cost_words(each.cost_per_accepted_usd, each) if each.accepted else "nothing accepted",
        )
        for number, each in enumerate(figures)
    )
