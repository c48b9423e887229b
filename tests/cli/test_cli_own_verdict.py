"""An agent whose own code decides when it is done runs only where that is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stepflow.cli import main
from tests.runs.played_run import RUNS, make_checkout

CASE = RUNS / "own-verdict-decides"


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "not allowed"])
def test_an_agents_own_verdict_decides_only_with_the_option(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    data = yaml.safe_load((CASE / "case.yaml").read_text())
    monkeypatch.chdir(make_checkout(CASE, data, tmp_path / "checkout"))
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    scripted = ("--provider", "scripted", "--scenario", str(CASE / "scenario.yaml"), "--issue", "7", "--json")
    code = main(["run", "demo", *scripted, *(["--allow", "custom-verdict"] if allowed else [])])
    out, err = capsys.readouterr()
    if allowed:
        assert (code, json.loads(out)["outcome"], json.loads(out)["verdict_type"]) == (0, "completed", "meta:custom")
    else:
        assert code == 2
        assert "custom-verdict" in out + err
