"""The checks before the first call of the model: what cannot run, what is red already, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git

pytestmark = pytest.mark.whole


def change_check(checkout: Path, command: str, *, files: dict[str, str] | None = None) -> None:
    """Give the agent another check, and commit it with the files."""
    registry = checkout / ".agent/fixer/steps_registry.json"
    document = json.loads(registry.read_text())
    document["validators"]["greeting"]["command"] = command
    registry.write_text(json.dumps(document))
    for name, text in (files or {}).items():
        (checkout / name).write_text(text)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Another check", cwd=checkout)


def run(checkout: Path, *words: str) -> int:
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    return main(["run", "fixer", "--issue", "7", "--run-folder", str(checkout.parent / "run"), *scripted, *words])


def events(checkout: Path, kind: str) -> list[dict]:
    lines = (checkout.parent / "run/journal.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program --check", "no-such-program: not found"),
        ("python3 -m no_such_module", "No module named no_such_module"),
        ("make -f checks.mk", "Error 127"),
        ("./checks.mk", "Permission denied"),
    ],
    ids=("shell", "python", "make", "not-executable"),
)
def test_a_check_that_cannot_run_ends_the_run_before_the_first_turn(
    checkout: Path, capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    change_check(checkout, command, files={"checks.mk": "all:\n\tno-such-program\n"})
    assert run(checkout) == 2
    out = capsys.readouterr().out
    assert 'The check "greeting" cannot run' in out
    assert said in out
    assert "base-checks to skip" in out
    assert events(checkout, "model_turn") == []


def test_a_project_that_is_not_installed_is_missing_and_not_red(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "src/sizes").mkdir(parents=True)
    (checkout / "tests").mkdir()
    files = {"src/sizes/__init__.py": "", "tests/test_sizes.py": "import sizes\n"}
    change_check(checkout, "python3 -m unittest discover -s tests", files=files)
    assert run(checkout) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "cannot run: the project is not installed: Python does not find its own `sizes`" in out
    assert events(checkout, "model_turn") == []
    capsys.readouterr()
    assert preflight(checkout) == 2
    assert "the project is not installed" in " ".join(capsys.readouterr().out.split())


def test_what_is_red_before_the_run_is_told_to_the_model_and_to_people(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkout) == 0
    checks = {event["name"]: event["passed"] for event in events(checkout, "base_checked")}
    assert checks == {"git-clean": True, "greeting": False}
    first, *_ = events(checkout, "prompt_rendered")
    (told,) = [block for block in first["blocks"] if "already failed before this run began" in block]
    assert "greeting (exit code 1)" in told
    assert "git-clean" not in told
    out = capsys.readouterr().out
    assert "before the run: ✗ greeting failed (exit 1, " in out
    assert "✓ greeting" in (end := out.split("completed:")[1])
    assert "failing before this run" in end


def add_check(checkout: Path, name: str, command: str) -> None:
    """One more check at the end of the list, not committed."""
    registry = checkout / ".agent/fixer/steps_registry.json"
    document = json.loads(registry.read_text())
    document["validators"][name] = {**document["validators"]["greeting"], "command": command}
    document["validationSteps"]["closure.issue"]["validationConditions"].append({"validator": name})
    registry.write_text(json.dumps(document))


def test_each_check_sees_the_tree_as_the_run_begins_whatever_the_ones_before_it_did(checkout: Path) -> None:
    add_check(checkout, "unspoiled", "test ! -e left.txt && grep -x hello greeting.txt")
    change_check(checkout, "touch left.txt; echo changed > greeting.txt; git commit -qam spoiled; false")
    run(checkout)
    checks = {event["name"]: event["passed"] for event in events(checkout, "base_checked")}
    assert checks == {"git-clean": True, "greeting": False, "unspoiled": True}


@pytest.mark.parametrize("last", ["base_checked", "model_turn"])
def test_a_run_that_goes_on_runs_only_the_checks_that_it_does_not_know_yet(checkout: Path, last: str) -> None:
    assert run(checkout) == 0
    journal = checkout.parent / "run/journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if json.loads(line)["event"] == last)
    # As if the process had been killed after the first event of this kind.
    journal.write_text("".join(lines[: end + 1]))
    assert main(["resume", str(checkout.parent / "run")]) == 0
    assert [event["name"] for event in events(checkout, "base_checked")] == ["git-clean", "greeting"]
    assert events(checkout, "run_resumed")


def test_where_green_is_required_a_red_check_ends_the_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checkout, "--base-checks", "require") == 1
    out = capsys.readouterr().out
    assert "a check failed before the run (base_failed): these checks already fail: greeting." in " ".join(out.split())
    assert events(checkout, "model_turn") == []


def require_in_scenario(checkout: Path) -> None:
    """Let the scenario require that the checks pass before it is played."""
    scenario = checkout.parent / "scenario.yaml"
    scenario.write_text(f"base_checks: require\n{scenario.read_text()}")


def test_a_scenario_that_requires_green_is_not_played_where_a_check_is_red(checkout: Path, capsys) -> None:
    require_in_scenario(checkout)
    assert run(checkout) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "a check failed before the run (base_failed): these checks already fail: greeting." in out
    assert "The checks must pass before this scenario is played (`base_checks: require`)." in out
    assert events(checkout, "model_turn") == []
    assert preflight(checkout) == 1
    assert "✗ failed check before the run: greeting" in " ".join(capsys.readouterr().out.split())
    assert run(checkout, "--base-checks", "skip", "--resume", "never") == 0


def test_where_a_scenario_ends_at_a_check_that_was_red_before_that_check_is_named_first(checkout: Path, capsys) -> None:
    change_check(checkout, "false")
    assert run(checkout) == 1
    next_ = " ".join(capsys.readouterr().out.rpartition(" next ")[2].split())
    assert next_.startswith("`greeting` failed before the run already."), next_
    assert "The answers came from a scenario" in next_


def test_who_skips_the_checks_runs_none_before(checkout: Path) -> None:
    change_check(checkout, "no-such-program")
    assert run(checkout, "--base-checks", "skip") == 1
    assert events(checkout, "base_checked") == []
    assert len(events(checkout, "validator_ran")) == 2


def preflight(checkout: Path, *words: str) -> int:
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    return main(["preflight", "fixer", *scripted, "--boundary", "dry-run", "--issue", "7", *words])


def test_preflight_runs_the_checks_in_a_copy(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_check(checkout, "echo new > left.txt; echo it is red; false")
    assert preflight(checkout) == 0
    assert "check before the run: greeting" in (out := capsys.readouterr().out)
    assert "fails (exit code 1): it is red" in out
    assert not (checkout / "left.txt").exists()
    assert preflight(checkout, "--base-checks", "require") == 1
    change_check(checkout, "no-such-program")
    capsys.readouterr()
    assert preflight(checkout) == 2
    assert "no-such-program: not found" in capsys.readouterr().out
    assert preflight(checkout, "--base-checks", "skip") == 0


def test_a_run_that_goes_on_takes_no_tree_of_the_agents_for_the_base(checkout: Path) -> None:
    """The run began without these checks, and was killed after a call of its first step."""
    assert run(checkout, "--base-checks", "skip") == 0
    journal = checkout.parent / "run/journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if json.loads(line).get("name") == "bash" and "tool_call" in line)
    journal.write_text("".join(lines[: end + 1]))
    assert run(checkout) == 0
    assert events(checkout, "run_resumed")
    assert events(checkout, "base_checked") == []
