"""A public agent that nobody here wrote runs through the whole action, with the type checker that it names.

Its definition lies beside this repository (`../shared/real-agents/iterator`, or below STEPFLOW_SHARED).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stepflow.domain.conversation import ToolCall
from stepflow.journal import read_journal
from stepflow.run.scenarios import load_scenario
from tests.checkout import ISSUE, Invocation, Runner, git
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("STEPFLOW_SHARED") or HERE.parents[1].parent / "shared")
AGENT = SHARED / "real-agents" / "iterator"
TOKEN = "ghs_0123456789abcdefghijABCDEFGHIJ"

pytestmark = pytest.mark.skipif(not AGENT.exists(), reason="the shared material is not beside this repository")

with_deno = [
    pytest.mark.npm,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.environ.get("STEPFLOW_NPM_TESTS"), reason="needs npm: set STEPFLOW_NPM_TESTS=1"),
]


def make_runner(root: Path, deno: Path | None = None) -> Runner:
    """The agent in a small repository of the language that its type check reads.

    The type checker is brought by the input `setup`, as a workflow would; the repository ignores the folder it is in.
    """
    checkout, folder = root / "checkout", root / "runner"
    folder.mkdir(parents=True)
    shutil.copytree(HERE / "repository", checkout)
    shutil.copytree(AGENT, checkout / ".agent" / "iterator")
    (checkout / ".gitignore").write_text("/toolchain/\n")
    git("init", "--quiet", cwd=checkout)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Begin", cwd=checkout)
    runner = Runner(checkout=checkout, folder=folder)
    runner.inputs |= {"boundary": "dry-run", "isolation": "best-effort"}
    if deno:
        (checkout / "toolchain").mkdir()
        shutil.copy(deno, checkout / "toolchain" / "deno")
        runner.inputs["setup"] = "install -D toolchain/deno ~/.local/bin/deno\ndeno --version"
    return runner


def commented() -> dict[str, Any]:
    """The event of bob asking for the agent in a comment; no label starts it, so none of ours is taken off."""
    body = "They should not be counted."
    return {
        "action": "created",
        "issue": {**ISSUE, "title": "Blank lines are counted", "body": body, "labels": [{"name": "in-progress"}]},
        "comment": {"id": 1, "body": "/stepflow run iterator", "author_association": "MEMBER"},
        "sender": {"login": "bob", "type": "User"},
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


def play(runner: Runner, scenario: str, **inputs: str) -> tuple[Invocation, dict[str, Any]]:
    """One run of the scenario: what the job saw, and its report."""
    done = runner.run(commented(), name="issue_comment", scenario=str(HERE / scenario), **inputs)
    assert done.outputs.get("report"), done.log
    return done, json.loads(Path(done.outputs["report"]).read_text())


def assert_as_expected(report: dict[str, Any], scenario: str) -> None:
    """The report tells what the scenario says it should."""
    expect = load_scenario(HERE / scenario).expect
    assert expect is not None
    assert report["outcome"] == expect.outcome, report["reason"]
    assert tuple(line["step"] for line in report["history"]) == expect.steps
    assert tuple(effect["kind"] for effect in report["effects"]) == expect.effects
    ran: dict[str, list[str]] = {}
    for each in report["validators"]:
        ran.setdefault(each["name"], []).append("pass" if each["passed"] else "fail")
    assert {name: tuple(results) for name, results in ran.items()} == expect.validators


def assert_untouched(runner: Runner) -> None:
    """Nothing of the type checker or the run is left in the checkout."""
    assert git("status", "--porcelain", "--ignored", cwd=runner.checkout).split("\n") == ["!! toolchain/", ""]
    assert [path.name for path in (runner.checkout / "toolchain").iterdir()] == ["deno"]


def effects_of(report: dict[str, Any], status: str) -> dict[str, str]:
    """Kind and detail of every effect, all of which have this status."""
    assert {effect["status"] for effect in report["effects"]} == {status}
    return {effect["kind"]: effect["detail"] for effect in report["effects"]}


class TestWithItsTypeChecker:
    pytestmark = with_deno

    def test_a_dry_run_completes_in_three_iterations_and_plans_comment_and_labels_only(
        self, shared_folder: Path, deno: Path
    ) -> None:
        runner = make_runner(shared_folder / "dry-run", deno)
        done, report = play(runner, "iterator.yaml")
        assert_as_expected(report, "iterator.yaml")
        assert {problem["severity"] for problem in report["problems"]} <= {"warning", "note"}
        assert not [line for line in done.annotations if line.startswith("::error")]
        assert (done.exit_code, done.outputs["outcome"], done.outputs["iterations"]) == (0, "completed", "3")
        assert (report["verdict_type"], report["validated"], report["verdict"]) == ("poll:state", True, "already-done")
        entries = read_journal(Path(report["run_folder"]) / "journal.jsonl")
        outputs = [
            each.event.output for each in entries if isinstance(each.event, ToolCall) if each.event.name == "bash"
        ]
        assert outputs == ["2 lines\n", "0 lines\n"], "the real program ran for the model too"
        effects = effects_of(report, "planned")
        assert (effects["add_labels"], effects["remove_labels"]) == ("done", "in-progress")
        assert_untouched(runner)

    def test_with_a_token_the_labels_change_one_comment_is_written_and_the_issue_stays_open(
        self, shared_folder: Path, deno: Path
    ) -> None:
        runner = make_runner(shared_folder / "github", deno)
        state = State("o/r", permissions={"bob": "write"})
        state.add_issue(7, "Blank lines are counted", "They should not be.", labels=["in-progress", "bug"])
        with GitServer(shared_folder / "served", TOKEN) as server, GitHubServer(state, TOKEN) as github:
            git("push", "--quiet", str(server.create("o/r")), "HEAD:main", cwd=runner.checkout)
            addresses = {"github_api_url": github.api_url, "github_server_url": server.url}
            done, report = play(runner, "iterator.yaml", boundary="github", github_token=TOKEN, **addresses)
        assert_as_expected(report, "iterator.yaml")
        effects = effects_of(report, "applied")
        assert (effects["add_labels"], effects["remove_labels"]) == ("done", "in-progress")
        issue = state.issues[7]
        assert (issue["state"], sorted(issue["labels"])) == ("open", ["bug", "done"])
        assert len(state.comments) == 1
        assert (state.pulls, state.releases) == ([], [])
        assert github.writes() == [
            "POST /api/v3/repos/o/r/issues/7/comments",
            "POST /api/v3/repos/o/r/issues/7/labels",
            "DELETE /api/v3/repos/o/r/issues/7/labels/in-progress",
        ]
        assert done.outputs["comment-url"]
        assert_untouched(runner)

    def test_a_type_error_comes_back_in_the_agents_own_retry_prompt(self, shared_folder: Path, deno: Path) -> None:
        runner = make_runner(shared_folder / "type-error", deno)
        _, report = play(runner, "iterator-type-error.yaml")
        assert_as_expected(report, "iterator-type-error.yaml")
        refused = next(each for each in report["validators"] if not each["passed"])
        assert (refused["pattern"], refused["action"]) == ("type-error", "retry")
        assert "\x1b" not in refused["output_tail"]
        assert_untouched(runner)


@pytest.mark.skipif(shutil.which("deno") is not None, reason="this machine has the program that must be missing")
@pytest.mark.whole
def test_without_its_type_checker_the_run_says_what_is_missing(shared_folder: Path) -> None:
    done, report = play(make_runner(shared_folder / "bare"), "iterator.yaml")
    assert (done.exit_code, report["outcome"], report["effects"]) == (2, "misconfigured", [])
    assert 'The check "type-check" cannot run' in report["reason"]
    assert re.search(r"deno: (command )?not found", report["reason"])
