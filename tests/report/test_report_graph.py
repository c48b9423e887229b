"""The graph: what is drawn, and that nothing in a definition can break the drawing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import PIECES, TEXT
from hostile_agent import hostile_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from plausible_run import AGENT, ENTRIES, STEPS

from stepflow.domain.agent.agent_settings import McpServer, McpTool, Rung
from stepflow.domain.agent.definition import AgentDefinition, Branch, Exposure, Gate, Target
from stepflow.domain.words import Effort, FollowUpKind, Intent, Outcome
from stepflow.report.collect import collect_report
from stepflow.report.flow_graph import flow_graph, graph_json, mermaid_graph, walked_path
from stepflow.report.graph_svg import graph_svg
from tests.golden import assert_golden

REPORT = collect_report(ENTRIES, AGENT)

LABEL = r'"(?:[^"#<>&|;`\n]|#\d+;|<br/>)*"'
NODE = rf"  (?:start|done|s\d+)(?:\(\[{LABEL}\]\)|\[\[{LABEL}\]\]|\{{\{{{LABEL}\}}\}}|\[{LABEL}\])"
ARROW = rf"  (?:start|s\d+) (?:==>|-->|-\.->)(?:\|{LABEL}\|)? (?:done|s\d+)"
STYLE = r"  (?:classDef \w+ [\w#:,\- ]+|class [\w,]+ \w+|linkStyle [\d,]+ [\w#:,\-]+)"


def drawable(picture: str) -> bool:
    """Only the lines that this engine writes, with nothing but plain text between quotes."""
    first, *lines = picture.rstrip("\n").split("\n")
    return first == "flowchart TD" and all(re.fullmatch(f"{NODE}|{ARROW}|{STYLE}", line) for line in lines)


def edge(source: str | None, to: str | None, agent: AgentDefinition = AGENT, path=()):
    return next((e for e in flow_graph(agent, path).edges if (e.source, e.to) == (source, to)), None)


def agent_with(**steps) -> AgentDefinition:
    return replace(AGENT, steps={**AGENT.steps, **steps})


def test_the_picture_of_a_plausible_run_is_the_golden_one():
    picture = mermaid_graph(AGENT, walked_path(REPORT))
    assert_golden("report/graph.mmd", picture)
    assert drawable(picture)


def test_the_graph_for_programs_is_the_golden_one():
    assert_golden("report/graph.json", json.dumps(graph_json(AGENT, walked_path(REPORT)), indent=1) + "\n")


def test_a_step_that_names_its_tools_shows_them():
    docs = McpServer(name="docs", tools=(McpTool(name="search", description="Searches.", input_schema={}),))
    first = replace(STEPS[0], tools=("Read", "mcp__docs__search"))
    agent = replace(agent_with(**{first.id: first}), mcp_servers=(docs,))
    nodes = graph_json(agent)["steps"]
    assert [node["id"] for node in nodes if node["own_tools"]] == [first.id]
    assert nodes[0]["tools"] == ["Read", "mcp__docs__search"]
    assert nodes[1]["tools"] == ["Bash", "Read", "Write", "Edit", "Glob", "Grep"]
    picture = mermaid_graph(agent)
    assert picture.count("tools ") == 1
    assert drawable(picture)
    assert graph_svg(agent).count(">tools Read, mcp__docs__search<") == 1
    bare = replace(agent, steps={first.id: replace(first, tools=())})
    assert "tools none" in mermaid_graph(bare)


def test_a_step_shows_its_model_and_effort_where_the_agent_says_them():
    first, second = (
        replace(STEPS[0], models=(Rung(model="haiku"),), effort=Effort.LOW),
        replace(STEPS[1], effort=Effort.MAX),
    )
    agent = agent_with(**{first.id: first, second.id: second})
    nodes = graph_json(agent)["steps"]
    assert [(node["model"], node["effort"]) for node in nodes[:3]] == [("haiku", "low"), (None, "max"), (None, None)]
    picture = mermaid_graph(agent)
    assert "<br/>model haiku#44; effort low" in picture
    assert (picture.count("model "), picture.count("effort ")) == (1, 2)
    assert drawable(picture)
    assert graph_svg(agent).count(">model haiku, effort low<") == 1


def test_only_the_path_of_a_run_that_completed_leads_to_the_end():
    assert walked_path(replace(REPORT, outcome=Outcome.CANCELLED))[-1] == ("closure.issue", "continuation.issue", 1)
    assert walked_path(replace(REPORT, history=())) == ()


def test_a_jump_that_may_name_its_target_reaches_every_step():
    gate = Gate(allowed=(Intent.JUMP,), intent_field="i", target_field="t")
    jumper = replace(STEPS[0], gate=gate)
    assert all(node.reachable for node in flow_graph(agent_with(**{"initial.issue": jumper})).nodes)
    with_rule_only = replace(jumper, gate=replace(gate, target_field=None))
    assert not all(node.reachable for node in flow_graph(agent_with(**{"initial.issue": with_rule_only})).nodes)


def test_a_walked_way_that_nobody_declared_is_drawn_too():
    jumped = edge("initial.issue", "closure.issue", path=[("initial.issue", "closure.issue", 2)])
    assert (jumped.declared, jumped.walked, jumped.labels) == (False, 2, ())
    picture = mermaid_graph(AGENT, [("initial.issue", "closure.issue", 2)])
    assert '  s0 ==>|"×2"| s3' in picture


def test_steps_that_the_agent_does_not_have_are_left_out_of_the_path():
    assert edge("initial.issue", "gone", path=[("initial.issue", "gone", 1)]) is None


def test_a_closing_target_is_ignored_and_a_red_validator_without_repeat_target_stays():
    closure = replace(STEPS[3], edges={Intent.CLOSING: Target(step_id="initial.issue")})
    agent = agent_with(**{"closure.issue": closure})
    assert edge("closure.issue", None, agent).labels == ("closing",)
    assert edge("closure.issue", "initial.issue", agent) is None
    assert edge("closure.issue", "closure.issue", agent).labels == ("validator fails",)


def test_a_branch_with_its_own_default_target_has_no_else():
    branch = Branch(condition="c", targets={"default": "closure.issue"}, default="initial.issue")
    agent = agent_with(**{"initial.issue": replace(STEPS[0], edges={Intent.NEXT: branch})})
    assert edge("initial.issue", "closure.issue", agent).labels == ("next [c = default]",)
    bare = replace(branch, targets={}, default=None)
    agent = agent_with(**{"initial.issue": replace(STEPS[0], edges={Intent.NEXT: bare})})
    assert edge("initial.issue", "initial.issue", agent) is None


def test_an_arrow_from_the_start_says_which_follow_ups_begin_at_a_step():
    lonely = replace(STEPS[0], id="continuation.review", edges={})
    first = {FollowUpKind.REVIEW: lonely.id, FollowUpKind.CHECKS: lonely.id}
    agent = replace(agent_with(**{lonely.id: lonely}), entry_steps=first)
    assert edge(None, lonely.id, agent).labels == ("review", "checks")
    assert edge(None, AGENT.entry_step, agent).labels == ()
    assert flow_graph(agent).nodes[-1].reachable
    assert f'  start -->|"review<br/>checks"| s{len(agent.steps) - 1}' in mermaid_graph(agent)
    drawn = {"from": None, "to": lonely.id, "labels": ["review", "checks"], "declared": True, "walked": 0}
    assert drawn in graph_json(agent)["edges"]


@settings(max_examples=200)
@given(TEXT, TEXT, st.integers(0, 3))
def test_no_text_of_a_definition_breaks_the_picture(text, other, times):
    agent = hostile_agent(text, other)
    path = [(None, f"{text}1", 1), (f"{text}1", f"{other}2", times)]
    assert drawable(mermaid_graph(agent, path))
    json.dumps(graph_json(agent, path))


@pytest.mark.npm
@pytest.mark.timeout(400)
@pytest.mark.skipif(not os.environ.get("STEPFLOW_NPM_TESTS"), reason="needs npm: set STEPFLOW_NPM_TESTS=1")
def test_mermaids_own_parser_reads_every_picture(tmp_path):
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("npm and node are not installed")
    (tmp_path / "package.json").write_text('{"private": true}')
    packages = ["mermaid@11.17.2", "jsdom@29.1.1"]
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    shutil.copy(Path(__file__).parent / "parse_mermaid.mjs", tmp_path)
    pictures = [mermaid_graph(AGENT), mermaid_graph(AGENT, walked_path(REPORT))]
    pictures += [mermaid_graph(hostile_agent(piece, other)) for piece, other in zip(PIECES, PIECES[::-1], strict=True)]
    pictures.append(mermaid_graph(hostile_agent("".join(PIECES), "x")))
    for number, picture in enumerate(pictures):
        (tmp_path / f"{number}.mmd").write_text(picture)
    names = [f"{number}.mmd" for number in range(len(pictures))]
    parsed = subprocess.run(
        [node, "parse_mermaid.mjs", *names], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert (parsed.returncode, parsed.stdout) == (0, "")
    (tmp_path / "bad.mmd").write_text('flowchart TD\n a["x"y"] --> b\n')
    refused = subprocess.run([node, "parse_mermaid.mjs", "bad.mmd"], cwd=tmp_path, capture_output=True, timeout=90)
    assert refused.returncode == 1


def exposure(*, private: bool, ways_out: tuple[str, ...], accepted: str = "") -> Exposure:
    return Exposure(
        step_id="closure.issue",
        private_repository=private,
        untrusted=("the issue",),
        private=("the ledger",) if private else (),
        ways_out=ways_out,
        accepted=accepted,
    )


def test_the_graph_shows_what_meets_in_a_step_and_why_somebody_accepts_it() -> None:
    public = exposure(private=False, ways_out=("the comment",))
    private = exposure(private=True, ways_out=("a shell",), accepted="The ledger is open to all.")
    picture = mermaid_graph(AGENT, exposures=(public, private))
    assert "if public#58; strangers#39; text#44; way out" in picture
    assert "if private#58; all three meet" in picture
    assert "accepted#58; The ledger is open to all." in picture
    number = list(AGENT.steps).index("closure.issue")
    assert picture.endswith(f"  class s{number} risk\n")
    assert drawable(picture)
    svg = graph_svg(AGENT, exposures=(public, private))
    assert svg.count('class="box closure risk"') == 1
    assert ">if private: all three meet<" in svg
    same = mermaid_graph(AGENT, exposures=(exposure(private=False, ways_out=()),))
    assert "<br/>strangers#39; text<br/>" in same
    assert "risk" not in same
    nodes = {node["id"]: node for node in graph_json(AGENT, exposures=(public, private))["steps"]}
    assert [each["private"] for each in nodes["closure.issue"]["exposures"]] == [[], ["the ledger"]]
    assert nodes["initial.issue"]["exposures"] == []
