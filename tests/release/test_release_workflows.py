"""The workflows of this repository: what they may do, whom they call, how much of them is shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
OURS = [path for path in WORKFLOWS if path.stem in {"ci", "release"}]
PINS = PROJECT.parent / "shared/data/action-pins.md"
USES = re.compile(r"^\s*(?:- )?uses: (\S+?)@(\S+)(?: # (.+))?$", re.M)
#: Longer than this, and it belongs in a program that has tests.
MOST_LINES_OF_SHELL = 3


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_is_permitted_but_what_a_job_asks_for(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}
    assert [name for name, job in jobs(path).items() if "permissions" not in job] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_foreign_action_is_pinned_by_a_commit_with_its_version_beside_it(path: Path) -> None:
    used = [use for use in USES.findall(path.read_text(encoding="utf-8")) if not use[0].startswith("org/")]
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) and re.fullmatch(r"v[\d.]+", said) for _, commit, said in used)
    if PINS.exists():
        rows = re.findall(r"^\| (\S+/\S+) \| (v\S+) \| ([0-9a-f]{40}) \|", PINS.read_text(encoding="utf-8"), re.M)
        # An action may lie in a folder of its repository.
        repositories = {("/".join(name.split("/")[:2]), commit, said) for name, commit, said in used}
        assert repositories <= {(name, sha, tag) for name, tag, sha in rows}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_every_job_has_a_name_and_ends_in_time_and_no_checkout_keeps_the_token(path: Path) -> None:
    for name, job in jobs(path).items():
        assert {"name", "timeout-minutes"} <= job.keys(), name
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_shell_in_a_workflow_is_short_and_takes_values_from_the_environment(path: Path) -> None:
    scripts = [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if len(script.splitlines()) > MOST_LINES_OF_SHELL or "${{" in script] == []


def test_every_slow_test_runs_once_a_week_and_before_a_release() -> None:
    """The jobs that run tests do it by `make`, which leaves some out without STEPFLOW_FULL."""
    ci, release = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in OURS)
    assert release["env"]["STEPFLOW_FULL"] == "1"
    assert ci["env"]["STEPFLOW_FULL"] == "${{ github.event_name == 'schedule' && '1' || '' }}"
    assert "schedule" in ci[True]
    scripts = [step.get("run", "") for job in ci["jobs"].values() for step in job["steps"]]
    targets = {target for script in scripts for made in re.findall(r"\bmake (.+)", script) for target in made.split()}
    assert targets >= {"test", "whole", "browser", "e2e", "e2e-security"}
    for full, left_out in (("", 4), ("1", 0)):
        make = ["make", "--dry-run", f"STEPFLOW_FULL={full}", "whole", "e2e", "e2e-security"]
        printed = subprocess.run(make, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
        assert printed.count("not weekly") == left_out


def test_the_tests_run_on_every_python_that_the_package_allows_and_on_both_ends_of_its_dependencies() -> None:
    ci = jobs(PROJECT / ".github/workflows/ci.yml")
    pyproject = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = re.search(r'^requires-python = ">=(3\.\d+)"$', pyproject, re.M)
    assert lowest is not None
    pythons = ci["test"]["strategy"]["matrix"]["python"]
    assert pythons[0] == lowest[1]
    assert pythons == [f"3.{minor}" for minor in range(int(pythons[0][2:]), int(pythons[-1][2:]) + 1)]
    ends = {(end["python"], end["resolution"]) for end in ci["bounds"]["strategy"]["matrix"]["include"]}
    assert ends == {(pythons[0], "lowest-direct"), (pythons[-1], "highest")}


def test_a_release_gets_its_tags_only_from_an_image_that_was_tried_as_it_was_pushed() -> None:
    release = jobs(PROJECT / ".github/workflows/release.yml")
    assert set(release["publish"]["needs"]) == {"build", "try", "test"}
    pushed = "${{ env.IMAGE }}@${{ needs.build.outputs.digest }}"
    for name in ("try", "test"):
        assert release[name]["needs"] == "build"
        assert [step["env"]["STEPFLOW_IMAGE"] for step in release[name]["steps"] if "run" in step] == [pushed]
    writers = [name for name, job in release.items() if job["permissions"].get("contents") == "write"]
    assert writers == ["publish"]


def test_what_is_attested_is_the_image_that_is_tried_and_that_the_released_action_names() -> None:
    release = jobs(PROJECT / ".github/workflows/release.yml")
    assert release["build"]["outputs"] == {"digest": "${{ steps.push.outputs.digest }}"}
    attested = [step["with"] for step in release["build"]["steps"] if "/attest" in step.get("uses", "")]
    names = [(each["subject-name"], each["subject-digest"], each["push-to-registry"]) for each in attested]
    assert names == [("${{ env.IMAGE }}", "${{ steps.push.outputs.digest }}", True)] * 2
    (publish,) = (step for step in release["publish"]["steps"] if step.get("id") == "tags")
    assert '--image "$IMAGE" --digest "$DIGEST"' in publish["run"]
    assert publish["env"]["DIGEST"] == "${{ needs.build.outputs.digest }}"


def test_every_file_that_the_owners_list_names_exists() -> None:
    lines = (PROJECT / ".github/CODEOWNERS").read_text(encoding="utf-8").splitlines()
    patterns = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    assert [pattern for pattern in patterns if not list(PROJECT.glob(pattern.strip("/")))] == []


def test_proposed_updates_wait_until_others_have_seen_them() -> None:
    updates = yaml.safe_load((PROJECT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"pip", "docker", "github-actions"}
    assert all(update["cooldown"]["default-days"] >= 7 for update in updates)


def test_a_release_takes_ten_steps() -> None:
    lines = (PROJECT / "RELEASING.md").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if re.match(r"\d+\. ", line)]) == 10
