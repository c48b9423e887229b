"""The picture of a graph: what is drawn, that it stays readable, and that no text of a definition breaks it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import PIECES, TEXT
from hostile_agent import hostile_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from plausible_run import AGENT, ENTRIES, STEPS

from stepflow.domain.definition import AgentDefinition, Target
from stepflow.domain.words import Intent
from stepflow.report.collect import collect_report
from stepflow.report.graph import cost_words, flow_graph, walked_path
from stepflow.report.plain import width as text_width
from stepflow.report.svg.draw import graph_svg
from stepflow.report.svg.layout import Layout, backward, lay_out, shapes
from tests.definition.load_cases import cases

GOLDEN = Path(__file__).parent / "golden"
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


def placed(agent: AgentDefinition) -> tuple[list, list, Layout]:
    boxes, arrows = shapes(flow_graph(agent), {})
    return boxes, arrows, lay_out(boxes, arrows)


def test_the_picture_of_a_plausible_run_is_the_golden_one():
    drawn = graph_svg(AGENT, walked_path(REPORT), costs=cost_words(REPORT))
    assert drawn + "\n" == (GOLDEN / "graph.svg").read_text()


def test_the_way_that_was_walked_is_thick_with_counts_and_cost():
    root = picture(path=walked_path(REPORT), costs=cost_words(REPORT))
    walked = [group for group in root.findall(f"{SVG}g") if group.get("class") == "label walked"]
    assert [[text.text for text in group.iter(f"{SVG}text")] for group in walked] == [
        ["×1"],
        ["next", "×1 · $0.0246"],
        ["handoff", "×2 · $0.0615"],
        ["closing", "×1 · $0.0123"],
        ["repeat", "validator red", "×1 · $0.0123"],
    ]
    assert picture().findall(f"./{SVG}path[@class='arrow walked']") == []


def test_an_unknown_price_is_told_and_what_was_free_is_not():
    free, unknown = (replace(line, cost_usd=cost) for line, cost in zip(REPORT.history[:2], (0.0, None), strict=True))
    report = replace(REPORT, history=(free, unknown, unknown))
    assert cost_words(report) == {
        ("continuation.issue", "continuation.issue"): "cost unknown",
        ("continuation.issue", None): "cost unknown",
    }


def test_a_run_that_never_began_a_step_cost_nothing_on_any_way():
    assert cost_words(replace(REPORT, history=())) == {}


def test_kinds_validators_and_unreachable_steps_show_in_their_boxes():
    root = picture()
    kinds = {group.findtext(f"{SVG}title"): group.get("class") for group in root.iter(f"{SVG}g") if group.get("class")}
    assert kinds["initial.issue: Understand the issue (work)"] == "box work"
    assert kinds["verification.tests: Check the tests (verification)"] == "box verification"
    assert kinds["closure.issue: Close the issue (closure)"] == "box closure"
    assert kinds["continuation.docs: Write the documentation (work)"] == "box unreachable"
    assert {"✓ git-clean", "✓ type-check", "unreachable"} <= set(texts(root))


def test_a_step_leads_into_the_page_that_holds_the_picture_and_brings_no_style():
    root = picture(links={"initial.issue": "#i1"})
    assert [link.get("href") for link in root.iter(f"{SVG}a")] == ["#i1"]
    assert list(root.iter(f"{SVG}style")) == []


@pytest.mark.parametrize("agent", [AGENT, chain_of(12), chain_of(40)], ids=["plausible", "12", "40"])
def test_no_box_and_no_text_of_an_arrow_covers_another(agent):
    boxes, arrows, layout = placed(agent)
    covered = [
        (layout.boxes[box.number][0], layout.boxes[box.number][1], box.width, box.right, box.height) for box in boxes
    ]
    covered += [
        (x, y, arrow.width, arrow.width / 2, arrow.height) for arrow, (x, y) in zip(arrows, layout.labels, strict=True)
    ]
    for (x, y, width, right, height), (to_x, to_y, to_width, to_right, to_height) in combinations(covered, 2):
        beside = x + right <= to_x - to_width / 2 or to_x + to_right <= x - width / 2
        assert beside or abs(y - to_y) >= (height + to_height) / 2


@pytest.mark.parametrize("name", VALID)
def test_every_arrow_begins_and_ends_at_its_boxes_and_stays_in_the_picture(name, tmp_path):
    from stepflow.definition.loading import load_agent

    case = next(case for case in cases("valid") if case.name == name)
    agent = load_agent("demo", root=case.build(tmp_path))
    boxes, arrows, layout = placed(agent)
    for arrow, path in zip(arrows, layout.paths, strict=True):
        for number, (x, y) in ((arrow.source, path[0]), (arrow.to, path[-1])):
            box, (middle_x, middle_y) = boxes[number], layout.boxes[number]
            assert abs(x - middle_x) <= box.width / 2
            assert abs(y - middle_y) == pytest.approx(box.height / 2)
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in path)


def test_without_the_arrows_that_lead_back_there_is_no_circle():
    _, arrows = shapes(flow_graph(chain_of(20)), {})
    back = backward(22, arrows)
    rest = [(arrow.source, arrow.to) for number, arrow in enumerate(arrows) if number not in back]
    boxes = set(range(22))
    while boxes:
        free = {box for box in boxes if not any(to == box and source in boxes for source, to in rest)}
        assert free
        boxes -= free
    assert 0 < len(back) < 9


def test_a_step_that_no_arrow_touches_is_drawn_too():
    lonely = replace(STEPS[4], edges={}, gate=None)
    root = picture(replace(AGENT, steps={**AGENT.steps, lonely.id: lonely}))
    assert "continuation.docs" in texts(root)
    alone = picture(replace(AGENT, entry_step="gone", steps={lonely.id: lonely}))
    assert "continuation.docs" in texts(alone)


@pytest.mark.whole
def test_the_same_graph_gives_the_same_picture_in_every_process():
    program = (
        "import plausible_run; from stepflow.report.svg.draw import graph_svg; print(graph_svg(plausible_run.AGENT))"
    )
    drawn = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert drawn == {graph_svg(AGENT).encode() + b"\n"}


def test_wide_characters_take_two_columns():
    assert (text_width("ab"), text_width("課題")) == (2, 4)


def test_text_of_a_definition_is_only_text():
    drawn = graph_svg(hostile_agent('"><script>alert(1)</script>', "]]>&<a href=x>"))
    root = ElementTree.fromstring(drawn)
    assert not list(root.iter(f"{SVG}script"))
    assert not list(root.iter(f"{SVG}a"))
    assert "<script" not in drawn


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(0, 3))
def test_no_text_of_a_definition_breaks_the_picture(text, other, times):
    agent = hostile_agent(text, other)
    path = [(None, f"{text}1", 1), (f"{text}1", f"{other}2", times)]
    root = picture(agent, path=path)
    allowed = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08]", "".join(texts(root)))


def test_every_hostile_piece_is_drawn():
    for piece in PIECES:
        picture(hostile_agent(piece, piece))
