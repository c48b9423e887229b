"""Every input of the action does what it says, seen from outside: environ in, exit code, outputs and servers out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from stepflow.action.main import act
from tests.checkout import Invocation, git
from tests.world import MODEL_KEY, TOKEN, World, answer, bash, label_event, solve, understood

pytestmark = pytest.mark.whole


def journal(done: Invocation) -> list[dict]:
    """The events of a run."""
    return [json.loads(line) for line in (done.folder / "journal.jsonl").read_text().splitlines()]


def messages(done: Invocation, level: str) -> list[str]:
    """What was noted at one level."""
    return [event["message"] for event in journal(done) if event["event"] == "noted" and event["level"] == level]


def refused(done: Invocation, *words: str) -> bool:
    """Exit 2 with these words in the reason."""
    return done.exit_code == 2 and all(word in done.outputs["reason"] for word in words)


# limits


def test_the_limit_of_minutes_ends_the_run_before_the_next_turn(world: World) -> None:
    replies = iter(solve())

    def slow(_body: dict):
        world.clock.sleep(61)
        return next(replies)

    done = world.run(slow, limits={"minutes": 1})
    assert (done.outputs["outcome"], done.exit_code) == ("timed_out", 1)


# the model


def test_the_model_and_the_address_are_those_of_the_inputs(world: World) -> None:
    world.run([], model={"name": "haiku"})
    world.run([])
    assert ["haiku" in world.model.bodies[number]["model"] for number in (0, -1)] == [True, False]


def test_without_debug_logging_a_run_is_not_recorded_and_its_log_stays_short(world: World) -> None:
    done = world.run(solve())
    assert not (done.folder / "recorded.yaml").exists()
    assert "in full:" not in done.log


def test_with_debug_logging_a_run_is_recorded_and_can_be_played_again(world: World) -> None:
    world.record()
    done = world.run(solve())
    recorded = done.folder / "recorded.yaml"
    assert yaml.safe_load(recorded.read_text())["expect"]["outcome"] == "completed"
    again = world.runner.run(label_event(), scenario=str(recorded), boundary="dry-run")
    assert (again.outputs["outcome"], again.outputs["cost-usd"]) == ("completed", "0.000000"), again.log


# GitHub


def github_settings(agent: dict) -> dict:
    return agent["runner"].setdefault("integrations", {}).setdefault("github", {})


def pull_requests(agent: dict) -> dict:
    return github_settings(agent).setdefault("pullRequest", {})


def test_the_agent_says_where_its_pull_requests_go_and_the_commits_start_at_head(world: World) -> None:
    git("push", "-q", str(world.served), "main:develop", cwd=world.checkout)
    world.edit("agent.json", lambda agent: pull_requests(agent).update(base="develop"))
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    assert world.pulls()[0]["base"] == "develop"
    assert journal(done)[0]["base_commit"] == git("rev-parse", "HEAD", cwd=world.checkout).strip()


def test_the_agent_says_what_its_branches_begin_with_and_whether_they_are_drafts(world: World) -> None:
    world.edit("agent.json", lambda agent: pull_requests(agent).update(branchPrefix="bot/", draft=False))
    done = world.run(solve())
    assert done.outputs["branch"] == "bot/fixer/issue-7"
    assert "bot/fixer/issue-7" in world.branches()
    assert world.pulls()[0]["draft"] is False


def test_links_lead_only_to_allowed_hosts(world: World) -> None:
    text = "See [docs](https://docs.example.org/a) and [evil](https://evil.example.net/b)."
    script = [*solve()[:-1], answer("closure.issue", "closing", comment=text)]
    world.edit("agent.json", lambda agent: github_settings(agent).update(allowedLinkHosts=["docs.example.org"]))
    world.run(script)
    assert "[docs](https://docs.example.org/a)" in world.comments()[0]
    assert "](https://evil.example.net" not in world.comments()[0]


def test_trigger_labels_name_the_labels_that_start_agents_and_that_the_boundary_never_adds(world: World) -> None:
    event = label_event()
    event["label"] = {"name": "bot/fixer"}
    wishes = {"closure_action": "label-only", "issue": {"labels": {"add": ["bot/other", "done"]}}}
    world.github.state.issues[7]["labels"].append("bot/fixer")
    # The agent is asked once to choose others, and insists.
    insists = answer("closure.issue", "closing", **wishes)
    done = world.run([*solve()[:-1], insists, solve()[-2], insists], event, start={"labels": "bot/*"})
    assert done.outputs["outcome"] == "completed", done.log
    assert "done" in world.labels()
    assert not {"bot/other", "bot/fixer"} & world.labels()


def test_with_a_lone_star_a_label_is_the_bare_name_of_an_agent(world: World) -> None:
    event = label_event()
    event["label"] = {"name": "fixer"}
    assert world.run(solve(), event, start={"labels": "*"}).outputs["outcome"] == "completed"
    event["label"] = {"name": "bug"}
    done = world.run(solve(), event, start={"labels": "*"})
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped")


def test_a_label_without_a_star_starts_the_agent_of_the_input_and_comes_off_at_the_end(world: World) -> None:
    event = label_event()
    event["label"] = {"name": "please-fix"}
    world.github.state.issues[7]["labels"].append("please-fix")
    done = world.run(solve(), event, start={"labels": "agent:*\nplease-fix"}, agent="fixer")
    assert done.outputs["outcome"] == "completed", done.log
    assert "please-fix" not in world.labels()


def test_a_bot_starts_nothing_unless_it_is_named(world: World) -> None:
    event = label_event()
    event["sender"] = {"login": "helper[bot]", "type": "Bot"}
    assert world.run(solve(), event).outputs["outcome"] == "skipped"
    assert world.run(solve(), event, start={"bots": "helper[bot]"}).outputs["outcome"] == "completed"


# the sandbox


def test_best_effort_warns_of_every_layer_that_is_missing(world: World) -> None:
    done = world.run(solve(), isolation="best-effort")
    isolation = journal(done)[0]["isolation"]
    warned = [message for message in messages(done, "warning") if message.startswith("[Isolation] ")]
    assert any(message.startswith("[Isolation] uid:") for message in warned) == ("root without" in isolation["uid"])
    assert all(message.split()[1].rstrip(":") in isolation for message in warned)


def test_setup_runs_before_the_flow_and_its_output_is_folded(world: World) -> None:
    done = world.run(solve(), setup="echo prepared > ~/prepared-by-setup\necho setting up")
    assert done.outputs["outcome"] == "completed", done.log
    lines = done.log.splitlines()
    at = lines.index("::group::setup ended with exit code 0")
    assert lines[at + 1].strip() == "setting up"
    assert lines[at + 2] == "::endgroup::"


def test_a_setup_that_fails_ends_before_a_token_is_spent(world: World) -> None:
    assert refused(world.run(solve(), setup="echo no mirror\nexit 7"), "exit code 7", "no mirror", "setup")
    assert world.model.bodies == []


@pytest.mark.parametrize("packages", ["--purge", "a;b"])
def test_a_package_name_that_is_none_is_refused(world: World, packages: str) -> None:
    assert refused(world.run(solve(), apt_packages=packages), "apt-packages")


def test_pass_env_shows_tools_the_variables_it_names_and_no_others(world: World) -> None:
    world.runner.environ = {"MY_MODE": "strict", "MY_OTHER": "hidden"}
    done = world.run([bash("echo mode=$MY_MODE other=$MY_OTHER"), *solve()], pass_env="MY_MODE, MY_UNSET")
    assert done.outputs["outcome"] == "completed", done.log
    assert "mode=strict other=\\n" in json.dumps(world.model.bodies)
    assert any("MY_UNSET is not set" in message for message in messages(done, "warning"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INPUT_GITHUB-TOKEN", ""),
        ("LD_PRELOAD", "x.so"),
        ("PATH", "/evil"),
        ("HARMLESS", MODEL_KEY),
        ("URL", f"https://x:{TOKEN}@example.org"),
    ],
)
def test_a_secret_or_a_forbidden_variable_is_refused_before_the_run(world: World, name: str, value: str) -> None:
    if value:
        world.runner.environ = {name: value}
    assert refused(world.run(solve(), pass_env=name), "pass-env", name)
    assert world.model.bodies == []


# the run


def test_working_directory_is_a_folder_of_the_workspace(world: World) -> None:
    workspace = world.checkout.parent
    world.runner.environ = {"GITHUB_WORKSPACE": str(workspace)}
    done = world.run(solve(), working_directory="checkout")
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.parametrize("path", ["..", "link"])
def test_working_directory_stays_inside_the_workspace(world: World, path: str) -> None:
    (world.checkout / "link").symlink_to("/usr")
    assert refused(world.run(solve(), working_directory=path), "outside the workspace", "working-directory")
    done = world.runner.run({}, name="push", mode="validate", working_directory=path)
    assert done.exit_code == 2


def test_run_folder_and_host_name_the_same_place_on_both_sides(world: World) -> None:
    temp = world.runner.folder / "temp"
    done = world.run(solve(), run_folder=str(temp / "mine"), host="host=/home/runner/work/_temp")
    assert done.outputs["run-folder"] == "/home/runner/work/_temp/mine"
    assert done.outputs["report"] == "/home/runner/work/_temp/mine/report.json"
    assert json.loads((temp / "mine" / "report.json").read_text())["outcome"] == "completed"


def test_a_run_folder_with_a_run_that_is_over_is_moved_aside_and_a_new_run_begins(world: World) -> None:
    folder = world.runner.folder / "mine"
    first = world.run(solve(), run_folder=str(folder))
    assert first.outputs["outcome"] == "completed"
    before = (folder / "journal.jsonl").read_bytes()
    run_id = json.loads(before.splitlines()[0])["run_id"]
    world.check_out_again()
    again = world.run([understood(), answer("continuation.issue", "abort")], run_folder=str(folder))
    assert again.outputs["outcome"] == "aborted"
    assert (folder.with_name(f"mine-{run_id}") / "journal.jsonl").read_bytes() == before
    assert [line for line in again.annotations if "cannot continue: it is over: completed" in line]
    assert json.loads((folder / "report.json").read_text())["run_id"] != run_id


def test_a_run_folder_inside_the_repository_is_refused(world: World) -> None:
    done = world.run(solve(), run_folder=str(world.checkout / "run"))
    assert refused(done, "inside the repository", "run-folder")
    assert not (world.checkout / "run").exists()


def test_a_place_for_the_run_folder_that_cannot_be_written_is_a_clear_error(world: World) -> None:
    (world.runner.folder / "file").write_text("")
    world.runner.environ = {"RUNNER_TEMP": str(world.runner.folder / "file")}
    assert refused(world.run(solve()), "cannot be made", "RUNNER_TEMP")
    assert world.model.bodies == []


def test_debug_logging_of_the_runner_shows_prompts_and_answers_in_full(world: World) -> None:
    world.runner.environ = {"RUNNER_DEBUG": "1"}
    long = f"::error::{'every word counts ' * 40}"
    done = world.run([answer("initial.issue", "next", understanding=long), *solve()[1:]])
    text = "".join(line.strip().removeprefix("│ ") for line in done.log.splitlines())
    assert "system prompt, in full:" in done.log
    assert text.count("every word counts") >= 40
    assert not any(line.startswith("::error::") for line in done.log.splitlines())


def test_allow_spec_violations_lets_a_gate_fall_back(world: World) -> None:
    def lenient(registry: dict) -> None:
        registry["steps"]["initial.issue"]["structuredGate"].update(failFast=False, fallbackIntent="next")

    world.edit("steps_registry.json", lenient)
    done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition")
    assert any("SF328" in line for line in done.annotations)
    done = world.run(solve(), allow="spec-violations")
    assert done.outputs["outcome"] == "completed", done.log


def test_a_run_without_any_variable_of_github_works(world: World, tmp_path: Path) -> None:
    """A local runner that knows only the workspace."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "issue: {number: 7, title: T, body: B}\nturns:\n"
        "  - output: {stepId: initial.issue, next_action: {action: abort, reason: enough}, understanding: x}\n"
    )
    given = {
        "agent": "fixer",
        "scenario": str(scenario),
        "boundary": "dry-run",
        "isolation": "best-effort",
        "run-folder": str(tmp_path / "run"),
    }
    environ = {f"INPUT_{name.upper()}": value for name, value in given.items()}
    stdout = io.StringIO()
    assert act({**environ, "GITHUB_WORKSPACE": str(world.checkout)}, stdout) == 1
    assert "aborted" in stdout.getvalue()
    assert json.loads((tmp_path / "run" / "report.json").read_text())["outcome"] == "aborted"


def test_files_of_the_runner_that_cannot_be_written_are_only_a_warning(world: World) -> None:
    world.runner.environ = {"GITHUB_OUTPUT": "/nowhere/output", "GITHUB_STEP_SUMMARY": "/nowhere/summary"}
    done = world.run(solve())
    assert done.exit_code == 0
    warnings = [line for line in done.annotations if line.startswith("::warning")]
    assert len([line for line in warnings if "/nowhere/" in line]) == 2


def test_an_agent_with_a_verdict_of_its_own_code_is_refused_and_the_code_never_runs(world: World) -> None:
    (world.checkout / ".agent" / "fixer" / "own.py").write_text("raise RuntimeError('the code was loaded')\n")
    git("add", "--all", cwd=world.checkout)
    verdict = {"type": "meta:custom", "config": {"handlerPath": "own.py"}}
    world.edit("agent.json", lambda it: it["runner"].update(verdict=verdict))
    done = world.run(solve())
    assert done.outputs["outcome"] == "invalid_definition", done.log
    assert "Let a validator of the closing step run that code" in done.log
    assert "the code was loaded" not in done.log
