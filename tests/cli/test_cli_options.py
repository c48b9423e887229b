"""The command line takes every input of the action, and ends as the action does."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.cli.options import add_input_flags, read_flags
from stepflow.errors import InputError
from stepflow.run.start.inputs import Inputs


def read(*words: str) -> Inputs:
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    return read_flags(parser.parse_args(words), agent="fixer")


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
    assert offered["--network"] == ["full", "none", "allow"]
    beside = {("--network", "allow"): ("--allowed-hosts", "pypi")}
    assert len(offered) > 5
    for option, words in offered.items():
        for word in words:
            given = read(option, word, *beside.get((option, word), ()))
            assert word in str(getattr(given, option[2:].replace("-", "_")))


def test_a_terminal_plans_and_takes_the_isolation_there_is() -> None:
    inputs = read()
    assert (inputs.boundary, inputs.isolation, inputs.agent) == ("dry-run", "best-effort", "fixer")


def test_one_parameter_more_wins_over_the_map() -> None:
    inputs = read("--parameters", "topic: parser\ncount: 3", "--param", "topic=lexer")
    assert inputs.parameters == {"topic": "lexer", "count": 3}
    with pytest.raises(InputError, match="is not key=value"):
        read("--param", "topic")


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment")
    assert read().secrets() == ("sk-ant-environment",)
    assert read("--anthropic-api-key", "sk-ant-flag").secrets() == ("sk-ant-flag",)


class BrokenOutput(io.StringIO):
    """A stdout with a bug."""

    def write(self, text: str) -> int:
        raise ZeroDivisionError(f"cannot print beside sk-ant-environment: {text[:10]}")


def test_a_bug_outside_a_run_exits_3_and_says_how_to_report_it(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment")
    monkeypatch.setattr(sys, "stdout", BrokenOutput())
    assert main(["validate"]) == 3
    output = capsys.readouterr().err
    assert "ZeroDivisionError: cannot print beside ***" in output
    assert "fault of stepflow" in output
    assert "sk-ant-environment" not in output


def test_help_names_numbers_as_numbers() -> None:
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    named = {option: action.metavar for action in parser._actions for option in action.option_strings}
    for name in ("max-iterations", "max-rounds", "budget-tokens", "runs-per-person-per-day"):
        assert named[f"--{name}"] == "N"
    assert named["--budget-usd-per-month"] == "USD"
