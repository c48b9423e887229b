"""A hostile test in a pull request from a fork, under `mode: prove` without a secret: it changes no verdict of another
part, and leaves nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.prove_cases import COMMAND, FAKES
from tests.docs.page import DOCS, named_block
from tests.e2e.repository import git, pull_request, replace_workflow
from tests.e2e.script import ALL_SECRETS, EVENT_CANARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(900)]

HOSTILE = Path(__file__).parent / "exploits" / "hostile_test.txt"
#: What a later step of the job sees.
LATER = """\
      - if: always()
        run: ls -A . tests /tmp; sha256sum durations.py tests/*.py
"""


def commit(folder: Path, files: Mapping[str, str | None], subject: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text or "")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", subject)
    return git(folder, "rev-parse", "HEAD")


def test_a_hostile_test_from_a_fork_changes_no_other_verdict_and_leaves_nothing(
    new_world: Callable[[], World],
) -> None:
    world, case = new_world(), FAKES["more than the tests hold"]
    folder = world.checkout
    workflow = named_block("prove workflow", DOCS / "how-to/prove.md")
    workflow = workflow.replace("pytest -q {tests}", COMMAND).replace("          setup: pip install pytest -e .\n", "")
    replace_workflow(folder, workflow + LATER)
    base = commit(folder, case.base, "base")
    git(folder, "switch", "--quiet", "--create", "fix")
    head = commit(folder, {**case.change, "tests/test_hostile.py": HOSTILE.read_text()}, "change")
    git(folder, "switch", "--quiet", "main")
    git(folder, "merge", "--quiet", "--no-ff", "fix")
    event = pull_request(secret=EVENT_CANARY)
    event["pull_request"]["base"] = {"ref": "main", "sha": base, "repo": {"full_name": "acme/widgets"}}
    event["pull_request"]["head"] = {"ref": "fix", "sha": head, "repo": {"full_name": "stranger/widgets"}}
    job = world.run([], event, event_name="pull_request")
    outputs = job.outputs
    assert (job.exit_code, outputs["outcome"], outputs["proven"]) == (0, "completed", "true"), job.everything
    assert "1 of 2 changes is held by a test; durations.py:9 is not." in outputs["reason"], job.everything
    assert job.summary.startswith("## Proof of fix\n\n✅ **Proven.** ")
    assert "⚠️ no test fails without it" in job.summary
    assert ("warning", "No test fails without this.") in job.annotations
    # What it printed is the output of the trial without the change.
    assert "FOUND []" in job.summary, job.summary
    assert "WROTE []" in job.summary, job.summary
    assert "FILLED" not in job.summary
    assert [secret for secret in ALL_SECRETS if secret in job.log + job.summary + str(outputs)] == []
    for name in ("durations.py", "tests/test_durations.py", "tests/test_hostile.py"):
        assert f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" in job.everything
    assert "planted" not in job.everything.rpartition("ls -A")[2]
    assert "spoiled" not in job.everything.rpartition("ls -A")[2]
    assert (world.model_bodies(), world.requests_made()) == ([], 0)
