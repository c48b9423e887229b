"""No silence: whatever takes long at a terminal shows what it does, and a log gets a line about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git
from tests.cli.terminal import at_terminal

#: Longer than a person should wait without a word.
SLOW = "sleep 4 && true"


@pytest.fixture
def slow_check(checkout: Path) -> tuple[str, ...]:
    """The flags of a preflight whose only check takes long."""
    scenario = checkout.parent / "scenario.yaml"
    return ("builtin/fix", "--checks", SLOW, "--scenario", str(scenario))


def test_preflight_names_the_check_that_runs(checkout: Path, slow_check: tuple[str, ...]) -> None:
    said = at_terminal("preflight", *slow_check, code=None, cwd=checkout)
    assert SLOW in said
    assert "\x1b[2K" in said
    # What stepflow itself runs has a name.
    assert "import base64" not in said


@pytest.mark.whole
def test_a_run_names_the_check_that_runs_before_the_model_is_asked(checkout: Path, slow_check: tuple[str, ...]) -> None:
    said = at_terminal("run", *slow_check, "--issue", "7", "--issue-text", "x", columns=110, code=None, cwd=checkout)
    assert f"prepares the run: {SLOW}" in said


def test_a_question_stays_until_it_is_answered(tmp_path: Path) -> None:
    said = at_terminal("init", "fixer", "--repo", str(tmp_path), keys="\n" * 9, thinks_at="Begin with", code=None)
    asked = said.partition("Begin with")[2].partition("\n")[0]
    assert "\x1b[2K" not in asked
    assert "stepflow init" not in asked


@pytest.mark.whole
def test_prove_names_what_runs(checkout: Path) -> None:
    (checkout / "word").write_text("new\n")
    git("add", "word", cwd=checkout)
    git("commit", "--quiet", "--message", "Change", cwd=checkout)
    said = at_terminal("prove", "HEAD^..HEAD", "--command", SLOW, "--tests", "word", code=None, cwd=checkout)
    assert said.count(SLOW) > 1


@pytest.mark.whole
def test_a_terminal_that_cannot_erase_gets_one_line_for_each_activity(
    checkout: Path, slow_check: tuple[str, ...]
) -> None:
    said = at_terminal("preflight", *slow_check, code=None, cwd=checkout, TERM="dumb")
    assert said.count(f"… trying the checks: {SLOW}") == 1
    assert "\x1b[2K" not in said


@pytest.mark.whole
def test_a_log_gets_a_line_about_what_takes_long(checkout: Path, slow_check: tuple[str, ...], capsys, monkeypatch):
    monkeypatch.setattr("stepflow.run.long_activity.FIRST_LINE_AFTER", 1.0)
    main(["preflight", *slow_check, "--repo", str(checkout)])
    out, err = capsys.readouterr()
    assert re.search(r"^… still running after [\d.]+ s: trying the checks(: .+)?$", err, re.M), err
    assert "still running" not in out
    assert "\x1b" not in out + err


@pytest.mark.whole
def test_nothing_moves_where_standard_error_is_no_terminal(checkout: Path, slow_check: tuple[str, ...]) -> None:
    words = (sys.executable, "-m", "stepflow", "preflight", *slow_check)
    done = subprocess.run(words, cwd=checkout, env=os.environ, capture_output=True, text=True, check=False)
    assert "\x1b" not in done.stdout + done.stderr
