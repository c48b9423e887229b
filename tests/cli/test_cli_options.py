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
    assert offered["--isolation"] == ["required", "best-effort"]
    assert len(offered) > 5
    for option, words in offered.items():
        for word in words:
            given = read(option, word)
            assert word in str(getattr(given, option[2:].replace("-", "_")))


def test_a_terminal_plans_and_takes_the_isolation_there_is() -> None:
    inputs = read()
    assert (inputs.boundary, inputs.isolation, inputs.agent) == ("dry-run", "best-effort", "fixer")


def test_a_map_is_yaml_or_one_flag_for_each_key() -> None:
    assert read("--parameters", "topic: parser\ncount: 3").parameters == {"topic": "parser", "count": 3}
    assert read("--parameters", "topic=parser", "--parameters", "text=a=b, c: d").parameters == {
        "topic": "parser",
        "text": "a=b, c: d",
    }
    limits = read("--limits", "usd=2", "--limits=iterations=7").limits
    assert (limits.usd, limits.iterations) == (2, 7)
    assert read("--limits", "{usd: 2, iterations: 7}").limits == limits
    with pytest.raises(InputError, match="--limits is given more than once, and not as key=value each time"):
        read("--limits", "usd=2", "--limits", "{iterations: 7}")
    with pytest.raises(InputError, match=r"there is no key `iteration` \(did you mean \"iterations\"\?\)"):
        read("--limits", "iteration=7")


def test_a_model_is_a_name_with_keys_beside_it_or_not() -> None:
    assert read("--model", "haiku").model.name == "haiku"
    model = read("--model", "haiku", "--model", "base-url=http://127.0.0.1:8080").model
    assert (model.name, model.base_url) == ("haiku", "http://127.0.0.1:8080")
    assert read("--model", "name=haiku", "--model", "base-url=http://127.0.0.1:8080").model == model
    identity = read(
        "--model", "workload-identity.federation-rule-id=a", "--model", "workload-identity.organization-id=b"
    )
    assert identity.model.workload_identity
    assert identity.model.workload_identity.organization_id == "b"


def test_a_flag_adds_to_the_map_in_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFLOW_TELEMETRY", "headers: {Authorization: Bearer t-0123456789}")
    inputs = read("--telemetry", "endpoint=https://collector.example", "--telemetry", "content=true")
    assert (inputs.telemetry.endpoint, inputs.telemetry.content) == ("https://collector.example", True)
    assert "t-0123456789" in inputs.secrets()
    inputs = read("--telemetry", "headers.X-Token=other-0123456789")
    assert inputs.secrets() == ("other-0123456789",)
    monkeypatch.setenv("STEPFLOW_TELEMETRY", "t-0123456789")
    with pytest.raises(InputError, match="input telemetry: write a YAML map") as caught:
        read("--telemetry", "endpoint=https://collector.example")
    assert "t-0123456789" not in str(caught.value)


def test_a_command_that_sets_a_variable_is_no_map() -> None:
    proof = read("--prove", "debug=1 pytest {tests}").prove
    assert proof
    assert proof.command == "debug=1 pytest {tests}"
    proof = read("--prove", "command=pytest {tests}", "--prove", "max-hunks=3").prove
    assert proof
    assert (proof.command, proof.max_hunks) == ("pytest {tests}", 3)


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
    assert named["--issue"] == "N"
    assert named["--limits"] == named["--parameters"] == "KEY=VALUE"
