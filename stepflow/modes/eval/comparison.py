"""Compares the success rates of two variants on the same cases by a test that may be looked at after every case.

Each case gives +1 if only the candidate succeeds, −1 if only the baseline does, and 0 otherwise. The mean of these is
the difference of the rates. Against each possible mean, bets are placed in a game that is fair if that mean is right. A
mean is rejected at 95 % once they have turned one dollar into 20, whenever that happens (Ville's inequality). The money
is spread evenly over all constant bets that cannot go broke, so what is not rejected is an interval. See I.
Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by betting (https://arxiv.org/abs/2010.09686).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from stepflow.domain.reports.evaluation import EvalComparison, EvalVerdict

#: 1 / (1 − 0.95).
REJECTING_WEALTH = 20.0
#: How many bets stand for all of them, how often a bound is halved, and how near to ±1 a mean is tried.
BETS, HALVINGS, LARGEST_MEAN = 200, 30, 1 - 1e-9


def compare(results: Iterable[tuple[bool, bool]]) -> EvalComparison:
    """Compare pairs of successes: the candidate's and the baseline's on each case."""
    pairs = tuple(results)
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    low, high = find_interval(wins, losses, len(pairs) - wins - losses)
    return EvalComparison(
        cases=len(pairs),
        only_candidate=wins,
        only_baseline=losses,
        both=pairs.count((True, True)),
        difference=(wins - losses) / len(pairs) if pairs else 0.0,
        low=low,
        high=high,
        verdict=EvalVerdict.BETTER if low > 0 else EvalVerdict.WORSE if high < 0 else EvalVerdict.NOT_SHOWN,
    )


def find_interval(wins: int, losses: int, ties: int) -> tuple[float, float]:
    """Return the bounds of the means that are not rejected."""
    center = (wins - losses) / max(1, wins + losses + ties)

    def find_bound(outside: float) -> float:
        inside = max(-LARGEST_MEAN, min(LARGEST_MEAN, center))
        if wealth_against(outside * LARGEST_MEAN, wins, losses, ties) < REJECTING_WEALTH:
            return outside
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if wealth_against(middle, wins, losses, ties) < REJECTING_WEALTH:
                inside = middle
            else:
                outside = middle
        return outside

    return find_bound(-1.0), find_bound(1.0)


def wealth_against(mean: float, wins: int, losses: int, ties: int) -> float:
    """Return what the bets against a mean between −1 and 1 have made of one dollar."""
    least, most = -1 / (1 - mean), 1 / (1 + mean)
    bets = (least + (most - least) * (number + 0.5) / BETS for number in range(BETS))
    gains = (
        wins * math.log1p(bet * (1 - mean)) + losses * math.log1p(-bet * (1 + mean)) + ties * math.log1p(-bet * mean)
        for bet in bets
    )
    # What is larger is rejected anyway.
    return sum(math.exp(min(gain, 500.0)) for gain in gains) / BETS
