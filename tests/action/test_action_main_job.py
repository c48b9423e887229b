"""The main job: a label on an issue, one agent, its flow, its validators, a pull request that closes the issue."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jsonschema
import pytest
import yaml

from stepflow.report.document import report_schema
from tests.checkout import Invocation, git
from tests.world import (
    BRANCH,
    COMMIT,
    MODEL_KEY,
    TOKEN,
    World,
    answer,
    bash,
    label_event,
    open_world,
    solve,
    understood,
)

SECRETS = (MODEL_KEY, TOKEN, base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode())
ACTION = Path(__file__).parents[2] / "action.yml"


@dataclass
class Solved:
    """A run that completed, and the world after it."""

    world: World
    done: Invocation

    @property
    def folder(self) -> Path:
        return self.done.folder


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Solved]:
    """The model looks for secrets, forgets to commit, is sent back, commits and closes."""
    with open_world(tmp_path_factory.mktemp("main-job")) as world:
        claim = answer("closure.issue", "closing", comment="The world is greeted now.", verdict="solved")
        script = [
            bash("env; cat .git/config; git config --list --show-origin"),
            understood(),
            bash("echo 'hello, world' > greeting.txt"),
            answer("continuation.issue", "handoff", summary="the greeting is written"),
            claim,
            bash(COMMIT),
            answer("continuation.issue", "handoff", summary="the greeting is committed"),
            claim,
        ]
        yield Solved(world, world.run(script))


def test_it_completes_with_every_output_of_the_action_set(solved: Solved) -> None:
    done, world = solved.done, solved.world
    assert done.exit_code == 0, done.log
    assert done.outputs.keys() == yaml.safe_load(ACTION.read_text())["outputs"].keys()
    assert {name: done.outputs[name] for name in ("outcome", "success", "validated", "agent", "issue")} == {
        "outcome": "completed",
        "success": "true",
        "validated": "true",
        "agent": "fixer",
        "issue": "7",
    }
    assert (done.outputs["iterations"], done.outputs["final-step"], done.outputs["verdict"]) == (
        "5",
        "closure.issue",
        "solved",
    )
    assert done.outputs["reason"] == "Completion loop: closure.issue is through"
    assert (done.outputs["branch"], done.outputs["commit"]) == (BRANCH, world.branches()[BRANCH])
    assert (done.outputs["pull-request"], world.pulls()[0]["number"]) == ("8", 8)
    assert done.outputs["pull-request-url"] == f"{world.git_server.url}/o/r/pull/8"
    assert done.outputs["comment-url"].startswith(f"{world.git_server.url}/o/r/issues/7#issuecomment-")
    assert int(done.outputs["tokens-in"]) > int(done.outputs["tokens-out"]) > 0
    assert 0 < float(done.outputs["cost-usd"]) < 1
    assert 0 < float(done.outputs["duration-seconds"]) < 60
    assert json.loads(done.outputs["structured-output"])["verdict"] == "solved"


def test_the_commit_arrives_on_a_branch_under_the_bots_name(solved: Solved) -> None:
    served = solved.world.served
    assert solved.world.branches().keys() == {"main", BRANCH}
    assert git("show", f"{BRANCH}:greeting.txt", cwd=served) == "hello, world\n"
    assert git("log", "--format=%an|%cn", f"main..{BRANCH}", cwd=served) == "github-actions[bot]|github-actions[bot]\n"


def test_a_draft_pull_request_closes_the_issue_on_merge(solved: Solved) -> None:
    (pull,) = solved.world.pulls()
    assert (pull["head"], pull["base"], pull["draft"]) == (BRANCH, "main", True)
    assert "Closes #7" in pull["body"]
    assert solved.world.github.state.issues[7]["state"] == "open"


def test_one_comment_and_the_labels_follow(solved: Solved) -> None:
    (comment,) = solved.world.comments()
    assert comment.startswith("<!-- stepflow -->\nThe world is greeted now.")
    assert "Pull request: #8" in comment
    assert solved.world.labels() == {"ready-for-review"}


def test_before_the_closing_was_accepted_github_is_only_read_and_asked_first_where_it_is_and_who_may_write(
    solved: Solved,
) -> None:
    (asked,) = {*solved.world.requests_before_turn}
    before = solved.world.github.requests[:asked]
    assert [each.path for each in before[:2]] == ["/repos/o/r", "/repos/o/r/collaborators/bob/permission"]
    assert {each.method for each in before} == {"GET"}
    kinds = [line["event"] for line in solved.world.events(solved.done)]
    assert kinds.index("flow_ended") < kinds.index("effect_planned") < kinds.index("effect_applied")


def test_the_summary_shows_way_steps_validators_and_effects_with_links(solved: Solved) -> None:
    summary = solved.done.summary
    assert "## ✅ fixer on issue #7: completed" in summary
    assert re.search(r"```mermaid\nflowchart.*?==>.*?```", summary, re.DOTALL)
    assert summary.count("<code>continuation.issue</code>") >= 2
    assert "| 3 | <code>git-clean</code> | ❌ failed" in summary
    assert "| 5 | <code>greeting</code> | ✅ passed" in summary
    assert f"[open]({solved.done.outputs['pull-request-url']})" in summary
    assert f"[open]({solved.done.outputs['comment-url']})" in summary
    assert "**What to do next:** Review the pull request." in summary
    assert len(summary.encode()) < 1024 * 1024


def test_the_log_folds_each_attempt_and_says_where_it_leads(solved: Solved) -> None:
    lines = solved.done.log.splitlines()
    groups = [line.removeprefix("::group::") for line in lines if line.startswith("::group::")]
    assert lines.count("::endgroup::") == len(groups)
    assert [title.partition(" ")[0] for title in groups] == ["sandbox:", *["Iteration"] * 5]
    assert "3 · closure.issue: closing → continuation.issue" in lines
    assert any(line.startswith("✓ open_pull_request applied") for line in lines)
    assert solved.done.annotations == []


def test_the_run_folder_holds_journal_log_report_and_effects(solved: Solved) -> None:
    folder = solved.folder
    report = json.loads((folder / "report.json").read_text())
    jsonschema.validate(report, report_schema())
    assert (report["outcome"], report["iterations"], report["final_step"]) == ("completed", 5, "closure.issue")
    effects = json.loads((folder / "effects.json").read_text())["effects"]
    assert [(effect["kind"], effect["status"]) for effect in effects] == [
        ("push_branch", "applied"),
        ("open_pull_request", "applied"),
        ("post_comment", "applied"),
        ("add_labels", "applied"),
        ("remove_labels", "applied"),
    ]
    events = [line["event"] for line in solved.world.events(solved.done)]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    assert solved.done.outputs["report"] == str(folder / "report.json")


def test_the_statement_is_in_toto_and_says_what_was_pushed_and_how_it_was_checked(solved: Solved) -> None:
    folder, done, served = solved.folder, solved.done, solved.world.served
    statement = json.loads(Path(done.outputs["statement"]).read_text())
    journal = (folder / "journal.jsonl").read_bytes()
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": "journal.jsonl", "digest": {"sha256": hashlib.sha256(journal).hexdigest()}},
    ]
    said, report = statement["predicate"], json.loads((folder / "report.json").read_text())
    assert said == json.loads((folder / "predicate.json").read_text())
    assert said["commit"] == {
        "gitCommit": done.outputs["commit"],
        "gitTree": git("rev-parse", f"{BRANCH}^{{tree}}", cwd=served).strip(),
        "branch": BRANCH,
        "base": {"gitCommit": git("rev-parse", "main", cwd=served).strip()},
    }
    assert said["definition"] == {"agent": "fixer", "digest": {"sha256": report["definition_digest"]}}
    run = said["run"]
    assert (run["repository"], run["issue"], run["pullRequest"], run["stepflow"]) == (
        "o/r",
        7,
        8,
        [version("stepflow")],
    )
    assert said["result"] == {"outcome": "completed", "validated": True, "verdict": "solved"}
    assert [(each["name"], each["exitCode"], each["passed"]) for each in said["validators"]] == [
        (each["name"], each["exit_code"], each["passed"]) for each in report["validators"]
    ]
    for said_of, seen in zip(said["validators"], report["validators"], strict=True):
        assert said_of["outputTail"]["sha256"] == hashlib.sha256(seen["output_tail"].encode()).hexdigest()
    assert said["models"] == [*dict.fromkeys(each["model"] for each in solved.world.events(done) if "usage" in each)]
    assert said["usage"]["costUsd"] == report["cost_usd"] > 0
    assert said["sandbox"]["layers"] == report["isolation"]
    link = bytes(32)
    for line in journal.splitlines(keepends=True):
        link = hashlib.sha256(link + line).digest()
    part = {"lines": len(journal.splitlines()), "chain": link.hex()}
    assert said["journal"] == {**part, "parts": [part]}


def test_no_secret_reaches_the_model_or_its_tools(solved: Solved) -> None:
    transcript = json.dumps(solved.world.model.bodies)
    assert "PATH=" in transcript
    assert [secret for secret in SECRETS if secret in transcript] == []


def test_the_retry_prompt_names_the_file_that_was_left_uncommitted(solved: Solved) -> None:
    opened = [body["messages"][0]["content"] for body in solved.world.model.bodies if len(body["messages"]) == 1]
    fourth = "\n".join(block["text"] for block in opened[3])
    assert fourth.startswith("These files are changed and not committed:\n- greeting.txt\n")
    assert "Greet the world" in fourth


@pytest.mark.whole
def test_a_secret_that_the_model_knows_is_in_nothing_that_anybody_sees(world: World) -> None:
    encoded = f"{base64.b64encode(TOKEN.encode()).decode()} {TOKEN.encode().hex()}"
    leak = f"{MODEL_KEY} {TOKEN} {encoded}"
    event = label_event(body=f"My keys are {leak}")
    script = [
        bash(f"echo {leak}; echo '{TOKEN}' >&2; exit 3"),
        answer("initial.issue", "next", understanding=leak),
        bash(f"echo 'hello, world' > greeting.txt && {COMMIT} --message '{encoded}'"),
        answer("continuation.issue", "handoff", summary=leak),
        answer("closure.issue", "closing", comment=leak, verdict=leak, pull_request={"title": leak, "body": leak}),
    ]
    done = world.run(script, event)
    assert done.exit_code == 0, done.log
    log = done.visible_log
    objects = git("log", "--all", "--patch", "--format=raw", cwd=world.served)
    files = "".join(path.read_text(errors="replace") for path in done.folder.rglob("*") if path.is_file())
    seen = {
        "log": log,
        "outputs": json.dumps(done.outputs),
        "summary": done.summary,
        "files": files,
        "git": objects,
        "github": json.dumps([world.comments(), world.pulls()]),
    }
    forms = leak.split()
    assert {name: [form for form in forms if form in text] for name, text in seen.items()} == {
        name: [] for name in seen
    }
    assert "***" in world.comments()[0]


@pytest.mark.skipif(os.getuid() != 0, reason="only a root process can give the tools a user of their own")
@pytest.mark.whole
def test_with_isolation_required_the_tools_are_somebody_else_and_see_nothing_of_the_parent() -> None:
    with tempfile.TemporaryDirectory(prefix="stepflow-test-") as folder:
        Path(folder).chmod(0o755)
        with open_world(Path(folder)) as world:
            world.runner.inputs["isolation"] = "required"
            hunt = (
                f"id -u; cat /proc/{os.getpid()}/environ /proc/[0-9]*/environ {world.runner.folder}/* | tr '\\0' '\\n'"
            )
            world.runner.folder.chmod(0o700)
            done = world.run([bash(f"{hunt}; true"), *solve()])
            assert done.exit_code == 0, done.log
            report = done.report
            said = world.model.bodies[1]["messages"][-1]["content"][0]["content"]
            owner = (world.checkout / "greeting.txt").stat().st_uid
        assert said.splitlines()[0] not in ("0", "")
        assert "nobody else's" in report["isolation"]["uid"]
        assert owner == 0
        transcript = json.dumps(world.model.bodies)
        assert [secret for secret in SECRETS if secret in transcript] == []


@pytest.mark.whole
def test_the_same_event_twice_makes_one_comment_one_pull_request_and_one_branch(world: World) -> None:
    first = world.run(solve())
    world.check_out_again()
    world.github.state.issues[7]["labels"].append("agent:fixer")
    second = world.run(solve())
    assert (first.exit_code, second.exit_code) == (0, 0), second.log
    assert (len(world.comments()), len(world.pulls())) == (1, 1)
    assert world.branches().keys() == {"main", BRANCH}
    assert world.branches()[BRANCH] == second.outputs["commit"] != first.outputs["commit"]
    assert (second.outputs["pull-request"], second.outputs["comment-url"]) == (
        first.outputs["pull-request"],
        first.outputs["comment-url"],
    )
    assert f"commit={second.outputs['commit']}" in world.comments()[0]
    assert world.labels() == {"ready-for-review"}
