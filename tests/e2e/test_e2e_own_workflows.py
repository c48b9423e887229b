"""Our own workflows that use the action as it stands here: `ci` as far as it is not `make`, and `stepflow`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.act_job import run_job
from tests.e2e.repository import BRANCH, dispatched, git, labeled
from tests.e2e.script import EVENT_CANARY
from tests.servers.messages_api import Answer, answers, calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.weekly, pytest.mark.timeout(900)]
SCENARIOS = ".agent/fixer/scenarios"


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
    scenarios = {path.stem for path in (release / SCENARIOS).glob("*.yaml")}
    assert scenarios
    assert [name for name in scenarios if name not in job.log] == []


@pytest.mark.parametrize(
    ("event_name", "event"),
    [
        ("issues", labeled("agent:fixer", secret=EVENT_CANARY)),
        ("workflow_dispatch", dispatched({"agent": "fixer", "issue": "7"}, secret=EVENT_CANARY)),
    ],
    ids=["label", "dispatch"],
)
def test_our_agent_works_on_an_issue_of_ours(
    new_world: Callable[[], World], release: Path, event_name: str, event: dict[str, Any]
) -> None:
    world = new_world()
    world.github.state.public = True
    world.use_project(release)
    job = world.run(said_in(release / SCENARIOS / "adds-an-editorconfig.yaml"), event, event_name=event_name, step="./")
    assert (job.exit_code, job.outputs["outcome"], job.outputs["issue"]) == (0, "completed", "7"), job.everything
    assert git(world.server, "diff", "--name-only", "main", BRANCH) == ".editorconfig"
    (pull,) = world.pulls()
    assert (pull["draft"], pull["title"]) == (True, "Tell editors how to indent")
    assert world.github.violations == []


def said_in(scenario: Path) -> list[Answer]:
    """The turns of a scenario, as the model's API would answer them."""
    return [
        answers(turn["output"]) if "output" in turn else calls(*(use for tool in turn["tools"] for use in tool.items()))
        for turn in yaml.safe_load(scenario.read_text())["turns"]
    ]
