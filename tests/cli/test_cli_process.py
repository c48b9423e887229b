"""The command as a process of its own: nobody can read a key out of its command line or its environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.cli.options import without_secrets

KEY = "sk-ant-key-of-a-test-0123456789"
TOKEN = "ghs_tokenofatest0123456789"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("stepflow run x --anthropic-api-key KEY --issue 7", "stepflow run x --issue 7"),
        ("stepflow run x --anthropic-api-key=KEY --issue 7", "stepflow run x --issue 7"),
        ("stepflow run x --anthropic-ap KEY", "stepflow run x"),
        ("stepflow run x --github-t=KEY --read-token KEY --repo .", "stepflow run x --repo ."),
        (
            "python -I -m stepflow run x --model U -- --x",
            "python -I -m stepflow run x --model U -- --x",
        ),
    ],
)
def test_the_flags_of_secrets_are_left_out_with_their_values(words: str, expected: str) -> None:
    assert " ".join(without_secrets(words.split())) == expected


@pytest.mark.whole
def test_a_key_given_as_a_flag_is_in_no_command_line_that_tools_can_read(checkout: Path) -> None:
    look = f"cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\\\0' ' ' | grep -o 'run[ ]fixer --issue 7 --repo {checkout}'"
    (checkout.parent / "scenario.yaml").write_text(f'turns:\n  - tools:\n      - bash: {{ command: "{look}" }}\n')
    scenario = ("--scenario", str(checkout.parent / "scenario.yaml"))
    flags = ("--anthropic-api-k", KEY, "--issue", "7", f"--github-token={TOKEN}", "--repo", str(checkout))
    words = [sys.executable, "-I", "-m", "stepflow", "run", "fixer", *flags, *scenario]
    folder = ("--run-folder", str(checkout.parent / "run"))
    subprocess.run([*words, *folder], cwd="/", check=False, capture_output=True)
    (seen,) = (
        event["output"]
        for event in map(json.loads, (checkout.parent / "run/journal.jsonl").read_text().splitlines())
        if event["event"] == "tool_call"
    )
    assert seen.splitlines() == [f"run fixer --issue 7 --repo {checkout}"]


@pytest.mark.whole
def test_a_credential_of_the_checkout_is_neither_seen_nor_taken(checkout: Path, capsys) -> None:
    config = checkout / ".git/config"
    with config.open("a") as file:
        file.write(f'[remote "o"]\n\turl = https://x-access-token:{TOKEN}@h/r\n')
    before = config.read_bytes()
    (checkout.parent / "scenario.yaml").write_text(
        f"turns:\n  - tools:\n      - bash: {{ command: 'git config --list; cat {config}' }}\n"
    )
    scenario = ("--scenario", str(checkout.parent / "scenario.yaml"))
    main(["run", "fixer", "--issue", "7", *scenario, "--run-folder", str(checkout.parent / "run"), "--debug"])
    written = capsys.readouterr().out + (checkout.parent / "run/journal.jsonl").read_text()
    assert "remote.o.url=https://h/r" in written
    assert TOKEN not in written
    assert config.read_bytes() == before
