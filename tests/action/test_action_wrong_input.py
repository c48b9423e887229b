"""Wrong input ends with one clear message, exit 2 and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkout import DEMO, Invocation, Runner, git, labeled, make_checkout
from tests.readable import stumbles

SCRIPTED = {
    "scenario": str(DEMO / "scenario.yaml"),
    "boundary": "dry-run",
    "isolation": "best-effort",
}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on the demo's repository with a scripted model."""
    folder = tmp_path / "runner"
    folder.mkdir()
    return Runner(checkout=make_checkout(tmp_path / "checkout"), folder=folder, inputs=dict(SCRIPTED))


def assert_refused(done: Invocation, runner: Runner, *words: str) -> None:
    """Exit 2, outputs set, one error that holds the words, and a checkout that nobody touched."""
    assert done.exit_code == 2, done.log
    is_rule = any(word.startswith("SF") for word in words)
    wanted = "invalid_definition" if is_rule else "misconfigured"
    assert (done.outputs["outcome"], done.outputs["success"]) == (wanted, "false")
    errors = [line for line in done.annotations if line.startswith("::error")]
    assert any(all(word in line for word in words) for line in errors), done.log
    assert [fault for line in errors for fault in stumbles(line)] == []
    assert not (runner.folder / "temp").exists()
    assert "❌" in done.summary
    assert "0 iterations" not in done.summary


def registry(runner: Runner) -> Path:
    return runner.checkout / ".agent" / "fixer" / "steps_registry.json"


def edit(path: Path, change) -> None:
    """Change a JSON file of the checkout."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))


def test_an_unknown_agent_is_named_with_those_that_exist(runner: Runner) -> None:
    assert_refused(runner.run(labeled("agent:fixr")), runner, "SF101", "fixr", "fixer")


@pytest.mark.parametrize("name", ["../x", "/etc", "a b", "fixer!"])
def test_an_agents_name_that_is_a_path_is_refused(runner: Runner, name: str) -> None:
    assert_refused(runner.run(labeled(f"agent:{name}")), runner, "SF101")


def test_broken_json_is_told_with_its_line(runner: Runner) -> None:
    text = registry(runner).read_text().splitlines()
    text.insert(3, "oops")
    registry(runner).write_text("\n".join(text))
    assert_refused(runner.run(labeled()), runner, "SF104", "file=.agent/fixer/steps_registry.json,line=4")


def test_a_required_parameter_without_a_value_is_refused(runner: Runner) -> None:
    parameter = {"topic": {"type": "string", "cli": "--topic", "required": True, "description": "What about"}}
    edit(runner.checkout / ".agent/fixer/agent.json", lambda document: document.update(parameters=parameter))
    assert_refused(runner.run(labeled()), runner, "SF209", "topic")
    assert runner.run(labeled(), parameters="topic: parsing", scenario="").outputs["outcome"] == "misconfigured"


def test_all_problems_of_a_broken_registry_appear_together_on_their_lines(runner: Runner) -> None:
    def damage(document) -> None:
        document["steps"]["initial.issue"]["transitions"]["next"] = {"target": "continuation.gone"}
        document["validationSteps"]["closure.issue"]["validationConditions"].append({"validator": "nope"})

    edit(registry(runner), damage)
    lines = registry(runner).read_text().splitlines()
    at_target = next(number for number, line in enumerate(lines, 1) if "continuation.gone" in line)
    at_validator = next(number for number, line in enumerate(lines, 1) if '"nope"' in line)
    done = runner.run({}, name="pull_request", mode="validate")
    assert done.exit_code == 2
    where = "file=.agent/fixer/steps_registry.json,line="
    assert any(f"{where}{at_target}," in line and "SF343" in line for line in done.annotations), done.log
    assert any(f"{where}{at_validator}," in line and "SF603" in line for line in done.annotations), done.log


def test_the_outputs_name_agent_and_issue_also_where_nothing_was_begun(runner: Runner) -> None:
    done = runner.run(labeled(), scenario="")
    assert (done.outputs["agent"], done.outputs["issue"]) == ("fixer", "7")
    assert any(line.startswith("::error title=fixer%3A a setting is missing or wrong") for line in done.annotations)


def test_validate_passes_a_sound_agent_on_any_event(runner: Runner) -> None:
    done = runner.run({}, name="push", mode="validate")
    assert done.exit_code == 0
    assert done.outputs["outcome"] == "completed"
    assert "fixer: no problems" in done.log
    assert done.outputs["reason"] == "Before the run: checked fixer: no problems"
    assert done.annotations == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"scenario": "", "boundary": "dry-run"}, "anthropic-api-key"),
        ({"limits": "usd: five"}, "limits.usd"),
        ({"boundary": "github"}, "github-token"),
        ({"scenario": "", "model": "no-such-model", "anthropic_api_key": "k-123456"}, "limits.tokens"),
        ({"scenario": "", "model": "provider: scripted"}, "scenario"),
        ({"scenario": "/no/such/file.yaml"}, "/no/such/file.yaml"),
        ({"mode": "dance"}, "input mode"),
        ({"scenario": "", "model": "provider: bedrock"}, "AWS_REGION"),
        ({"working_directory": "nowhere"}, "working-directory"),
        (
            {"scenario": "", "model": "base-url: http://example.com", "anthropic_api_key": "k-123456"},
            "http",
        ),
    ],
)
def test_an_input_that_cannot_work_is_named_with_the_way_out(runner: Runner, inputs: dict, words: str) -> None:
    assert_refused(runner.run(labeled(), **inputs), runner, words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("budget-usd", 'no input "budget-usd" (did you mean the key "usd" of "limits"?)'),
        ("budget-usd-per-day", 'no input "budget-usd-per-day" (did you mean the key "usd-per-day" of "limits"?)'),
        ("max-iteration", 'no input "max-iteration" (did you mean the key "iterations" of "limits"?)'),
        ("limit", 'no input "limit" (did you mean "limits"?)'),
        ("trigger-labels", 'no input "trigger-labels" (did you mean the key "labels" of "start"?)'),
        ("anthropic-base-url", 'no input "anthropic-base-url" (did you mean the key "base-url" of "model"?)'),
        ("otel-headers", 'no input "otel-headers" (did you mean the key "headers" of "telemetry"?)'),
        ("anthropic-api-kye", 'no input "anthropic-api-kye" (did you mean "anthropic-api-key"?)'),
        ("record", 'no input "record"; it is ignored'),
        ("structured-output", 'no input "structured-output"; it is ignored'),
    ],
)
def test_an_input_that_nobody_declared_is_only_a_warning(runner: Runner, name: str, words: str) -> None:
    done = runner.run(labeled("bug"), **{name.replace("-", "_"): "5"})
    assert done.exit_code == 0
    assert any(words in line for line in done.annotations)


def test_an_event_that_is_not_ours_is_skipped_with_the_reason(runner: Runner) -> None:
    done = runner.run(labeled("bug"))
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped")
    assert any(line.startswith("::notice") and '"bug"' in line for line in done.annotations)


def test_the_checkout_is_never_touched_by_wrong_input(runner: Runner) -> None:
    runner.run(labeled("agent:nobody"))
    assert git("status", "--porcelain", cwd=runner.checkout) == ""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", ["../../evil", "o", "o/r/../x", "../r", "o/..", "o/r?x", "o/r\n", "https://evil.com/o/r"]
)
def test_a_repository_whose_name_is_no_name_is_refused(runner: Runner, name: str) -> None:
    runner.environ = {"GITHUB_REPOSITORY": name}
    assert_refused(runner.run(labeled("agent:fixer")), runner, "GITHUB_REPOSITORY", "must be owner/name")


@pytest.mark.parametrize("name", ["o/r", "some-one/.github", "a_b/x.y-z"])
def test_a_repository_with_any_name_that_github_gives_is_taken(runner: Runner, name: str) -> None:
    runner.environ = {"GITHUB_REPOSITORY": name}
    assert "GITHUB_REPOSITORY" not in runner.run(labeled("agent:nobody")).log
