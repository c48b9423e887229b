"""JSON on stdout: programs read it whole, and the runner of a job obeys nothing of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from stepflow.cli import command_module, main
from stepflow.domain.words import Outcome, exit_code
from stepflow.report.document import report_schema
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
        *("--scenario", scenario),
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


def only_object(out: str) -> dict[str, object]:
    """The one JSON object that stdout holds."""
    document = json.loads(out)
    assert isinstance(document, dict)
    assert out.count("\n") == 1
    return document


def broken_agent(checkout: Path) -> None:
    agent = checkout / ".agent/fixer/agent.json"
    agent.write_text(agent.read_text().replace('"parameters"', '"parametres"').replace("initial.issue", "nowhere", 1))
    (checkout / ".agent/fixer/steps_registry.json").write_text('{"steps": ')


def nothing(_checkout: Path) -> None:
    pass


#: `HERE` is the folder in which the checkout is.
SCRIPTED = ("--scenario", "HERE/scenario.yaml")


@pytest.mark.parametrize(
    ("words", "plant", "outcome", "message"),
    [
        (["fixer", *SCRIPTED, "--issue", "7"], broken_agent, "invalid_definition", "fixer"),
        (["nobody", "--issue", "7"], nothing, "invalid_definition", "nobody"),
        (["fixer", "--issue", "7"], nothing, "misconfigured", "anthropic-api-key"),
        (["fixer", "--resume", "/no/such/run", *SCRIPTED, "--issue", "7"], nothing, "misconfigured", "/no/such/run"),
        (["fixer", *SCRIPTED, "--issue", "7", "--run-folder", "/dev/null/x"], nothing, "misconfigured", "/dev/null/x"),
    ],
)
def test_a_run_that_cannot_begin_prints_a_report(
    checkout: Path, capsys: pytest.CaptureFixture[str], words: list[str], plant, outcome: str, message: str
) -> None:
    plant(checkout)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--allow-empty", "--message", "Plant it", cwd=checkout)
    code = main(["run", *(word.replace("HERE", str(checkout.parent)) for word in words), "--json"])
    out, err = capsys.readouterr()
    report = only_object(out)
    jsonschema.validate(report, report_schema())
    assert (report["outcome"], report["success"], report["iterations"]) == (outcome, False, 0)
    assert code == exit_code(Outcome(outcome))
    assert str(report["reason"]).startswith("Before the run: ")
    assert message in json.dumps([report["reason"], report["problems"]])
    assert "stepflow: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resume", "/no/such/run", "--json"], "/no/such/run"),
        (["show", "/no/such/run", "--json"], "/no/such/run"),
        (["rehearse", "nobody", "--json"], "nobody"),
        (["rehearse", "--json", "--limits", "iterations=many"], "limits.iterations"),
        (["rehearse", "--json", "--junit", "/no/such/folder/junit.xml"], "/no/such/folder"),
        (["gather", "/no/such/folder", "--format", "json"], "/no/such/folder"),
        (["graph", "fixer", "--format", "json", "--run", "/no/such/run"], "/no/such/run"),
        (["validate", "--format", "json", "--allow", "everything"], "allow"),
    ],
)
def test_a_command_that_fails_prints_why(
    checkout: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    document = only_object(out)
    assert document["schema"] == 1
    assert document["success"] is False
    assert document["outcome"] in ("misconfigured", "invalid_definition")
    assert message in json.dumps(document)
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "fixer", "--json", "--no-such-flag"], "--no-such-flag"),
        (["run", "--json"], "NAME"),
        (["resume", "--json"], "DIR"),
        (["validate", "--format", "json", "--no-such-flag"], "--no-such-flag"),
        (["graph", "--format=json"], "NAME"),
    ],
)
def test_a_mistyped_command_line_prints_why(
    checkout: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    document = only_object(out)
    assert ended.value.code == 2
    assert (document["outcome"], document["success"]) == ("misconfigured", False)
    assert message in str(document["reason"])
    assert message in err
    if words[0] in ("run", "resume"):
        jsonschema.validate(document, report_schema())


@pytest.mark.parametrize(
    ("command", "error", "outcome", "code"),
    [
        *((command, RuntimeError("a bug"), "internal_error", 3) for command in ("run", "gather", "graph")),
        ("run", KeyboardInterrupt(), "cancelled", 130),
    ],
)
def test_a_bug_and_an_interrupt_are_printed_too(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    error: BaseException,
    outcome: str,
    code: int,
) -> None:
    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr(command_module(command), f"execute_{command}", fail)
    assert main([command, "x", *(["--json"] if command == "run" else ["--format", "json"])]) == code
    out, err = capsys.readouterr()
    assert only_object(out)["outcome"] == outcome
    assert "stepflow: " in err


def test_no_secret_stands_in_the_reason(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-ant-" + "s3cret" * 4
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    assert main(["run", "fixer", "--issue", "7", "--repo", f"/no/{key}", "--json"]) == 2
    out, err = capsys.readouterr()
    assert "/no/" in str(only_object(out)["reason"])
    assert key not in out + err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_run_begins_is_a_cancelled_run(checkout: Path, number: signal.Signals) -> None:
    """It comes while the event is read, which a pipe that nobody writes to keeps waiting."""
    pipe = checkout.parent / "event.json"
    os.mkfifo(pipe)
    words = [sys.executable, "-m", "stepflow", "run", "fixer", *SCRIPTED, "--event", str(pipe), "--json"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=checkout) as process,
        # Opening it for writing returns when the program has opened it for reading.
        pipe.open("w"),
    ):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    report = only_object(out)
    assert report["outcome"] == "cancelled"
    assert number.name in str(report["reason"])


def test_a_branch_whose_name_is_no_text_stands_in_nobodys_way(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git("update-ref", b"refs/heads/caf\xe9".decode(errors="surrogateescape"), "HEAD", cwd=checkout)
    assert main([*run_words(checkout, checkout.parent / "run"), "--json"]) == 0
    assert only_object(capsys.readouterr().out)["outcome"] == "completed"
