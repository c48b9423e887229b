"""`mode: preflight`: the table in log and summary, the outputs, and not one write."""

from __future__ import annotations

import pytest

from tests.world import BRANCH, READ_TOKEN, World, label_event

TOOLS = "Bash, Read, Write, Edit, Glob, Grep"


def test_all_rows_are_in_log_and_summary_and_nothing_is_asked_or_written(world: World) -> None:
    done = world.run([], mode="preflight", read_token="")
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (0, "completed", "true"), done.log
    assert (done.outputs["agent"], done.outputs["issue"], done.outputs["run-folder"]) == ("fixer", "7", "")
    assert "✓ ok       model" in done.log
    assert done.summary.startswith("## ✅ fixer: preflight\n")
    assert "| sandbox: environment | ✅ ok | starts empty |" in done.summary
    assert "| Actions may create pull requests | ❔ unknown |" in done.summary
    assert f"| tools | ✅ ok | {TOOLS} |" in done.summary
    assert "| effort" not in done.summary
    assert {request.method for request in world.model.requests} == {"GET"}
    assert world.requests_made() == 0
    assert "| git server | ❔ unknown |" in done.summary
    assert not (world.runner.folder / "temp" / "stepflow").exists()


@pytest.mark.whole
def test_tools_and_effort_that_differ_are_a_row_for_each_step(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="medium"))
    first = {"tools": ["Read", "Grep"], "model": "haiku", "effort": "low"}
    world.edit("steps_registry.json", lambda it: it["steps"]["initial.issue"].update(first))
    world.edit("steps_registry.json", lambda it: it["steps"]["closure.issue"].update(tools=[]))
    rows = world.run([], mode="preflight").summary.splitlines()
    assert [row for row in rows if row.startswith(("| tools", "| effort"))] == [
        "| tools: initial.issue | ✅ ok | Read, Grep |",
        f"| tools: continuation.issue | ✅ ok | {TOOLS} |",
        "| tools: closure.issue | ✅ ok | none |",
        "| effort: initial.issue | ✅ ok | claude-haiku-5-5: low |",
        "| effort: continuation.issue | ✅ ok | claude-opus-5-5: medium |",
        "| effort: closure.issue | ✅ ok | claude-opus-5-5: medium |",
    ]


@pytest.fixture
def readable(world: World) -> World:
    """A world with a read token."""
    world.github.read_token = world.runner.inputs["read-token"] = READ_TOKEN
    return world


@pytest.mark.whole
def test_with_a_read_token_actor_labels_and_rules_are_looked_up(readable: World) -> None:
    readable.github.state.labels.add("ready-for-review")
    readable.github.state.rules["main"] = ["deletion", "required_signatures"]
    done = readable.run([], mode="preflight")
    assert done.exit_code == 0, done.log
    assert "| actor | ✅ ok | bob has \\`write\\` or more |" in done.summary
    assert "| labels | ✅ ok | there: agent:fixer" in done.summary
    assert "a rule of the default branch requires signed ones: set `commits: verified`" in done.log
    assert readable.wrote_nothing()


@pytest.mark.whole
def test_a_label_that_is_not_there_is_a_warning(readable: World) -> None:
    done = readable.run([], mode="preflight", trigger_labels="fix-it", agent="fixer")
    assert done.exit_code == 0, done.log
    assert "fix-it" in next(line for line in done.log.splitlines() if line.startswith("! warning  labels"))


@pytest.mark.whole
@pytest.mark.parametrize("commits", ["git", "verified"])
def test_a_rule_of_the_agents_branch_demands_signed_commits(readable: World, commits: str) -> None:
    readable.github.state.rules[BRANCH] = ["required_signatures"]
    done = readable.run([], mode="preflight", commits=commits)
    assert done.exit_code == 0, done.log
    assert (f"a rule of {BRANCH} requires signed ones: set `commits: verified`" in done.log) is (commits == "git")


@pytest.mark.whole
def test_an_actor_without_write_access_fails_as_a_run_would(readable: World) -> None:
    readable.github.state.permissions["bob"] = "triage"
    done = readable.run([], mode="preflight")
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "'triage'" in done.outputs["reason"]
    assert "| actor | ❌ failed |" in done.summary
    assert [line for line in done.annotations if line.startswith("::error")]


@pytest.mark.whole
def test_the_input_agent_is_enough_on_any_event(world: World) -> None:
    event = {"action": "opened", "pull_request": {"number": 3}, "repository": {"full_name": "o/r"}}
    done = world.runner.run(event, name="pull_request", mode="preflight", agent="fixer")
    assert done.exit_code == 0, done.log
    skipped = world.run([], label_event() | {"label": {"name": "bug"}}, mode="preflight")
    assert (skipped.exit_code, skipped.outputs["outcome"]) == (0, "skipped")


@pytest.mark.whole
def test_a_wrong_input_is_a_row_and_ends_with_two(world: World) -> None:
    done = world.run([], mode="preflight", pass_env="PATH")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "✗ failed   inputs" in done.log
    assert "pass-env" in done.outputs["reason"]


@pytest.mark.whole
def test_a_preflight_says_where_to_look_when_the_rules_cannot_be_read(readable: World) -> None:
    readable.github.fail("GET", "/rules/branches/", 404)
    done = readable.run([], mode="preflight")
    assert done.exit_code == 0, done.log
    assert "/o/r/settings/rules" in done.log
