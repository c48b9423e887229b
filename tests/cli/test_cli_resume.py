"""`stepflow resume DIR` goes on with a run, with the options that it began with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.run.stopped_run import Run

pytestmark = pytest.mark.whole


def test_a_run_goes_on_with_its_own_options_and_a_complete_one_is_only_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    run = Run.of(tmp_path)
    assert run.play(stop_after=("model_turn", 4), limits={"iterations": 12}) is None
    stopped = len(run.kinds())
    # An option of the version that the run began with.
    before = run.journal.read_text()
    run.journal.write_text(before.replace('"options":{', '"options":{"max-turns-per-step":50,', 1))
    assert run.journal.read_text() != before
    assert main(["resume", str(run.folder), "--json"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert (report["run_id"], report["outcome"], report["iterations"]) == ("run-1", "completed", 5)
    assert f"The run is resumed after {stopped} events" in said.err
    before = run.journal.read_bytes()
    left = run.folder / "report.json"
    left.unlink()
    assert main(["resume", str(run.folder)]) == 0
    assert "nothing to resume" in capsys.readouterr().out
    assert json.loads(left.read_text())["outcome"] == "completed"
    assert run.journal.read_bytes() == before


def test_a_run_of_another_server_than_the_jobs_gets_no_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.of(tmp_path)
    assert run.play(stop_after=("routed", 1)) is None
    before = run.journal.read_bytes()
    monkeypatch.setenv("GITHUB_API_URL", "https://github.example/api/v3")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
    text = run.journal.read_text()
    elsewhere, changed = re.subn(r'("github-(?:api|server)-url":) ?"[^"]*"', r'\1"https://evil.example"', text)
    assert changed
    run.journal.write_text(elsewhere)
    assert main(["resume", str(run.folder)]) == 2
    said = capsys.readouterr().err
    assert "is of the server evil.example" in said
    assert "names github.example" in said
    run.journal.write_bytes(before)


def test_a_folder_without_a_run_and_a_repository_that_is_gone_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(tmp_path)]) == 2
    assert "has no journal.jsonl" in capsys.readouterr().err
    run = Run.of(tmp_path / "place")
    assert run.play(stop_after=("routed", 1)) is None
    run.root.rename(tmp_path / "moved")
    assert main(["resume", str(run.folder)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["run", "demo", "--repo", str(tmp_path / "moved"), "--resume", str(tmp_path / "none")]) == 2
