"""`mode: rehearse`: every agent's scenarios on a pull request, without a key; what a run records is green at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.checkout import git
from tests.cli.test_cli_rehearse import DIFFERENT, EXPECT, TURNS, put
from tests.servers.messages_api import Reply
from tests.world import COMMIT, World, answer, bash, label_event, losing_access, solve, understood

PULL = {"action": "opened", "pull_request": {"number": 3}, "repository": {"full_name": "o/r"}}
NO_KEY = {"anthropic_api_key": "", "github_token": ""}


@pytest.mark.whole
def test_a_pull_request_rehearses_without_a_key_and_nothing_is_asked_or_written(world: World) -> None:
    put(world.checkout)
    before = git("status", "--porcelain", cwd=world.checkout)
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (0, "completed", "true"), done.log
    assert done.annotations == []
    # Each scenario has a report of its own.
    assert done.outputs["report"] == ""
    assert [path.name for path in done.folder.glob("*/*/report.json")] == ["report.json"]
    assert done.summary.startswith("## ✅ Rehearsal: 1 scenario, as expected\n")
    assert "| <code>fixer</code> | greets | ✅ completed | 3 |" in done.summary
    assert world.model.bodies == []
    assert world.wrote_nothing()
    assert git("status", "--porcelain", cwd=world.checkout) == before


@pytest.mark.whole
def test_what_differs_fails_the_job_with_an_annotation_on_the_scenario(world: World) -> None:
    put(world.checkout, "differs", TURNS + DIFFERENT)
    put(world.checkout)
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (1, "validation_failed", "false")
    assert done.outputs["reason"] == "Before the run: rehearsed 2 scenarios, 1 not as expected: fixer/differs"
    (line,) = done.annotations
    assert line.startswith("::error file=.agent/fixer/scenarios/differs.yaml,line=")
    assert "<details><summary>fixer/differs: outcome, steps, validators, effects, file greeting.txt" in done.summary
    assert "Iteration 3 of 9 · closure.issue (closure)" in done.log
    assert (done.folder / "fixer/differs/journal.jsonl").is_file()


@pytest.mark.whole
def test_a_job_that_could_play_no_scenario_fails_and_says_why(world: World) -> None:
    put(world.checkout, text=f"base_checks: require\n{TURNS}{EXPECT}")
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", base_checks="tell", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (1, "base_failed", "false"), done.log
    assert "1 scenario, none played: a check failed before the run" in done.outputs["reason"]
    assert done.summary.startswith("## ❌ Rehearsal: 1 scenario, none played: ")
    assert "| <code>fixer</code> | greets | ⚠️ base_failed |" in done.summary


@pytest.mark.whole
def test_an_agent_with_errors_is_annotated_as_by_validate(world: World) -> None:
    put(world.checkout)
    world.edit("steps_registry.json", lambda registry: registry["steps"].pop("closure.issue"))
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition")
    assert any("file=.agent/fixer/steps_registry.json,line=" in line for line in done.annotations)


@pytest.mark.whole
def test_no_scenario_anywhere_is_a_wrong_input(world: World) -> None:
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "has a scenario" in done.outputs["reason"]


@pytest.mark.whole
def test_a_credential_of_the_checkout_is_in_no_copy(world: World) -> None:
    token = "ghs_tokenofthecheckout0123456789"
    git("config", "http.https://github.com/.extraheader", f"AUTHORIZATION: basic {token}", cwd=world.checkout)
    put(
        world.checkout,
        text=TURNS.replace('bash: { command: "', 'bash: { command: "cat .git/config > config.txt; ') + EXPECT,
    )
    config = (world.checkout / ".git/config").read_bytes()
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    journal = next(done.folder.rglob("journal.jsonl")).read_text()
    assert token not in journal + done.summary
    assert (world.checkout / ".git/config").read_bytes() == config


@pytest.mark.whole
def test_a_recorded_run_rehearses_green_at_once_though_the_model_wrote_full_paths(world: World) -> None:
    """Its workspace is elsewhere by then, and so it must not lead to the one of the run."""
    named: list[str] = []

    def full_paths() -> Iterator[Reply]:
        yield understood()
        yield bash("pwd")
        root = world.model.bodies[-1]["messages"][-1]["content"][0]["content"].strip()
        named.append(root)
        yield bash(f"mkdir -p sub && cd sub && echo 'hello, world' > {root}/greeting.txt")
        yield bash(f"cd {root} && {COMMIT}; grep -c world '{root}/greeting.txt'")
        yield answer("continuation.issue", "handoff", summary="the world is greeted")
        yield answer("closure.issue", "closing", comment="The world is greeted now.")

    event = label_event(title="世界に挨拶する 🌍", body="رحّب بالعالم")
    world.record()
    done = world.run(full_paths(), event)
    assert done.outputs["outcome"] == "completed", done.log
    recorded = (done.folder / "recorded.yaml").read_text(encoding="utf-8")
    assert named[0].startswith("/")
    assert named[0] not in recorded
    assert yaml.safe_load(recorded)["expect"] == {
        "outcome": "completed",
        "steps": ["initial.issue", "continuation.issue", "closure.issue"],
        "validators": {"git-clean": ["pass"], "greeting": ["pass"]},
    }
    put(world.checkout, "recorded", recorded)
    again = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert again.exit_code == 0, again.log
    assert git("status", "--porcelain", cwd=world.checkout) == "?? .agent/fixer/scenarios/\n"


@pytest.mark.whole
def test_a_recording_without_an_end_says_so_and_expects_nothing(world: World) -> None:
    world.record()
    done = world.run(solve()[:2])
    assert done.outputs["outcome"] == "model_failed"
    recorded = (done.folder / "recorded.yaml").read_text(encoding="utf-8")
    assert recorded.startswith("# This run did not reach an end.")
    assert "expect" not in yaml.safe_load(recorded)


@pytest.mark.whole
def test_what_github_refused_is_recorded_as_completed(world: World) -> None:
    world.record()
    done = world.run(losing_access(world, solve()))
    assert done.outputs["outcome"] == "refused"
    recorded = (done.folder / "recorded.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(recorded)["expect"]["outcome"] == "completed"
