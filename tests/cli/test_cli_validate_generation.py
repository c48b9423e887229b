"""An agent in the form of climpt 1.14 gets one sentence, not one problem for each key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepflow.cli import main


def newer_step(entry: dict) -> dict:
    """The same step as climpt 1.14 writes it."""
    address = {"c1": "steps", **{key: entry.pop(key) for key in ("c2", "c3", "edition", "adaptation") if key in entry}}
    kind = {"initial": "work", "continuation": "work"}.get(address["c2"], address["c2"])
    return {**entry, "kind": entry.pop("stepKind", kind), "address": address}


@pytest.mark.parametrize("every_step", [True, False])
def test_an_agent_of_the_next_generation_gets_one_sentence(checkout: Path, capsys, *, every_step: bool) -> None:
    file = checkout / ".agent/fixer/steps_registry.json"
    registry = json.loads(file.read_text())
    for number, (key, entry) in enumerate(registry["steps"].items()):
        registry["steps"][key] = newer_step(entry) if every_step or number else entry
    entry_step = registry.pop("entryStep")
    registry["entryStepMapping"] = {"detect:graph": {"initial": entry_step, "continuation": entry_step}}
    file.write_text(json.dumps(registry, indent=2))
    assert main(["validate", "--format", "json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["code"] == "SF309"
    assert "climpt 1.14" in problem["message"]
    assert '"stepKind"' in problem["fix"]
    assert problem["line"]
    assert problem["path"].endswith("/address")
