"""Where a follow-up begins: at the step that `entrySteps` has for its kind, else where every run begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, cases, edit_json

from stepflow.definition.loading import load_agent, validate_agent
from stepflow.domain.words import FollowUpKind

FOLLOW_UPS = next(case for case in cases("valid") if case.name == "follow-ups")
CHECK_FLOW = Case(folder=DEFINITIONS / "valid/check-flow", data={})


@pytest.mark.parametrize(
    ("kind", "step_id"),
    [
        (None, "initial.issue"),
        (FollowUpKind.REVIEW, "continuation.review"),
        (FollowUpKind.CHECKS, "continuation.issue"),
    ],
)
def test_each_kind_of_run_has_its_first_step(kind: FollowUpKind | None, step_id: str, tmp_path: Path) -> None:
    assert load_agent("demo", root=FOLLOW_UPS.build(tmp_path)).entry_for(kind) == step_id


def test_a_registry_with_checks_has_first_steps_too_and_a_kind_without_one_begins_as_usual(tmp_path: Path) -> None:
    root = CHECK_FLOW.build(tmp_path)
    edit_json(root / ".agent/demo/steps_registry.json", "set", "/entrySteps", {"checks": "s_b2c1"})
    agent = load_agent("demo", root=root)
    assert (agent.entry_for(FollowUpKind.CHECKS), agent.entry_for(FollowUpKind.REVIEW)) == ("s_b2c1", "s_a8f3")


def test_a_step_that_only_a_follow_up_reaches_is_reached(tmp_path: Path) -> None:
    root = FOLLOW_UPS.build(tmp_path)
    assert validate_agent("demo", root=root) == ()
    edit_json(root / ".agent/demo/steps_registry.json", "remove", "/entrySteps/review")
    (unreached,) = validate_agent("demo", root=root)
    assert (unreached.code, unreached.path) == ("SF346", "/steps/continuation.review")
