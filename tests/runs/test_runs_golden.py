"""Whole runs against their golden journals; see README.md in this folder."""

from __future__ import annotations

import json
import os
from difflib import unified_diff
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from stepflow.domain.event import CheckJudged, Routed
from stepflow.domain.flow import fold
from stepflow.journal import journal_schema, read_journal
from stepflow.report.collect import collect_report
from stepflow.report.document import report_json, report_schema
from tests.runs.masked_journal import masked_lines
from tests.runs.played_run import Played, play_case, run_cases

ACCEPT = bool(os.environ.get("STEPFLOW_ACCEPT"))

#: One of each kind, for they take a second each; `make whole` plays them all.
ALWAYS = {
    "dirty-tree-then-clean",
    "handoff-reaches-later-prompts",
    "check-fails-falls-back-and-closes",
    "project-the-short-way",
}
CASES = [
    pytest.param(case, id=case.name, marks=() if case.name in ALWAYS else pytest.mark.whole) for case in run_cases()
]


@pytest.mark.parametrize("case", CASES)
def test_a_whole_run_is_what_it_was(case: Path, tmp_path: Path) -> None:
    played = play_case(case, tmp_path)
    check_expectation(played)
    check_golden_journal(played)
    check_state_and_events(played)
    check_schemas(played)
    check_page(played)
    check_effects(played)


def test_a_golden_journal_belongs_to_a_case() -> None:
    cases = {case.name for case in run_cases()}
    assert cases
    assert cases >= ALWAYS
    assert {file.parent.name for file in Path(__file__).parent.glob("*/*.golden.jsonl")} == cases


def check_expectation(played: Played) -> None:
    """The run is what its scenario tells a reader to expect."""
    expect, report = played.expect, played.result.report
    assert report.outcome == expect.outcome, report.reason
    assert tuple(line.step_id for line in report.history) == expect.steps
    if expect.effects is not None:
        assert tuple(effect.kind for effect in report.effects) == expect.effects
    if expect.validators is not None:
        assert validators_of(played) == expect.validators
    for path, text in (expect.files or {}).items():
        assert file_text(played.worked / path) == text


def check_golden_journal(played: Played) -> None:
    """The journal is the golden one, line by line."""
    places = {played.prepared.request.root: "workspace", played.checkout: "checkout", played.folder: "run"}
    names = {str(path): f"<{name}>" for path, name in places.items()}
    lines = masked_lines(played.journal.read_text(encoding="utf-8").splitlines(), names)
    if ACCEPT:
        played.golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert played.golden.exists(), f"{played.golden} is missing; STEPFLOW_ACCEPT=1 writes it, then read it"
    golden = played.golden.read_text(encoding="utf-8").splitlines()
    difference = "\n".join(unified_diff(golden, lines, str(played.golden), "this run", n=0, lineterm=""))
    assert lines == golden, f"{difference}\nIf that is meant, STEPFLOW_ACCEPT=1 writes the golden journal again."


def check_state_and_events(played: Played) -> None:
    """The file gives back the events of the run, and they fold to the state that the run reached."""
    entries = read_journal(played.journal)
    assert list(entries) == played.live
    reached = fold(entry.event for entry in played.live)
    assert fold(entry.event for entry in entries) == reached
    report = played.result.report
    assert (reached.outcome, reached.iteration, reached.usage) == (report.outcome, report.iterations, report.usage)
    assert reached.handoff == report.handoff
    assert report.dialect == played.agent.dialect
    judged = [(event.step_id, event.result, event.message) for event in events_of(played, CheckJudged)]
    checked = [(line.step_id, line.check_result) for line in report.history if line.check_result]
    assert [(step_id, check.result, check.message) for step_id, check in checked] == judged
    routed = [(event.source, event.transition) for event in events_of(played, Routed)]
    assert [(line.step_id, line.transition) for line in report.history if line.transition != "none"] == routed
    assert sum(reached.visits.values()) == reached.iteration == len(report.history)


def events_of(played: Played, kind: type) -> list:
    return [entry.event for entry in played.live if isinstance(entry.event, kind)]


def check_schemas(played: Played) -> None:
    """Every line and the report fit their published schemas; the report can be drawn from the journal again."""
    line_schema, whole_schema = published_schemas()
    for line in played.journal.read_text(encoding="utf-8").splitlines():
        line_schema.validate(json.loads(line))
    drawn = report_json(collect_report(read_journal(played.journal), played.agent))
    written = json.loads((played.folder / "report.json").read_text(encoding="utf-8"))
    for report in (drawn, written):
        whole_schema.validate(report)
    folders = {"run_folder": "", "host_run_folder": ""}
    assert {**drawn, **folders} == {**written, **folders}


@cache
def published_schemas() -> tuple[jsonschema.Draft202012Validator, jsonschema.Draft202012Validator]:
    """The published schemas of a journal's line and of a report."""
    return jsonschema.Draft202012Validator(journal_schema()), jsonschema.Draft202012Validator(report_schema())


def check_page(played: Played) -> None:
    """The page has a box for each step, the beginning and the end, and nothing went wrong while it was written."""
    page = (played.folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert played.result.report.run_id in page
    assert page.count('class="box ') == len(played.agent.steps) + 2
    assert not list(played.folder.glob("*.part"))
    assert all(entry.seq for entry in played.live)


def check_effects(played: Played) -> None:
    """What the run planned is in its folder, nothing is called done, and only a success plans anything."""
    effects = json.loads((played.folder / "effects.json").read_text(encoding="utf-8"))["effects"]
    assert [effect["kind"] for effect in effects] == [effect.kind for effect in played.result.report.effects]
    assert {effect["status"] for effect in effects} <= {"planned"}
    assert played.result.success == (played.result.report.outcome == "completed")
    assert effects == [] or played.result.success


def validators_of(played: Played) -> dict[str, tuple[str, ...]]:
    """Each validator's results in order, in the words of a scenario's `expect`."""
    words: dict[str, tuple[str, ...]] = {}
    for each in played.result.report.validators:
        word = "pass" if each.passed else "skipped" if each.action == "skip" else "fail"
        words[each.name] = (*words.get(each.name, ()), word)
    return words


def file_text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
