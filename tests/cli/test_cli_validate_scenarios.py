"""`stepflow validate` reads the scenarios too: each mistake is one problem, in its line, with what was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.definition.mcp import LOCK_FILE, lock_text
from stepflow.domain.agent.agent_settings import McpServer, McpTool
from tests.definition.load_cases import edit_json

FILE = ".agent/fixer/scenarios/straight.yaml"
WRONG = {
    "no YAML": ("turns: [\n", "error", "SF104", 2, "cannot be read as YAML"),
    "a key that is nearly one": ("turns:\n  - txet: a\n", "error", "SF108", 2, 'no key "txet" (did you mean "text"?)'),
    "a key without a value": (
        "turns:\n  - tools: [ { bash: { command } } ]\n",
        "error",
        "SF107",
        2,
        "write `command: …`",
    ),
    "an outcome that is not one": (
        "turns: [ { text: a } ]\nexpect: { outcome: done }\n",
        "error",
        "SF106",
        2,
        '"done" is not one of the choices; write',
    ),
    "a tool that is nearly one": (
        "turns:\n  - tools:\n      - bsh: { command: ls }\n",
        "warning",
        "SF210",
        3,
        'no tool "bsh" (did you mean "bash"?)',
    ),
    "an argument that is nearly one": (
        "turns:\n  - tools:\n      - read: { path: x }\n",
        "warning",
        "SF106",
        3,
        'no argument "path" (did you mean "file_path"?)',
    ),
    "an argument of another type": (
        "turns:\n  - tools:\n      - bash: { command: ls, timeout_ms: soon }\n",
        "warning",
        "SF106",
        3,
        "'soon' is not of type 'integer'",
    ),
}


def problems(checkout: Path, capsys: pytest.CaptureFixture[str], *, code: int) -> list[dict]:
    """Those of the scenario."""
    assert main(["validate", "--format", "json"]) == code
    reported = json.loads(capsys.readouterr().out)["problems"]
    return [problem for problem in reported if problem["file"] == FILE]


def write(checkout: Path, text: bytes) -> None:
    (checkout / FILE).parent.mkdir(exist_ok=True)
    (checkout / FILE).write_bytes(text)


@pytest.mark.whole
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_scenario_is_one_problem(checkout: Path, capsys, name: str) -> None:
    text, severity, code, line, message = WRONG[name]
    write(checkout, text.encode())
    (problem,) = problems(checkout, capsys, code=2 if severity == "error" else 0)
    assert (problem["severity"], problem["code"], problem["line"]) == (severity, code, line)
    assert message in problem["message"]


def test_a_scenario_that_is_no_text_is_a_problem_too(checkout: Path, capsys) -> None:
    write(checkout, b"\xff")
    (problem,) = problems(checkout, capsys, code=2)
    assert (problem["code"], problem["line"]) == ("SF104", None)
    assert "UTF-8" in problem["message"]


def test_a_sound_scenario_has_no_problem(checkout: Path, capsys) -> None:
    write(checkout, (checkout.parent / "scenario.yaml").read_bytes())
    assert problems(checkout, capsys, code=0) == []


def test_the_line_is_shown_and_the_agent_may_be_named_by_its_folder(checkout: Path, capsys) -> None:
    write(checkout, b"turns:\n  - txet: a\n")
    assert main(["validate", ".agent/fixer"]) == 2
    shown = capsys.readouterr().out
    assert f" --> {FILE}:2" in shown
    assert "2 |   - txet: a" in shown


def test_a_pinned_tool_of_a_server_may_be_called_with_any_arguments(checkout: Path, capsys) -> None:
    folder = checkout / ".agent/fixer"
    search = McpTool(name="search", description="Searches.", input_schema={"type": "object"})
    (folder / LOCK_FILE).write_text(lock_text([McpServer(name="docs", tools=(search,))]))
    edit_json(folder / "agent.json", "set", "/mcpServers", {"docs": {"command": "serve"}})
    write(checkout, b"turns:\n  - tools: [mcp__docs__search: { q: x }]\n  - tools: [mcp__docs__serch: { q: x }]\n")
    (problem,) = problems(checkout, capsys, code=0)
    assert 'no tool "mcp__docs__serch" (did you mean "mcp__docs__search"?)' in problem["message"]
