"""Rehearsals on paper: lines, summary, annotations and JUnit, which no text of a scenario or of a run can break."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import jsonschema
import pytest

from stepflow.domain.report import Difference, Rehearsal, Rehearsed, Row
from stepflow.domain.words import Outcome
from stepflow.report.document import rehearsal_json
from stepflow.report.rehearsal import (
    junit_xml,
    rehearsal_annotations,
    rehearsal_lines,
    rehearsal_summary,
    rehearsed_lines,
)
from stepflow.report.safe_text import aligned, width
from tests.action.runner_model import obeyed_in

GREEN = Rehearsed(
    agent="fixer",
    name="straight",
    file=".agent/fixer/scenarios/straight.yaml",
    line=1,
    outcome=Outcome.COMPLETED,
    reason="Completion loop: done",
    iterations=3,
    seconds=1.25,
)
RED = replace(
    GREEN,
    name="修理",
    outcome=Outcome.VALIDATION_FAILED,
    reason="Completion loop: validator tests failed",
    line=12,
    differences=(
        Difference(what="outcome", rows=(Row(where="", expected="completed", came="validation_failed"),)),
        Difference(
            what="steps",
            rows=(Row(where="1", expected="initial", came="initial"), Row(where="2", expected="–", came="修正")),
        ),
    ),
    notes=("1 turn of the scenario was not played",),
    red=("the check tests is red (exit code 1): make test", "1 failed"),
)
HOSTILE = "\n::error::forged\r##[add-path]/x\x1b[31m </failure>]]> | <b> \x00\x08\ufffe \ud800 {uv-x}"


def text(rehearsed: Rehearsed) -> list[str]:
    return [line for _, line in rehearsed_lines(rehearsed)]


def test_one_that_came_as_expected_is_one_line() -> None:
    assert text(GREEN) == ["✓ fixer/straight  3 iterations, 1.2 s"]


def test_one_that_differs_shows_both_sides_in_columns() -> None:
    assert text(RED) == [
        "✗ fixer/修理  3 iterations, 1.2 s",
        "    outcome:",
        "           expected   came",
        "      ≠    completed  validation_failed",
        "    steps:",
        "            expected  came",
        "         1  initial   initial",
        "      ≠  2  –         修正",
        "    the check tests is red (exit code 1): make test",
        "    │ 1 failed",
        "    reason: validator tests failed",
        "    note: 1 turn of the scenario was not played",
    ]


def test_the_table_stands_at_the_end_with_what_has_no_scenario() -> None:
    lines = [line for _, line in rehearsal_lines(Rehearsal(scenarios=(GREEN, RED), unrehearsed=("idle",)))]
    assert lines == [
        "",
        "   agent  scenario  iterations  seconds",
        "✓  fixer  straight           3      1.2",
        "✗  fixer  修理               3      1.2  outcome, steps",
        "! idle has no scenario",
        "2 scenarios, 1 not as expected: fixer/修理",
    ]


def test_a_long_comparison_is_cut() -> None:
    rows = tuple(Row(where=str(number), expected="a", came="b") for number in range(1000))
    lines = text(replace(RED, differences=(Difference(what="steps", rows=rows),)))
    assert len(lines) < 50
    assert any("… 960 more rows" in line for line in lines)


def test_the_summary_has_a_row_for_each_and_folds_the_differences() -> None:
    summary = rehearsal_summary(Rehearsal(scenarios=(GREEN, RED)))
    assert "| <code>fixer</code> | straight | ✅ completed | 3 | 1.2 |  |" in summary
    assert "<details><summary>fixer/修理: outcome, steps</summary>" in summary
    assert summary.startswith("## ❌ Rehearsal: 2 scenarios, 1 not as expected: fixer/修理\n")


def test_an_annotation_stands_on_the_file_where_expect_is() -> None:
    (line,) = rehearsal_annotations(Rehearsal(scenarios=(GREEN, RED)))
    assert line.startswith(
        "::error file=.agent/fixer/scenarios/straight.yaml,line=12,title=fixer/修理%3A not as expected::"
    )


def test_junit_counts_and_carries_the_differences() -> None:
    root = ElementTree.fromstring(junit_xml(Rehearsal(scenarios=(GREEN, RED, replace(GREEN, agent="other")))))
    suites = [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root]
    assert suites == [("fixer", "2", "1"), ("other", "1", "0")]
    (failure,) = root.iter("failure")
    assert failure.get("message") == "not as expected: outcome, steps"
    assert "≠  2  –         修正" in str(failure.text)


def test_no_text_breaks_the_xml_the_log_or_the_summary() -> None:
    rows = (Row(where=HOSTILE, expected=HOSTILE, came=f"{HOSTILE} twice"),)
    odd = replace(
        RED,
        name=HOSTILE,
        reason=HOSTILE,
        notes=(HOSTILE,),
        refusal=HOSTILE,
        differences=(Difference(what=HOSTILE, rows=rows),),
    )
    rehearsal = Rehearsal(scenarios=(odd,))
    xml = junit_xml(rehearsal)
    assert len([*ElementTree.fromstring(xml.encode("utf-8")).iter("testcase")]) == 1
    lines = text(odd) + [line for _, line in rehearsal_lines(rehearsal)]
    assert [line for line in lines if obeyed_in(line) or "\x1b" in line or "\n" in line] == []
    outside, fence, _ = rehearsal_summary(rehearsal).partition("```text\n")
    assert fence
    assert not re.search(r"<b>|\x1b|\|\s*<b", outside)
    for line in rehearsal_annotations(rehearsal):
        assert "\n" not in line
        assert line.count("::error") >= 1
        assert not obeyed_in(line.removeprefix("::error ").partition("::")[2])


def test_json_has_every_row() -> None:
    document = rehearsal_json(Rehearsal(scenarios=(GREEN, RED), unrehearsed=("idle",)))
    jsonschema.validate(document, {"type": "object", "required": ["schema", "outcome", "success", "scenarios"]})
    assert document["success"] is False
    assert document["unrehearsed"] == ["idle"]
    scenarios = document["scenarios"]
    assert isinstance(scenarios, list)
    assert scenarios[1]["differences"][1]["rows"][1] == {"where": "2", "expected": "–", "came": "修正"}  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("word", "places"), [("plain", 5), ("修理", 4), ("مرحبا", 5), ("e\u0301", 1), ("🐛", 2), ("가", 2), ("", 0)]
)
def test_a_column_is_as_wide_as_its_characters_are(word: str, places: int) -> None:
    assert width(word) == places
    assert aligned([(word, "|"), ("", "|")])[1] == " " * (places + 2) + "|"
