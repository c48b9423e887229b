"""Which difference a number of cases can show, before they are paid for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import count as count_from

from stepflow.domain.text import count

#: The share of evals in which a difference of this size is shown.
POWER = 0.8
#: What a better prompt may make of a success rate.
USUAL_DIFFERENCE = 0.2
#: 1 / (1 − 0.95).
REJECTING_WEALTH = 20
#: What is less likely does not count.
NEGLIGIBLE = 1e-9


def smallest_difference(cases: int) -> float | None:
    """Return the smallest difference of two success rates, in whole points, that so many cases show in 80 % of evals;
    None if they show none."""
    found = bisect_left(range(101), POWER, key=lambda points: find_power(points / 100, cases))
    return found / 100 if found <= 100 else None


def cases_needed(difference: float) -> int:
    """Return how many cases show this difference in 80 % of evals."""
    most = next(2**each for each in count_from() if find_power(difference, 2**each) >= POWER)
    return bisect_left(range(most), POWER, key=lambda cases: find_power(difference, cases))


def describe_power(cases: int) -> str:
    """Say which difference so many cases show, and how many a usual one takes."""
    smallest = smallest_difference(cases)
    which = "no difference" if smallest is None else f"no difference below {100 * smallest:.0f} points"
    return (
        f"with {count(cases, 'case')}, {which} can be told from chance in {POWER:.0%} of evals; for "
        f"{100 * USUAL_DIFFERENCE:.0f} points it takes {cases_needed(USUAL_DIFFERENCE)} cases"
    ).replace("%", " %")


def find_power(difference: float, cases: int) -> float:
    """Return how often an eval of so many cases shows this difference. The rates lie around 50 %, where most cases are
    needed, and which cases one variant solves says nothing about the other."""
    win, loss = ((1 + difference) / 2) ** 2, ((1 - difference) / 2) ** 2
    shown = _shown_after(win / (win + loss))
    return sum(each * _likely(number, cases, win + loss) for number, each in zip(range(cases + 1), shown, strict=False))


def _likely(number: int, cases: int, share: float) -> float:
    """Return the probability that exactly `number` of the cases are decided, each with the probability `share`."""
    if share >= 1:
        return float(number == cases)
    chosen = math.lgamma(cases + 1) - math.lgamma(number + 1) - math.lgamma(cases - number + 1)
    return math.exp(chosen + number * math.log(share) + (cases - number) * math.log1p(-share))


def _shown_after(share: float) -> Iterator[float]:
    """Yield, by the number of decided cases, how often the eval has ended by then, if the better variant wins this
    share of them."""
    going, shown = {0: 1.0}, 0.0
    for decided in count_from():
        # What all bets against equality together have made of one dollar.
        limit = 2**decided // (REJECTING_WEALTH * (decided + 1))
        for best in (max, min):
            while going and math.comb(decided, wins := best(going)) <= limit:
                shown += going.pop(wins)
        yield shown
        onward = defaultdict[int, float](float)
        for wins, likely in going.items():
            if likely > NEGLIGIBLE:
                onward[wins + 1] += likely * share
                onward[wins] += likely * (1 - share)
        going = onward
