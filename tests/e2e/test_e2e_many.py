"""Many issues: the reusable workflow, called as docs/how-to/recipes.md calls it, over three issues.

act plays GitHub's part: it calls the reusable workflow, makes the matrix out of the plan's output and hands the jobs
what they need. It has no artifact service here; see `run_jobs` for what stands in for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.repository import HERE, dispatched
from tests.e2e.script import ALL_SECRETS, EVENT_CANARY, fix_shortly, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.act_job import Job
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.weekly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def swept(new_world: Callable[[], World]) -> tuple[World, dict[str, Job]]:
    """One sweep over three issues with the label; for the last one the model does not answer."""
    world = new_world()
    issues = world.github.state.issues
    issues[7]["body"] += " This is issue 7."
    for number in (8, 9):
        world.github.state.add_issue(number, "A unit is ignored", f"This is issue {number}.", labels=["bug"])
    world.github.state.add_issue(10, "A pull request", "It has the label too.", labels=["bug"])
    issues[10]["pull_request"] = True
    world.github.state.add_issue(11, "A question", "It has another label.", labels=["question"])
    scripts = {7: fix_shortly(), 8: fix_shortly(), 9: [refuse("no credit")]}
    # The address of the model's server is the only thing that is not as the page shows it.
    caller = (HERE / "many.yml").read_text()
    caller = caller.replace("      agent: fixer\n", f'      agent: fixer\n      model: "base-url: {world.model.url}"\n')
    return world, world.run_many(scripts, caller, dispatched({}, secret=EVENT_CANARY))


def test_each_open_issue_with_the_label_gets_a_job_of_its_own(swept: tuple[World, dict[str, Job]]) -> None:
    _, jobs = swept
    # act numbers the jobs of a matrix behind their names.
    assert sorted(jobs) == ["gather", "issue 7-1", "issue 8-2", "issue 9-3", "plan"], next(
        iter(jobs.values())
    ).everything
    assert jobs["plan"].outputs["plan-issues"] == "[7,8,9]", jobs["plan"].everything
    outcomes = {name: (job.exit_code, job.outputs["outcome"]) for name, job in jobs.items() if name.startswith("issue")}
    assert outcomes == {
        "issue 7-1": (0, "completed"),
        "issue 8-2": (0, "completed"),
        "issue 9-3": (1, "model_failed"),
    }, "\n".join(job.everything for job in jobs.values())


def test_each_completed_issue_has_its_branch_and_its_pull_request(swept: tuple[World, dict[str, Job]]) -> None:
    world, _ = swept
    assert world.branches() == ["main", "stepflow/fixer/issue-7", "stepflow/fixer/issue-8"]
    assert sorted(pull["head"]["ref"] for pull in world.pulls()) == ["stepflow/fixer/issue-7", "stepflow/fixer/issue-8"]
    assert world.github.violations == []


def test_the_closing_job_makes_one_table_of_what_all_jobs_left(
    swept: tuple[World, dict[str, Job]], show: Callable[[str], None]
) -> None:
    _, jobs = swept
    show(f"sweep: {jobs['gather'].outputs['reason']}")
    gathered = json.loads(jobs["gather"].outputs["gathered"])
    wanted = [
        [7, "completed", jobs["issue 7-1"].outputs["pull-request-url"]],
        [8, "completed", jobs["issue 8-2"].outputs["pull-request-url"]],
        [9, "model_failed", ""],
    ]
    assert [[row["issue"], row["outcome"], row["pull_request_url"]] for row in gathered["issues"]] == wanted
    costs = [float(job.outputs["cost-usd"]) for name, job in jobs.items() if name.startswith("issue")]
    assert gathered["totals"]["cost_usd"] == pytest.approx(sum(costs), abs=1e-5)
    summary = jobs["gather"].summary
    assert summary.startswith("## ❌ 2 of 3 issues completed")
    assert [line.split(" | ")[0] for line in summary.splitlines() if line.startswith("| #")] == ["| #7", "| #8", "| #9"]


def test_the_plan_is_all_that_is_asked_of_github_before_the_first_turn(swept: tuple[World, dict[str, Job]]) -> None:
    world, _ = swept
    assert world.requests_before_each_turn[0] == 1
    assert world.github.requests[0].path.startswith("/repos/acme/widgets/issues?")


def test_no_secret_is_in_what_people_see_of_any_job(swept: tuple[World, dict[str, Job]]) -> None:
    world, jobs = swept
    seen = json.dumps([[job.log, job.summary, job.outputs] for job in jobs.values()]) + json.dumps(world.pulls())
    assert [secret for secret in ALL_SECRETS if secret in seen] == []
