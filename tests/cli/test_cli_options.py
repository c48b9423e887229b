"""The command line takes every input of the action, and ends as the action does."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.cli.options import add_input_flags, read_flags
from stepflow.errors import InputError
from stepflow.run.inputs import Inputs
from tests.checkout import DEMO, make_checkout


def read(*words: str) -> Inputs:
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    return read_flags(parser.parse_args(words), agent="fixer")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


def run(root: Path, *words: str) -> int:
    scenario = ("--provider", "scripted", "--scenario", str(DEMO / "scenario.yaml"))
    return main(["run", "fixer", "--repo", str(root), *scenario, "--run-folder", str(root.parent / "run"), *words])


def test_every_input_has_a_flag_of_its_name_but_those_the_command_decides() -> None:
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    flags = {option for action in parser._actions for option in action.option_strings}
    names = {name.replace("_", "-") for name in Inputs.model_fields}
    many = {"plan-label", "plan-limit", "plan-after", "gather-from", "gather-issues"}
    assert {name for name in names if f"--{name}" not in flags} == {"agent", "mode", "host"} | many


def test_every_word_that_help_offers_for_an_input_is_taken() -> None:
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    offered = {
        option: metavar.strip("{}").split(",")
        for action in parser._actions
        for option in action.option_strings
        if isinstance(metavar := action.metavar, str) and metavar.startswith("{")
    }
    assert offered["--min-permission"] == ["read", "triage", "write", "maintain", "admin"]
    assert len(offered) > 5
    for option, words in offered.items():
        for word in words:
            assert word in str(getattr(read(option, word), option[2:].replace("-", "_")))


def test_a_terminal_plans_and_takes_the_isolation_there_is() -> None:
    inputs = read()
    assert (inputs.boundary, inputs.isolation, inputs.agent) == ("dry-run", "best-effort", "fixer")


def test_one_parameter_more_wins_over_the_map() -> None:
    inputs = read("--parameters", "topic: parser\ncount: 3", "--param", "topic=lexer")
    assert inputs.parameters == {"topic": "lexer", "count": 3}
    with pytest.raises(InputError, match="no key=value"):
        read("--param", "topic")


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment")
    assert read().secrets() == ("sk-ant-environment",)
    assert read("--anthropic-api-key", "sk-ant-flag").secrets() == ("sk-ant-flag",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pass-env", "ANTHROPIC_API_KEY"), "pass-env"),
        (("--pass-env", "GITHUB_TOKEN"), "pass-env"),
        (("--working-directory", ".."), "outside"),
        (("--working-directory", "nowhere"), "no folder"),
        (("--record", "../x.yaml"), "record"),
        (("--boundary", "github", "--github-token", "ghs_x"), "GITHUB_REPOSITORY"),
        (("--read-token", "ghp_x"), "GITHUB_ACTOR"),
        (("--budget-usd", "x"), "budget-usd"),
    ],
)
def test_wrong_input_is_one_message_and_exit_2(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    for name in ("GITHUB_REPOSITORY", "GITHUB_ACTOR"):
        monkeypatch.delenv(name, raising=False)
    if "github" in words:
        monkeypatch.setenv("GITHUB_ACTOR", "bob")
    assert run(root, *words) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert not (root.parent / "run").exists()


def test_debug_shows_the_prompts(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--debug", "--max-iterations", "1", "--neutral-on-limit") == 0
    assert "system prompt, in full:" in capsys.readouterr().out


def test_an_issue_without_a_text_is_a_warning_in_a_rehearsal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(root, "--issue", "8", "--max-iterations", "1", "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["issue"] == 8
    assert "The text of issue #8 is not known" in shown.err


def test_an_issue_without_a_text_is_an_error_for_a_real_model(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    words = ("--provider", "anthropic", "--anthropic-api-key", "sk-ant-x", "--issue", "8")
    assert run(root, *words) == 2
    assert "issue-text" in capsys.readouterr().err


class BrokenOutput(io.StringIO):
    """A stdout with a bug."""

    def write(self, text: str) -> int:
        raise ZeroDivisionError(f"cannot print beside sk-ant-environment: {text[:10]}")


def test_a_bug_outside_a_run_exits_3_and_says_how_to_report_it(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment")
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "stdout", BrokenOutput())
    assert main(["validate"]) == 3
    output = capsys.readouterr().err
    assert "ZeroDivisionError: cannot print beside ***" in output
    assert "fault of stepflow" in output
    assert "sk-ant-environment" not in output
