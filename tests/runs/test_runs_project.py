"""The two runs of S4's project graph walk along every edge that it declares."""

from __future__ import annotations

import json
from pathlib import Path

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import Target
from tests.definition.load_cases import cases

RUNS = ("project-the-long-way", "project-the-short-way")

Edge = tuple[str, str, str | None]


def test_every_edge_of_the_project_graph_is_walked(tmp_path: Path) -> None:
    case = next(case for case in cases("valid") if case.name == "project-flow")
    steps = load_agent("demo", root=case.build(tmp_path)).steps
    declared: set[Edge] = set()
    for step in steps.values():
        for intent in step.gate.allowed if step.gate else ():
            rule = step.edges[intent]
            assert isinstance(rule, Target)
            stays = intent == "repeat" and rule.step_id is None
            declared.add((step.id, intent, step.id if stays else rule.step_id))
    assert len(declared) == 15
    assert walked() == declared


def walked() -> set[Edge]:
    edges: set[Edge] = set()
    for name in RUNS:
        for line in (Path(__file__).parent / name / "journal.golden.jsonl").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "routed":
                edges.add((event["source"], event["transition"], event["to"]))
    return edges
