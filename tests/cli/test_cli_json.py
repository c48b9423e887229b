"""JSON on stdout: programs read it whole, and the runner of a job obeys nothing of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git

pytestmark = pytest.mark.whole

ORDER = "\n::error::forged\n##[add-path]/evil"


@pytest.fixture
def hostile_checkout(checkout: Path) -> Path:
    """The checkout, whose scenario and step names give orders to a runner."""
    scenario = checkout.parent / "scenario.yaml"
    text = scenario.read_text().replace("the world is greeted", json.dumps(f"the world is greeted {ORDER}"))
    scenario.write_text(text)
    played = checkout / ".agent/fixer/scenarios/greets.yaml"
    played.parent.mkdir()
    played.write_text(
        f"issue: {{ number: 7, title: x }}{text}expect:\n  files: {{ greeting.txt: {json.dumps(ORDER)} }}\n"
    )
    registry = checkout / ".agent/fixer/steps_registry.json"
    document = json.loads(registry.read_text())
    document["steps"]["initial.issue"]["name"] = f"a name {ORDER}"
    registry.write_text(json.dumps(document))
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Name the orders", cwd=checkout)
    return checkout


def run_words(checkout: Path, folder: Path) -> list[str]:
    scenario = str(checkout.parent / "scenario.yaml")
    return [
        "run",
        "fixer",
        *("--provider", "scripted", "--scenario", scenario),
        "--issue",
        "7",
        "--run-folder",
        str(folder),
    ]


def assert_harmless_json(out: str) -> None:
    document = json.loads(out)
    assert "##[add-path]/evil" in json.dumps(document)
    assert "##[" not in out
    assert [line for line in re.split(r"[\n\r]", out) if line.lstrip().startswith("::")] == []


def test_the_json_of_every_command_is_no_order_to_a_runner(
    hostile_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hostile_checkout.parent / "runs" / "run"
    assert main([*run_words(hostile_checkout, folder), "--json"]) == 0
    assert_harmless_json(capsys.readouterr().out)
    report = folder / "report.json"
    report.write_text(json.dumps({**json.loads(report.read_text()), "reason": ORDER}))
    for words in (
        ["show", str(folder), "--json"],
        ["gather", str(folder.parent), "--format", "json"],
        ["graph", "fixer", "--format", "json", "--run", str(folder)],
        ["rehearse", "--json"],
        ["resume", str(folder), "--json"],
    ):
        main(words)
        assert_harmless_json(capsys.readouterr().out)


def test_a_text_that_no_encoding_knows_is_printed_all_the_same(
    checkout: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Half a character, as JSON can hold one."""
    folder = checkout.parent / "run"
    assert main(run_words(checkout, folder)) == 0
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text().replace("the world is greeted", "the world is greeted \\ud800"))
    capsysbinary.readouterr()
    assert main(["show", str(folder), "--json"]) == 0
    assert "greeted \ud800" in json.loads(capsysbinary.readouterr().out)["reason"]
