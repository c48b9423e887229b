"""`mode: preflight`: the table in log and summary, the outputs, and not one write."""

from __future__ import annotations

import pytest

from tests.world import BRANCH, World, label_event

READ_TOKEN = "github_pat_readonly0123456789"


def test_all_rows_are_in_log_and_summary_and_nothing_is_asked_or_written(world: World) -> None:
    done = world.run([], mode="preflight")
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (0, "completed", "true"), done.log
    assert (done.outputs["agent"], done.outputs["issue"], done.outputs["run-folder"]) == ("fixer", "7", "")
    assert "✓ ok       model" in done.log
    assert done.summary.startswith("## ✅ fixer: preflight\n")
    assert "| sandbox: environment | ✅ ok | built from nothing |" in done.summary
    assert "| Actions may create pull requests | ❔ unknown |" in done.summary
    assert {request.method for request in world.model.requests} == {"GET"}
    assert world.github.requests == []
    assert not any(request.path.endswith("/git-receive-pack") for request in world.git_server.requests)
    assert not (world.runner.folder / "temp" / "stepflow").exists()


def test_what_the_model_may_call_is_one_row_or_one_for_each_step(world: World) -> None:
    usual = r"Bash, Read, Write, Edit, Glob, Grep"
    assert f"| tools | ✅ ok | {usual} |" in world.run([], mode="preflight").summary
    world.edit("steps_registry.json", lambda it: it["steps"]["initial.issue"].update(tools=["Read", "Grep"]))
    world.edit("steps_registry.json", lambda it: it["steps"]["closure.issue"].update(tools=[]))
    rows = world.run([], mode="preflight").summary.splitlines()
    assert [row for row in rows if row.startswith("| tools")] == [
        "| tools: initial.issue | ✅ ok | Read, Grep |",
        f"| tools: continuation.issue | ✅ ok | {usual} |",
        "| tools: closure.issue | ✅ ok | none |",
    ]


def test_the_effort_stands_beside_the_model_where_the_agent_says_it(world: World) -> None:
    assert "| effort" not in world.run([], mode="preflight").summary
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="medium"))
    usual = "claude-opus-5-5: medium"
    assert f"| effort | ✅ ok | {usual} |" in world.run([], mode="preflight").summary
    world.edit("steps_registry.json", lambda it: it["steps"]["initial.issue"].update(model="haiku", effort="low"))
    rows = world.run([], mode="preflight").summary.splitlines()
    assert [row for row in rows if row.startswith("| effort")] == [
        "| effort: initial.issue | ✅ ok | claude-haiku-5-5: low |",
        f"| effort: continuation.issue | ✅ ok | {usual} |",
        f"| effort: closure.issue | ✅ ok | {usual} |",
    ]


def test_with_a_read_token_actor_and_labels_are_looked_up(world: World) -> None:
    world.github.read_token = READ_TOKEN
    world.github.state.labels.add("ready-for-review")
    done = world.run([], mode="preflight", read_token=READ_TOKEN)
    assert done.exit_code == 0, done.log
    assert "| actor | ✅ ok | bob has \\`write\\` or more |" in done.summary
    assert "| labels | ✅ ok | there: agent:fixer" in done.summary
    assert world.wrote_nothing()


def test_an_actor_without_write_access_fails_as_a_run_would(world: World) -> None:
    world.github.read_token = READ_TOKEN
    world.github.state.permissions["bob"] = "triage"
    done = world.run([], mode="preflight", read_token=READ_TOKEN)
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "'triage'" in done.outputs["reason"]
    assert "| actor | ❌ failed |" in done.summary
    assert [line for line in done.annotations if line.startswith("::error")]


def test_a_label_that_is_not_there_is_a_warning(world: World) -> None:
    world.github.read_token = READ_TOKEN
    done = world.run([], mode="preflight", read_token=READ_TOKEN, trigger_labels="fix-it", agent="fixer")
    assert done.exit_code == 0, done.log
    assert "fix-it" in next(line for line in done.log.splitlines() if line.startswith("! warning  labels"))


def test_the_input_agent_is_enough_on_any_event(world: World) -> None:
    event = {"action": "opened", "pull_request": {"number": 3}, "repository": {"full_name": "o/r"}}
    done = world.runner.run(event, name="pull_request", mode="preflight", agent="fixer")
    assert done.exit_code == 0, done.log
    skipped = world.run([], label_event() | {"label": {"name": "bug"}}, mode="preflight")
    assert (skipped.exit_code, skipped.outputs["outcome"]) == (0, "skipped")


def test_a_wrong_input_is_a_row_and_ends_with_two(world: World) -> None:
    done = world.run([], mode="preflight", pass_env="PATH")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "✗ failed   inputs" in done.log
    assert "pass-env" in done.outputs["reason"]


@pytest.mark.parametrize("where", ["main", BRANCH])
def test_a_preflight_warns_where_a_rule_demands_signed_commits(world: World, where: str) -> None:
    world.github.read_token = READ_TOKEN
    world.github.state.rules[where] = ["deletion", "required_signatures"]
    warned = world.run([], mode="preflight", read_token=READ_TOKEN)
    named = "the default branch" if where == "main" else BRANCH
    assert f"a rule of {named} demands signed ones: set `commits: verified`" in warned.log
    quiet = world.run([], mode="preflight", read_token=READ_TOKEN, commits="verified")
    assert (warned.exit_code, quiet.exit_code) == (0, 0)
    assert "demands signed ones" not in quiet.log


def test_a_preflight_says_where_to_look_when_the_rules_cannot_be_read(world: World) -> None:
    world.github.read_token = READ_TOKEN
    world.github.fail("GET", "/rules/branches/", 404)
    done = world.run([], mode="preflight", read_token=READ_TOKEN)
    assert done.exit_code == 0, done.log
    assert "/o/r/settings/rules" in done.log
