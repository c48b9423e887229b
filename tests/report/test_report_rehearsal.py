"""Rehearsals on paper: lines, summary, annotations and JUnit, which no text of a scenario or of a run can break."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from stepflow.domain.reports.report import Mismatch, Rehearsal, Rehearsed, Row
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
from tests.golden import assert_golden

GREEN = Rehearsed(
    agent="fixer",
    name="straight",
    file=".agent/fixer/scenarios/straight.yaml",
    line=1,
    outcome=Outcome.COMPLETED,
    reason="done",
    iterations=3,
    seconds=1.25,
)
RED = replace(
    GREEN,
    name="修理",
    outcome=Outcome.VALIDATION_FAILED,
    reason="validator tests failed",
    line=12,
    differences=(
        Mismatch(what="outcome", rows=(Row(where="", expected="completed", came="validation_failed"),)),
        Mismatch(
            what="steps",
            rows=(Row(where="1", expected="initial", came="initial"), Row(where="2", expected="–", came="修正")),
        ),
    ),
    notes=("1 turn of the scenario was not played",),
    red=("the check tests failed (exit code 1): make test", "1 failed"),
)
SKIPPED = replace(
    GREEN, name="red", outcome=Outcome.BASE_FAILED, skipped="tests failed before the run (exit code 1): no"
)
HOSTILE = "\n::error::forged\r##[add-path]/x\x1b[31m </failure>]]> | <b> \x00\x08\ufffe \ud800 {uv-x}"


REHEARSAL = Rehearsal(scenarios=(GREEN, RED, SKIPPED, replace(GREEN, agent="other")), unrehearsed=("idle",))


def text(rehearsed: Rehearsed) -> list[str]:
    return [*rehearsed_lines(rehearsed)]


def test_a_rehearsal_is_told_as_in_the_golden_file() -> None:
    lines = [line for each in REHEARSAL.scenarios for line in text(each)]
    lines += [*rehearsal_lines(REHEARSAL)]
    document = json.dumps(rehearsal_json(REHEARSAL), indent=1, ensure_ascii=False)
    parts = ("\n".join(lines), rehearsal_summary(REHEARSAL), *rehearsal_annotations(REHEARSAL), document)
    assert_golden("report/rehearsal.txt", "\n\n".join((*parts, junit_xml(REHEARSAL))))


def test_a_long_comparison_is_cut() -> None:
    rows = tuple(Row(where=str(number), expected="a", came="b") for number in range(1000))
    lines = text(replace(RED, differences=(Mismatch(what="steps", rows=rows),)))
    assert len(lines) < 50
    assert any("… 960 more rows" in line for line in lines)


def test_no_text_breaks_the_xml_the_log_or_the_summary() -> None:
    rows = (Row(where=HOSTILE, expected=HOSTILE, came=f"{HOSTILE} twice"),)
    odd = replace(
        RED,
        name=HOSTILE,
        reason=HOSTILE,
        notes=(HOSTILE,),
        refusal=HOSTILE,
        differences=(Mismatch(what=HOSTILE, rows=rows),),
    )
    rehearsal = Rehearsal(scenarios=(odd,))
    xml = junit_xml(rehearsal)
    assert len([*ElementTree.fromstring(xml.encode("utf-8")).iter("testcase")]) == 1
    lines = [*text(odd), *rehearsal_lines(rehearsal)]
    assert [line for line in lines if obeyed_in(line) or "\x1b" in line or "\n" in line] == []
    outside, fence, _ = rehearsal_summary(rehearsal).partition("```text\n")
    assert fence
    assert not re.search(r"<b>|\x1b|\|\s*<b", outside)
    for line in rehearsal_annotations(rehearsal):
        assert "\n" not in line
        assert line.count("::error") >= 1
        assert not obeyed_in(line.removeprefix("::error ").partition("::")[2])


@pytest.mark.parametrize(
    ("word", "places"), [("plain", 5), ("修理", 4), ("مرحبا", 5), ("e\u0301", 1), ("🐛", 2), ("가", 2), ("", 0)]
)
def test_a_column_is_as_wide_as_its_characters_are(word: str, places: int) -> None:
    assert width(word) == places
    assert aligned([(word, "|"), ("", "|")])[1] == " " * (places + 2) + "|"
