"""Our own workflow `ci`, as far as it is not `make`: our agents, rehearsed by the action as it stands here.

Takes: the release. Gives: nothing. May touch: the Docker engine, temporary folders.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.act_job import run_job
from tests.e2e.repository import git

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_our_agents_rehearse_green_in_the_workflow_that_we_ship(image: str, release: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(release, checkout)
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Begin")
    # act reads the repository's name from here; nothing is ever fetched from that address.
    git(checkout, "remote", "add", "origin", "https://github.com/acme/stepflow-action.git")
    job = run_job(
        checkout,
        event_name="push",
        event={"ref": "refs/heads/main", "sender": {"login": "bob"}},
        release=release,
        secrets={},
        scratch=tmp_path / "act",
        step="./",
        options=("--workflows", str(checkout / ".github/workflows/ci.yml"), "--job", "rehearse"),
    )
    assert (job.exit_code, job.outputs["outcome"]) == (0, "completed"), job.everything
    scenarios = {path.stem for path in (release / ".agent/fixer/scenarios").glob("*.yaml")}
    assert scenarios
    assert [name for name in scenarios if name not in job.log] == []
