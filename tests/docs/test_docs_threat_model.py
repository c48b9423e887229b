"""docs/threat-model.md and SECURITY.md: every case has its row, and every test that a row names exists and is run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from stepflow.domain.conversation import Message, ModelRequest
from stepflow.domain.words import Effort, Permission
from stepflow.model.wire import request_body
from stepflow.run.start.inputs import Inputs
from stepflow.sandbox.isolation import LAYERS
from tests.bench.sandbox import CALLS, STARTS, TOOLS
from tests.docs.page import ROOT
from tests.docs.tables import THREAT_MODEL

TEXT = THREAT_MODEL.read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+) \|$", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
#: A test without one of these is run by `make test`; each of them is chosen by its own target.
_TARGETS = {"whole": "whole", "e2e": "e2e", "e2e_security": "e2e-security", "npm": "npm"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    number: int
    attempt: str
    outcome: str
    tests: tuple[tuple[str, str], ...]
    """What a link is called, and where it leads."""


def cases() -> list[Case]:
    table = TEXT.partition("<!-- cases -->")[2].partition("\n\n")[0]
    return [
        Case(number=int(number), attempt=attempt, outcome=outcome, tests=tuple(_LINK.findall(tests)))
        for number, attempt, outcome, _by, tests in _ROW.findall(table)
    ]


def test_every_case_has_its_row_in_order() -> None:
    assert [case.number for case in cases()] == list(range(1, 47))


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"case {case.number}")
def test_the_tests_of_a_case_exist_and_are_run(case: Case) -> None:
    assert case.tests, case.attempt
    for label, link in case.tests:
        path = (THREAT_MODEL.parent / link).resolve()
        assert path.is_file(), f"{link} does not exist"
        name = _name(label)
        assert name in defined(path) or label == path.name, f"{link} has no {name}"
        assert re.fullmatch(r"test_\w+\.py", path.name), f"pytest does not look into {link}"
        assert path.is_relative_to(ROOT / "tests")
        for mark in marks(path, name):
            assert re.search(rf'-m ("[^"]*)?\b{mark}\b', makefile_target(_TARGETS[mark])), f"no target runs {label}"


@pytest.mark.whole
def test_every_case_has_a_test_that_each_change_must_pass() -> None:
    """The others may be `weekly`."""
    named = {
        case.number: [((THREAT_MODEL.parent / link).resolve(), label) for label, link in case.tests] for case in cases()
    }
    files = {str(path.relative_to(ROOT)) for tests in named.values() for path, _ in tests}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-m", "not weekly", *files]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    collected = {(ROOT / line.partition("::")[0], part) for line in listing.splitlines() for part in _parts(line)}
    assert [
        number
        for number, tests in named.items()
        if not any((path, _name(label)) in collected or label == path.name for path, label in tests)
    ] == []


def _parts(node: str) -> list[str]:
    """The classes and the function of a test."""
    return node.partition("[")[0].split("::")[1:]


def _name(label: str) -> str:
    """A test is called by its words, since names without blanks do not break and make a table too wide to read."""
    return label if label.startswith("Test") else f"test_{label.replace(' ', '_')}"


def test_what_concerns_the_container_is_tried_in_the_image() -> None:
    in_the_image = {case.number for case in cases() if any("e2e" in link for _, link in case.tests)}
    assert in_the_image >= {1, 2, 3, 4, 7, 8, 11, 12, 15, 18, 25, 26, 27, 29, *range(34, 40), 42, 43}


def test_every_layer_is_described() -> None:
    table = TEXT.partition("## Layers")[2].partition("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(LAYERS)


def test_the_costs_are_those_that_the_benchmark_prints() -> None:
    section = TEXT.partition("## What the sandbox costs")[2].partition("## ")[0]
    assert "`python -m tests.bench.sandbox`" in section
    assert f"{CALLS} calls ({STARTS} starts)" in section
    rows = re.findall(r"^\| (.+?) \| [\d.]+ \| [\d.]+ \| [+-][\d.]+ \|$", section, re.M)
    assert rows == ["start", *TOOLS]


@cache
def defined(path: Path) -> dict[str, frozenset[str]]:
    """Every test function and test class of a file with the marks of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: _marks_in(*node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith(("test_", "Test"))
    }


def marks(path: Path, name: str) -> frozenset[str]:
    """Which of the marks that choose a target the test carries."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_pytestmark(node)]
    return _marks_in(*module) | defined(path).get(name, frozenset())


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _marks_in(*nodes: ast.expr) -> frozenset[str]:
    marks = {part.attr for node in nodes for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return frozenset(marks & _TARGETS.keys())


def makefile_target(name: str) -> str:
    """The commands of a target."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    match = re.search(rf"^{re.escape(name)}:.*\n((?:\t.*\n)+)", text, re.M)
    assert match, f"the Makefile has no target {name}"
    return match[1]


# What reviewers ask (SECURITY.md)


def test_a_triager_starts_no_agent_unless_an_input_or_the_definition_says_so() -> None:
    """The row of the actors; tests/run and tests/action try the start itself."""
    assert "| triager | " in TEXT
    assert Inputs().start.min_permission is Permission.WRITE


def test_a_request_has_the_parts_that_the_page_names_and_no_user() -> None:
    said = (Message(role="user", content=({"type": "text", "text": "Fix it."},)),)
    request = ModelRequest(
        step_id="s", iteration=1, model="sonnet", system="be brief", messages=said, effort=Effort.LOW
    )
    named = {"model", "max_tokens", "system", "tools", "messages", "cache_control", "thinking", "output_config"}
    assert request_body(request, max_tokens=10).keys() <= named
