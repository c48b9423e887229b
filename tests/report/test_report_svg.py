"""The picture of a graph: what is drawn, that it stays readable, and that no text of a definition breaks it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hostile import TEXT
from hostile_agent import hostile_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from plausible_run import AGENT, ENTRIES, STEPS

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition, Target
from stepflow.domain.words import Intent
from stepflow.report.collect import collect_report
from stepflow.report.flow_graph import cost_words, flow_graph, walked_path
from stepflow.report.graph_svg import DOWN, graph_svg, lay_out
from tests.definition.load_cases import cases
from tests.golden import assert_golden

REPORT = collect_report(ENTRIES, AGENT)
SVG = "{http://www.w3.org/2000/svg}"
VALID = [case.name for case in cases("valid")]


def picture(agent: AgentDefinition = AGENT, **drawn) -> ElementTree.Element:
    return ElementTree.fromstring(graph_svg(agent, **drawn))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def chain_of(count: int, *, back_every: int = 3) -> AgentDefinition:
    """A long flow with ways back and a way over many steps."""
    ids = [f"step.{number}" for number in range(count)]
    steps = {}
    for number, (step_id, to) in enumerate(pairwise([*ids, ids[0]])):
        edges = {Intent.NEXT: Target(step_id=to)}
        if number % back_every == 2:
            edges[Intent.REPEAT] = Target(step_id=ids[number - 2])
        if number == 0:
            edges[Intent.JUMP] = Target(step_id=ids[-1])
        steps[step_id] = replace(STEPS[0], id=step_id, edges=edges)
    return replace(AGENT, steps=steps, entry_step=ids[0])


def test_the_picture_of_a_plausible_run_is_the_golden_one():
    assert_golden("report/graph.svg", graph_svg(AGENT, walked_path(REPORT), costs=cost_words(REPORT)) + "\n")


def test_an_unknown_price_is_told_and_what_was_free_is_not():
    free, unknown = (replace(line, cost_usd=cost) for line, cost in zip(REPORT.history[:2], (0.0, None), strict=True))
    report = replace(REPORT, history=(free, unknown, unknown))
    assert cost_words(report) == {
        ("continuation.issue", "continuation.issue"): "cost unknown",
        ("continuation.issue", None): "cost unknown",
    }


def test_a_step_leads_into_the_page_that_holds_the_picture_and_brings_no_style():
    root = picture(links={"initial.issue": "#i1"})
    assert [link.get("href") for link in root.iter(f"{SVG}a")] == ["#i1"]
    assert list(root.iter(f"{SVG}style")) == []


@pytest.mark.parametrize("agent", [AGENT, chain_of(12), chain_of(40)], ids=["plausible", "12", "40"])
def test_no_box_and_no_text_of_an_arrow_covers_another(agent):
    layout = lay_out(flow_graph(agent), {})
    covered = [(0.0, box.y, box.width, box.height) for box in layout.boxes]
    covered += [(arrow.x, arrow.y, arrow.width, arrow.height) for arrow in layout.arrows]
    for (x, y, width, height), (to_x, to_y, to_width, to_height) in combinations(covered, 2):
        assert abs(x - to_x) >= (width + to_width) / 2 or abs(y - to_y) >= (height + to_height) / 2


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", VALID)
def test_every_arrow_begins_and_ends_at_its_boxes_and_stays_in_the_picture(name, tmp_path):
    case = next(case for case in cases("valid") if case.name == name)
    layout = lay_out(flow_graph(load_agent("demo", root=case.build(tmp_path))), {})
    for arrow in layout.arrows:
        for box, height in ((layout.boxes[arrow.source], True), (layout.boxes[arrow.to], False)):
            assert abs(arrow.heights[height] - box.y) <= box.height / 2 + 0.1
        assert -layout.left <= arrow.x - arrow.width / 2 <= arrow.x + arrow.width / 2 <= layout.right
        assert -layout.left < arrow.lane_x < layout.right
        assert (arrow.lane_x == 0) == (arrow.side == DOWN)
    assert layout.boxes[-1].y < layout.height


def test_a_step_that_no_arrow_touches_is_drawn_too():
    lonely = replace(STEPS[4], edges={}, gate=None)
    root = picture(replace(AGENT, steps={**AGENT.steps, lonely.id: lonely}))
    assert "continuation.docs" in texts(root)
    alone = picture(replace(AGENT, entry_step="gone", steps={lonely.id: lonely}))
    assert "continuation.docs" in texts(alone)


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(0, 3))
def test_no_text_of_a_definition_breaks_the_picture(text, other, times):
    agent = hostile_agent(text, other)
    path = [(None, f"{text}1", 1), (f"{text}1", f"{other}2", times)]
    root = picture(agent, path=path)
    allowed = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08]", "".join(texts(root)))
