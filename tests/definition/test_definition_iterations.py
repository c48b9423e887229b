"""`iterations.max` bounds how often a step of the check dialect runs in one visit, whatever its check says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import StepCheck
from stepflow.domain.words import Intent
from tests.definition.load_cases import Case

STEP = "s_b2c1"


def load_check(folder: Path, iterations: dict, on_fail: dict, on_pass: dict) -> StepCheck:
    edits = [
        ["steps_registry.json", "set", f"/steps/{STEP}/iterations", iterations],
        ["steps_registry.json", "set", f"/steps/{STEP}/check/onFail", on_fail],
        ["steps_registry.json", "set", f"/steps/{STEP}/check/onPass", on_pass],
    ]
    case = Case(folder=folder, data={"base": "check-flow", "edits": edits})
    agent = load_agent(case.build(folder / "repository") / ".agent" / "demo")
    check = agent.steps[STEP].check
    assert check
    return check


def runs_of(rules: tuple, most: int = 50) -> tuple[int, str | None]:
    """How often the step runs in one visit when each run ends alike, and what follows."""
    for runs in range(1, most):
        rule = next((rule for rule in rules if rule.holds(runs=runs, retries=runs - 1)), None)
        if rule is None:
            return runs, None
        if rule.intent is not Intent.REPEAT and rule.target != STEP:
            return runs, rule.target
    return most, None


@pytest.mark.parametrize(
    ("iterations", "on_fail", "runs", "then"),
    [
        ({"max": 3}, {"retry": True}, 3, None),
        ({"max": 3}, {"retry": True, "fallback": "s_a8f3"}, 3, "s_a8f3"),
        ({"max": 2}, {"retry": True, "maxRetries": 5}, 2, None),
        ({"max": 2}, {"retry": True, "maxRetries": 5, "fallback": "s_a8f3"}, 2, "s_a8f3"),
        ({"max": 5}, {"retry": True, "maxRetries": 2}, 3, None),
        ({"max": 1}, {"retry": True, "maxRetries": 2}, 3, None),
        ({}, {"retry": True, "maxRetries": 2, "fallback": "s_a8f3"}, 3, "s_a8f3"),
        ({}, {"retry": True}, 50, None),
        ({"max": 4}, {"fallback": STEP}, 4, None),
        ({"max": 4}, {"next": STEP}, 4, None),
        ({"max": 4}, {}, 4, None),
    ],
)  # fmt: skip
def test_a_step_that_fails_runs_no_more_than_its_maximum(
    tmp_path: Path, iterations: dict, on_fail: dict, runs: int, then: str | None
) -> None:
    check = load_check(tmp_path, iterations, on_fail, {"next": "s_c9d4"})
    assert runs_of(check.on_fail) == (runs, then)


@pytest.mark.parametrize("on_pass", [{"next": STEP}, {"retry": True}, {"fallback": STEP}])
def test_a_step_that_passes_runs_no_more_than_its_maximum(tmp_path: Path, on_pass: dict) -> None:
    check = load_check(tmp_path, {"min": 2, "max": 3}, {"fallback": "s_a8f3"}, on_pass)
    assert runs_of(check.on_pass) == (3, None)
