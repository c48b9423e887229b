"""The whole action: a label is put on an issue, and what is on GitHub afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.repository import BRANCH, git, labeled
from tests.e2e.script import (
    ALL_SECRETS,
    EVENT_CANARY,
    fix_with_one_forgotten_commit,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.act_job import Job
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fixed(new_world: Callable[[], World], release: Path) -> tuple[World, Job]:
    """One run of the fixer, looked at from many sides, in an image that the runner builds by the Dockerfile."""
    world = new_world()
    world.release = release
    job = world.run(fix_with_one_forgotten_commit(), labeled("agent:fixer", secret=EVENT_CANARY))
    # What did not run leaves nothing behind either: without this, some of the tests below would be green for nothing.
    assert job.exit_code == 0, job.everything
    return world, job


def test_a_label_leads_to_a_completed_run(fixed: tuple[World, Job]) -> None:
    _, job = fixed
    wanted = {"outcome": "completed", "success": "true", "validated": "true", "agent": "fixer", "issue": "7"}
    shown = {name: job.outputs.get(name) for name in wanted}
    assert (job.exit_code, shown) == (0, wanted), job.everything


def test_every_output_is_set_and_tells_what_happened(fixed: tuple[World, Job]) -> None:
    world, job = fixed
    assert set(job.outputs) == world.declared_outputs()
    assert (job.outputs["final-step"], job.outputs["iterations"]) == ("closure.issue", "5")
    assert (job.outputs["branch"], job.outputs["commit"]) == (BRANCH, git(world.server, "rev-parse", BRANCH))
    assert job.outputs["pull-request"] == str(world.pulls()[0]["number"])
    assert job.outputs["pull-request-url"] == world.pulls()[0]["html_url"]
    assert job.outputs["comment-url"] == world.comments()[0]["html_url"]
    assert job.outputs["report"] == f"{job.outputs['run-folder']}/report.json"


def test_the_repair_arrives_on_a_branch_and_the_default_branch_stays(fixed: tuple[World, Job]) -> None:
    world, _ = fixed
    assert git(world.server, "for-each-ref", "--format=%(refname:short)", "refs/heads").split() == ["main", BRANCH]
    assert git(world.server, "diff", "--name-only", f"main..{BRANCH}") == "sizes.py"
    assert "int(text[:-1])" in git(world.server, "show", f"{BRANCH}:sizes.py")
    assert git(world.server, "rev-parse", "main") == git(world.checkout, "rev-parse", "HEAD")


def test_the_commit_is_the_bots_and_not_the_models(fixed: tuple[World, Job]) -> None:
    world, _ = fixed
    people = git(world.server, "log", "--format=%an %ae %cn %ce", f"main..{BRANCH}")
    assert people
    assert "Model" not in people
    assert "example.invalid" not in people


def test_a_draft_pull_request_is_opened_that_closes_the_issue_when_it_is_merged(fixed: tuple[World, Job]) -> None:
    world, _ = fixed
    (pull,) = world.pulls()
    assert (pull["head"]["ref"], pull["base"]["ref"], pull["draft"]) == (BRANCH, "main", True)
    assert pull["title"] == "Honor the unit of a size"
    assert "Closes #7" in pull["body"]
    assert world.issue()["state"] == "open"


def test_one_comment_is_written_in_which_the_model_mentions_nobody_and_closes_nothing(fixed: tuple[World, Job]) -> None:
    world, job = fixed
    (comment,) = world.comments()
    assert "The unit is honored now." in comment["body"]
    assert f"agent=fixer issue=7 commit={job.outputs['commit']}" in comment["body"]
    assert "@everyone" not in comment["body"]
    assert "fixes #1" not in comment["body"]


def test_labels_change_as_the_agent_declares_and_the_trigger_label_goes(fixed: tuple[World, Job]) -> None:
    world, _ = fixed
    assert world.labels() == {"ready-for-review"}


def test_a_closing_on_a_dirty_tree_is_sent_back_with_the_files_named(fixed: tuple[World, Job]) -> None:
    world, job = fixed
    fourth = world.prompts()[3]
    assert "changed and not committed" in fourth
    assert "- sizes.py" in fourth
    assert job.summary.count("git-clean") >= 2


def test_github_is_only_read_before_the_first_turn_of_the_model_and_not_asked_again_before_the_last(
    fixed: tuple[World, Job],
) -> None:
    world, _ = fixed
    assert world.only_read_before_the_first_turn(turns=len(fix_with_one_forgotten_commit()))


def test_every_request_is_one_that_github_describes(fixed: tuple[World, Job]) -> None:
    world, _ = fixed
    assert {"POST", "DELETE", "GET"} <= {request.method for request in world.github.requests}
    assert world.github.violations == []


def test_no_secret_of_the_action_comes_into_the_reach_of_the_model(fixed: tuple[World, Job]) -> None:
    world, job = fixed
    transcript = json.dumps(world.model_bodies())
    assert "hunted as uid" in transcript
    assert "hunted as uid 0" not in transcript
    assert "the engine's socket refused: PermissionError" in transcript
    assert [secret for secret in ALL_SECRETS if secret in transcript] == []
    assert "hijacked" not in json.dumps(job.outputs)


def test_no_secret_is_in_what_people_see(fixed: tuple[World, Job]) -> None:
    world, job = fixed
    seen = job.log + job.summary + json.dumps([job.outputs, world.comments(), world.pulls()])
    assert [secret for secret in ALL_SECRETS if secret in seen] == []


def test_a_run_that_went_well_annotates_nothing(fixed: tuple[World, Job]) -> None:
    _, job = fixed
    assert job.annotations == ()


def test_the_summary_draws_the_walked_path(fixed: tuple[World, Job]) -> None:
    _, job = fixed
    assert "```mermaid" in job.summary
    assert all(step in job.summary for step in ("initial.issue", "continuation.issue", "closure.issue"))
