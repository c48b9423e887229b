"""The job summary as a page shows it, and its picture drawn by Mermaid itself for every agent there is."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from accessible import violations
from conftest import PACKAGES, Open, Opened
from github_page import github_page, pictures_page

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.report.collect import collect_report
from stepflow.report.flow_graph import flow_graph, mermaid_graph
from stepflow.report.summary import job_summary
from tests.definition.load_cases import cases
from tests.report.hostile import PIECES
from tests.report.hostile_agent import hostile_agent
from tests.report.plausible_run import AGENT, ENTRIES

pytestmark = pytest.mark.browser

MERMAIDS = [name for name in PACKAGES if name.startswith("mermaid")]
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
REPORT = collect_report(ENTRIES, AGENT)
VALID = cases("valid")
SHARED = Path(os.environ.get("STEPFLOW_SHARED") or Path(__file__).parents[3] / "shared")
ITERATOR = SHARED / "real-agents" / "iterator"
#: What Mermaid draws with; anything else in a picture came from a text.
DRAWN_WITH = {
    *("svg", "style", "g", "path", "rect", "polygon", "circle", "marker", "defs", "line", "text", "tspan", "title"),
    *("foreignObject", "div", "span", "p", "br", "filter", "feDropShadow", "linearGradient", "stop"),
}


def drawn(opened: Opened) -> Opened:
    """The page when Mermaid is done with it."""
    opened.page.wait_for_selector("html[data-drawn]", timeout=60_000)
    return opened


def words_of(opened: Opened, number: int) -> str:
    """All text of one picture, with a blank for each line break."""
    text: str = opened.page.evaluate(
        """(number) => [...document.querySelectorAll('.mermaid')[number].querySelectorAll('.nodeLabel, .edgeLabel')]
          .map((one) => one.innerText ?? one.textContent).join(' ')""",
        number,
    )
    return " ".join(text.split())


def foreign_elements(opened: Opened) -> set[str]:
    names = opened.page.evaluate("[...document.querySelectorAll('.mermaid, .mermaid *')].map((one) => one.localName)")
    return set(names) - DRAWN_WITH - {"pre"}


@pytest.mark.parametrize("version", MERMAIDS)
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_summary_is_drawn_without_a_word_or_a_request(open_page: Open, npm: Path, version, width, scheme) -> None:
    text = github_page(job_summary(REPORT, AGENT), npm, version)
    opened = drawn(open_page(text, width=width, scheme=scheme))
    opened.picture(f"summary-{version}-{width}-{scheme}", whole=True)
    assert (opened.said, opened.foreign) == ([], [])
    assert "closure.issue Close the issue check boundary-rules check git-clean check type-check" in words_of(opened, 0)


def test_axe_finds_nothing_serious_in_the_text_of_the_summary(open_page: Open, npm: Path) -> None:
    opened = drawn(open_page(github_page(job_summary(REPORT, AGENT), npm, MERMAIDS[-1])))
    opened.page.evaluate("document.querySelectorAll('.mermaid').forEach((one) => one.remove())")
    serious = [one for one in violations(opened.page, npm) if not one.startswith("scrollable-region-focusable")]
    # Whether a wide table can be scrolled with the keyboard is for GitHub's page to say, not for a summary.
    assert serious == []


def agents(folder: Path) -> dict[str, AgentDefinition]:
    """Every agent of the corpus, and the public one where it is there."""
    agents_by_name = {}
    for case in VALID:
        root = case.build(folder / case.name)
        agents_by_name[case.name] = load_agent(case.agent, root=root, **case.options)
    if ITERATOR.exists():
        shutil.copytree(ITERATOR, folder / "real" / ".agent" / "iterator")
        agents_by_name["iterator"] = load_agent("iterator", root=folder / "real")
    return agents_by_name


@pytest.mark.parametrize("version", MERMAIDS)
def test_mermaid_draws_every_agent_with_all_its_steps(open_page: Open, npm: Path, tmp_path: Path, version) -> None:
    agents_by_name = agents(tmp_path)
    opened = drawn(open_page(pictures_page([mermaid_graph(agent) for agent in agents_by_name.values()], npm, version)))
    opened.picture(f"agents-{version}", whole=True)
    assert (opened.said, opened.foreign, foreign_elements(opened)) == ([], [], set())
    for number, (name, agent) in enumerate(agents_by_name.items()):
        shown = words_of(opened, number)
        assert [step for step in agent.steps if step not in shown] == [], name
        labels = [label for edge in flow_graph(agent).edges for label in edge.labels]
        assert [label for label in labels if label not in shown] == [], name


@pytest.mark.parametrize("version", MERMAIDS)
def test_no_hostile_name_breaks_out_of_the_picture(open_page: Open, npm: Path, version) -> None:
    pairs = [*zip(PIECES, PIECES[::-1], strict=True), ("".join(PIECES), "x"), ("end", "click s0 href"), ("o", "x")]
    pictures = [mermaid_graph(hostile_agent(one, other)) for one, other in pairs]
    opened = drawn(open_page(pictures_page(pictures, npm, version)))
    assert (opened.said, opened.foreign, foreign_elements(opened)) == ([], [], set())
    assert opened.page.locator(".mermaid svg").count() == len(pictures)
    shown = words_of(opened, PIECES.index("<script>alert(1)</script>"))
    assert "<script>alert(1)</script>1" in shown


def test_hostile_text_in_a_summary_stays_text(open_page: Open, npm: Path) -> None:
    text = '</code></td><script>alert(1)</script><img src="https://evil.test/i.png" onerror=alert(1)>'
    history = tuple(replace(line, reason=text, step_id=text) for line in REPORT.history)
    report = replace(REPORT, reason=text, explanation=text, agent=text, verdict=text, history=history)
    opened = drawn(open_page(github_page(job_summary(report, hostile_agent(text, text)), npm, MERMAIDS[-1])))
    assert (opened.said, opened.foreign) == ([], [])
    assert opened.page.evaluate("document.querySelectorAll('main img, main script').length") == 0
