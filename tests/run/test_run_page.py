"""The page that a run leaves in its folder, and that nothing about it can change how the run ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stepflow.domain.event import Entry, Noted
from stepflow.domain.words import Outcome
from stepflow.run import reports as page_module
from tests.runs.played_run import RUNS, play_case

CASE = RUNS / "dirty-tree-then-clean"


def notes(live: list[Entry]) -> list[str]:
    return [entry.event.message for entry in live if isinstance(entry.event, Noted) and entry.seq == 0]


def test_a_run_leaves_its_page_with_what_happened(tmp_path: Path) -> None:
    played = play_case(CASE, tmp_path)
    page = (played.folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<h1>" in page
    assert played.result.report.run_id in page
    assert page.count('class="box ') == len(played.agent.steps) + 2
    assert not list(played.folder.glob("*.part"))
    assert notes(played.live) == []


@pytest.mark.whole
def test_a_page_that_cannot_be_written_is_a_note_and_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run/report.html").mkdir(parents=True)
    (tmp_path / "run/report.html/something").touch()
    played = play_case(CASE, tmp_path)
    assert played.result.report.outcome is Outcome.COMPLETED
    assert (played.folder / "report.json").is_file()
    (note,) = notes(played.live)
    assert note.startswith("[Report] report.html could not be written: ")
    assert "[Report]" not in played.journal.read_text(encoding="utf-8")


@pytest.mark.whole
def test_a_long_run_that_was_cancelled_ends_without_a_page(tmp_path: Path, monkeypatch) -> None:
    played = play_case(CASE, tmp_path)
    monkeypatch.setattr(page_module, "EVENTS_WHEN_CANCELLED", 3)
    cancelled = replace(played.result.report, outcome=Outcome.CANCELLED)
    (problem,) = page_module.write_page(played.prepared.request, cancelled, played.prepared.agent)
    assert "was cancelled" in problem
    assert list(page_module.write_page(played.prepared.request, played.result.report, played.prepared.agent)) == []
