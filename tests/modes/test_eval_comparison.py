"""The comparison of an eval: how often it errs, and how soon it tells a worse definition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from stepflow.domain.reports.evaluation import EvalVerdict
from stepflow.modes.eval.evaluate import compare, find_interval, wealth_against
from stepflow.modes.eval.power import REJECTING_WEALTH, cases_needed, describe_power, find_power, smallest_difference
from tests.docs.page import DOCS

CASES, SEEDS = 40, 2_000


@cache
def is_rejected(mean: float, wins: int, losses: int, ties: int) -> bool:
    return wealth_against(mean, wins, losses, ties) >= REJECTING_WEALTH


def counts(random: Random, candidate: float, baseline: float, cases: int = CASES) -> Iterator[tuple[int, int, int]]:
    """Wins, losses and ties after each case, for variants that succeed with these probabilities."""
    wins = losses = 0
    for case in range(1, cases + 1):
        one, other = random.random() < candidate, random.random() < baseline
        wins, losses = wins + (one and not other), losses + (other and not one)
        yield wins, losses, case - wins - losses


def told(seed: int, candidate: float, baseline: float) -> EvalVerdict:
    """The verdict of an eval that looks after each case and stops at once."""
    for wins, losses, _ in counts(Random(seed), candidate, baseline):
        if is_rejected(0.0, wins, losses, 0):
            return EvalVerdict.BETTER if wins > losses else EvalVerdict.WORSE
    return EvalVerdict.NOT_SHOWN


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_equal_definitions_are_called_equal_in_nineteen_of_twenty_evals(rate: float) -> None:
    equal = sum(told(seed, rate, rate) is EvalVerdict.NOT_SHOWN for seed in range(SEEDS))
    assert equal >= 0.95 * SEEDS, equal


def test_a_worse_definition_is_told_within_forty_cases() -> None:
    verdicts = [told(seed, 0.35, 0.9) for seed in range(SEEDS)]
    assert verdicts.count(EvalVerdict.WORSE) >= 0.98 * SEEDS
    assert EvalVerdict.BETTER not in verdicts


@pytest.mark.parametrize(("candidate", "baseline"), [(0.5, 0.5), (0.9, 0.6), (0.1, 0.3)])
def test_the_interval_holds_the_difference_after_every_case_at_once(candidate: float, baseline: float) -> None:
    difference = candidate - baseline
    missed = sum(
        any(is_rejected(difference, *each) for each in counts(Random(seed), candidate, baseline))
        for seed in range(1_000)
    )
    assert missed <= 50, missed


@pytest.mark.parametrize(
    ("wins", "losses", "ties"), [(0, 0, 0), (8, 0, 3), (3, 9, 0), (20, 2, 18), (40, 0, 0), (70, 64, 9)]
)
def test_against_equality_the_bets_are_a_test_of_the_decided_cases(wins: int, losses: int, ties: int) -> None:
    decided = wins + losses
    exact = 2.0**decided / ((decided + 1) * math.comb(decided, wins))
    assert wealth_against(0.0, wins, losses, ties) == pytest.approx(exact, rel=0.02)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("wins", "losses", "ties"), [(0, 0, 40), (5, 5, 10), (10, 2, 28), (0, 9, 1), (40, 0, 0), (300, 0, 700)]
)
def test_the_interval_is_what_is_not_rejected(wins: int, losses: int, ties: int) -> None:
    low, high = find_interval(wins, losses, ties)
    means = [step / 100 for step in range(-99, 100)]
    assert [low < mean < high for mean in means] == [not is_rejected(mean, wins, losses, ties) for mean in means]
    assert low <= (wins - losses) / (wins + losses + ties) <= high
    # It mirrors when the roles do.
    assert find_interval(losses, wins, ties) == pytest.approx((-high, -low))


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([], EvalVerdict.NOT_SHOWN),
        ([(True, False)] * 7, EvalVerdict.NOT_SHOWN),
        ([(True, False)] * 8, EvalVerdict.BETTER),
        ([(False, True)] * 8, EvalVerdict.WORSE),
        ([(True, True)] * 300, EvalVerdict.NOT_SHOWN),
    ],
)
def test_the_verdict_follows_from_the_interval(results: list[tuple[bool, bool]], verdict: EvalVerdict) -> None:
    comparison = compare(results)
    assert comparison.verdict is verdict
    assert (comparison.low <= 0 <= comparison.high) == (verdict is EvalVerdict.NOT_SHOWN)


@pytest.mark.parametrize(("difference", "cases"), [(0.2, 174), (0.5, 28), (0.8, 12)])
def test_the_power_that_is_promised_is_what_evals_have(difference: float, cases: int) -> None:
    rates = ((1 + difference) / 2, (1 - difference) / 2)
    evals = 400
    shown = sum(
        any(is_rejected(0.0, wins, losses, 0) for wins, losses, _ in counts(Random(seed), *rates, cases))
        for seed in range(evals)
    )
    assert shown / evals == pytest.approx(find_power(difference, cases), abs=0.06)


@pytest.mark.parametrize(("difference", "cases"), [(0.2, 174), (0.3, 75), (0.5, 28)])
def test_so_many_cases_show_a_difference_and_one_less_does_not(difference: float, cases: int) -> None:
    assert cases_needed(difference) == cases
    assert find_power(difference, cases - 1) < 0.8 <= find_power(difference, cases)


@pytest.mark.parametrize(("cases", "smallest"), [(1, None), (7, None), (8, 0.98), (12, 0.77), (40, 0.41), (174, 0.20)])
def test_the_smallest_difference_that_so_many_cases_show(cases: int, smallest: float | None) -> None:
    assert smallest_difference(cases) == smallest


def test_the_guide_says_what_the_command_says() -> None:
    guide = (DOCS / "how-to/evals.md").read_text()
    assert describe_power(12) in guide
    assert "no difference can be told" in describe_power(7)
