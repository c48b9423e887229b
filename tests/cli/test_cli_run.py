"""`stepflow run`: one run here, its report on stdout with `--json`, one clear message for wrong words."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from stepflow.cli import main
from stepflow.report.document import report_schema
from tests.checkout import git
from tests.servers.messages_api import MessagesApi
from tests.world import ISSUE, MODEL_KEY, label_event, solve

pytestmark = pytest.mark.whole


def run(checkout: Path, *words: str) -> int:
    """`stepflow run fixer` with the scenario."""
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    return main(["run", "fixer", *scripted, *words])


def test_json_prints_exactly_one_object_and_everything_else_goes_to_stderr(checkout: Path, capsys) -> None:
    assert run(checkout, "--issue", "7", "--json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert out.count("\n") == 1
    jsonschema.validate(report, report_schema())
    assert (report["outcome"], report["issue"], report["iterations"]) == ("completed", 7, 3)
    assert {effect["status"] for effect in report["effects"]} == {"planned"}
    assert "Iteration 3 of 9 · closure.issue (closure)" in err
    assert "✓ completed: the world is greeted" in err


def test_without_json_stdout_tells_the_run_and_says_the_end_once(checkout: Path, capsys) -> None:
    folder = checkout.parent / "my run"
    assert run(checkout, "--issue", "7", "--run-folder", str(folder)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("✓ completed: ") == 1
    words = out[out.index("✓ completed: ") :]
    assert "steps       initial.issue → continuation.issue → closure.issue" in words
    assert f"run folder  {folder}" in words
    assert "next        This was a dry run" in words
    assert (folder / "journal.jsonl").is_file()


def test_an_events_file_gives_the_issue_and_its_text(checkout: Path, capsys) -> None:
    event = checkout.parent / "event.json"
    event.write_text(json.dumps(label_event()))
    scenario = checkout.parent / "scenario.yaml"
    text = scenario.read_text().replace(
        "- expect_step: initial.issue", f'- expect_step: initial.issue\n    expect_prompt: ["{ISSUE["title"]}"]'
    )
    scenario.write_text(text)
    assert run(checkout, "--event", str(event), "--json") == 0
    assert json.loads(capsys.readouterr().out)["issue"] == 7


def test_a_flag_that_is_none_is_named_with_where_all_are(checkout: Path, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(checkout, "--base-branch", "develop")
    said = capsys.readouterr().err
    assert "unrecognized arguments: --base-branch develop; `stepflow run --help` lists all" in said
    with pytest.raises(SystemExit, match="2"):
        run(checkout, "--isue", "7")
    assert "unrecognized arguments: --isue 7; did you mean `--issue`?" in capsys.readouterr().err


def test_a_real_model_is_asked_with_the_key_of_the_environment(
    checkout: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    with MessagesApi(solve(), api_key=MODEL_KEY) as api:
        given = ["--issue", "7", "--issue-text", "Greet the world.", "--model", f"base-url={api.url}", "--json"]
        assert main(["run", "fixer", *given]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["cost_usd"] > 0
    assert MODEL_KEY not in out + err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--limits", "usd=five"], "input limits.usd: must be a number"),
        (["--parameters", "topic"], "input parameters: write a YAML map"),
        (["--parameters", "issue=8", "--issue", "7"], "SF209"),
        (["--event", "/no/such/file"], "/no/such/file"),
        (["--boundary", "github", "--issue", "7"], "github-token"),
        ([], "SF209"),
        (["--pass-env", "ANTHROPIC_API_KEY"], "pass-env"),
        (["--working-directory", ".."], "outside"),
        *((["--record", path], "record") for path in ("../x.yaml", "report.json")),
        (["--network", "allow"], "input network: write `full`, `none`, or a list of hosts"),
        (["--boundary", "github", "--issue", "7", "--github-token", "ghs_x"], "GITHUB_REPOSITORY"),
        (["--issue", "7", "--read-token", "ghp_x"], "GITHUB_ACTOR"),
    ],
)
def test_wrong_words_exit_with_2_and_one_message(checkout: Path, capsys, words: list[str], message: str) -> None:
    assert run(checkout, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("stepflow: ")
    assert err.count("stepflow: ") == 1
    assert message in err
    assert not (checkout.parent / "temp").exists()
    assert git("status", "--porcelain", cwd=checkout) == ""


def test_debug_shows_the_prompts(checkout: Path, capsys) -> None:
    assert run(checkout, "--issue", "7", "--debug", "--limits", "iterations=1") == 1
    assert "system prompt, in full:" in capsys.readouterr().out


def test_an_issue_without_a_text_is_a_warning_in_a_rehearsal(checkout: Path, capsys) -> None:
    run(checkout, "--issue", "8", "--limits", "iterations=1", "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["issue"] == 8
    assert "The text of issue #8 is not known" in shown.err


@pytest.mark.parametrize("words", [["run"], ["run", "fixer", "--nope"], ["dance"]])
def test_flags_that_do_not_exist_exit_with_2_and_a_short_usage(capsys, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: stepflow ")
    assert len(err.splitlines()) == 2


def test_a_policy_in_the_environment_binds_runs_at_a_terminal_too(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFLOW_POLICY", "enabled: false")
    assert run(checkout, "--issue", "7") == 1
    assert "the policy turns off all runs" in capsys.readouterr().err
    monkeypatch.setenv("STEPFLOW_POLICY", "network: none")
    folder = checkout.parent / "bound"
    assert run(checkout, "--issue", "7", "--run-folder", str(folder)) == 0
    assert capsys.readouterr().out.count("[Policy] network: none") == 1
    assert '"network":"none"' in (folder / "journal.jsonl").read_text().replace('": "', '":"')
    # The run is complete, so nothing is asked or written by a resume that the policy would not let start.
    monkeypatch.setenv("STEPFLOW_POLICY", "enabled: maybe")
    assert main(["resume", str(folder)]) == 2
    assert "enabled: write true or false" in capsys.readouterr().err


def test_without_a_key_it_says_what_to_do_at_a_terminal(checkout: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("RUNNER_TEMP", raising=False)
    assert main(["run", "fixer", "--issue", "7"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "There is no API key. Set ANTHROPIC_API_KEY. Without a key, `stepflow rehearse`" in said
    assert "secrets." not in said
