"""A run at a terminal that waits for approval: what it shows, and how somebody there answers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git

pytestmark = pytest.mark.whole
STEP = "continuation.issue"


def wait(checkout: Path, capsys: pytest.CaptureFixture[str], *, by: str) -> list[str]:
    """Make the plan; the words of the command that approves it."""
    registry = checkout / ".agent/fixer/steps_registry.json"
    steps = json.loads(registry.read_text())
    steps["steps"][STEP]["approval"] = {"by": by}
    registry.write_text(json.dumps(steps))
    git("commit", "--quiet", "--all", "--message", "Ask", cwd=checkout)
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    assert main(["run", "fixer", "--issue", "7", *scripted]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "… waiting for approval (awaiting_approval):" in said
    assert "plan initial.issue, understanding: x" in said
    assert "left 8 iterations" in said
    (command,) = re.findall(r"`stepflow (resume \S+ --approve [0-9a-f]+)`", said)
    return shlex.split(command)


def test_the_command_that_is_shown_goes_on_once(checkout: Path, capsys) -> None:
    approve = wait(checkout, capsys, by="write")
    assert main(approve) == 0
    said = capsys.readouterr().out
    assert "somebody at a terminal approved" in said
    assert "stepflow/fixer/issue-7" in git("branch", "--list", cwd=checkout)
    assert main(approve) == 1
    assert "it is over: completed" in capsys.readouterr().err


def test_another_digest_is_refused_and_a_rejection_ends_the_run(checkout: Path, capsys) -> None:
    resume, folder, flag, digest = wait(checkout, capsys, by="write")
    assert main([resume, folder, flag, digest[:-1]]) == 1
    assert "is not the digest of the plan" in capsys.readouterr().err
    assert main([resume, folder, "--reject", "too large"]) == 1
    assert f'somebody at a terminal rejected the plan before step "{STEP}": too large' in capsys.readouterr().out
    assert main([resume, folder, flag, digest]) == 1
    assert "it is over: refused" in capsys.readouterr().err
