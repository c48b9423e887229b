"""What a real bash completes after it has run what `stepflow completion` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepflow.cli import COMMANDS, main

#: What readline would set before it calls the function for a line with the cursor at its end.
ASK = """eval "$(stepflow completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
_python_argcomplete stepflow
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str, folder: Path, tmp_path: Path) -> list[str]:
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "stepflow"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stepflow "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    asked = subprocess.run(
        ["bash", "-c", ASK, "bash", line], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    assert asked.stderr == ""
    return asked.stdout.split()


def test_commands_are_completed(tmp_path: Path) -> None:
    assert set(completed("stepflow ", tmp_path, tmp_path)) == set(COMMANDS)
    assert completed("stepflow pre", tmp_path, tmp_path) == ["preflight"]


@pytest.mark.whole
def test_the_flags_of_a_command_are_completed(tmp_path: Path) -> None:
    assert completed("stepflow run fixer --iss", tmp_path, tmp_path) == ["--issue", "--issue-text"]
    assert completed("stepflow run fixer --limits iter", tmp_path, tmp_path) == ["iterations="]


@pytest.mark.whole
def test_agents_of_the_repository_and_shipped_ones_are_completed(checkout: Path, tmp_path: Path) -> None:
    names = completed("stepflow run ", checkout, tmp_path)
    assert {"fixer", "builtin/fix", "builtin/triage"} <= set(names)
    assert completed("stepflow graph fix", checkout, tmp_path) == ["fixer"]
    assert "builtin/fix" in completed("stepflow preflight ", checkout, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_something_is_printed_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "stepflow" in capsys.readouterr().out
