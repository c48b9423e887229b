"""What a person at a terminal reads before anything runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepflow.cli import COMMANDS, main
from stepflow.cli.options import GROUPS, OWN_FORM
from stepflow.run.start.inputs import Inputs

STEPFLOW = (sys.executable, "-m", "stepflow")
NAMES = {name.replace("_", "-") for name in Inputs.model_fields}


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_every_input_of_the_action_is_a_flag_of_run_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "run")
    assert {"agent", "mode", "host", "issue", "many-issues", "policy"} == OWN_FORM
    for name, field in Inputs.model_fields.items():
        flag = name.replace("_", "-")
        if flag not in OWN_FORM:
            assert f" --{flag} " in text
            # argparse may break a line after a dash.
            assert " ".join((field.description or "").split()).replace("-", "") in text.replace("- ", "").replace(
                "-", ""
            )


def test_the_help_of_run_stands_in_groups_with_defaults_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "run")
    assert [heading for heading in GROUPS.values() if f" {heading}: " not in text] == []
    assert "--boundary {github,dry-run}" in text
    assert "(default: dry-run)" in text
    assert "(default: full)" in text
    assert "(or set ANTHROPIC_API_KEY)" in text
    assert "YAML map of values for the parameters that agent.json declares. the model:" in text
    assert "Undefined" not in text


def test_whoever_names_no_command_sees_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    text = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(f"  {name} " in text for name in COMMANDS)


def test_what_the_help_says_of_a_flag_is_of_a_flag_that_exists() -> None:
    assert set(GROUPS) <= NAMES


@pytest.mark.whole
def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    graph = subprocess.Popen([*STEPFLOW, "graph", "fixer"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert graph.stdout is not None
    assert graph.stderr is not None
    graph.stdout.close()
    with graph.stderr:
        assert (graph.stderr.read(), graph.wait(30)) == (b"", 141)
