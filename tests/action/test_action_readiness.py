"""What would end a run after everything is paid is asked before the model, by a run and by a preflight alike."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.checkout import Invocation, git
from tests.world import BRANCH, READ_TOKEN, TOKEN, World, drop_checks, label_event, solve

EVENT = {"repository": {"full_name": "o/r", "default_branch": "main"}, "sender": {"login": "bob", "type": "User"}}


def no_repository(world: World) -> None:
    shutil.rmtree(world.checkout / ".git")


def no_commit(world: World) -> None:
    shutil.rmtree(world.checkout / ".git")
    git("init", "--quiet", cwd=world.checkout)


def branch_above(world: World, name: str = "stepflow") -> None:
    git("branch", name, "main", cwd=world.served)


def branch_above_the_agent(world: World) -> None:
    branch_above(world, "stepflow/fixer")


def branch_below(world: World) -> None:
    branch_above(world, "stepflow/fixer/issue-7/x")


def commit_of_a_step(world: World) -> None:
    git("commit", "--quiet", "--allow-empty", "--message", "Generated", cwd=world.checkout)


def token_that_reads(world: World) -> None:
    world.git_server.token, world.git_server.read_token = "another", TOKEN


def base_that_is_gone(world: World) -> None:
    world.edit(
        "agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(pullRequest={"base": "dev"})
    )


def repository_that_is_not_there(world: World) -> None:
    world.git_server.fail("service=git-upload-pack", 404, times=99)


def only_comments(agent: dict[str, Any]) -> None:
    agent["runner"]["integrations"]["github"] = {"allowedEffects": ["comment", "labels"]}


def prefix_that_is_none(world: World) -> None:
    world.edit(
        "agent.json",
        lambda agent: agent["runner"]["integrations"]["github"].update(pullRequest={"branchPrefix": "a..b/"}),
    )


def filter_without_program(world: World) -> None:
    (world.checkout / "data.bin").write_text("data")
    git("add", "data.bin", cwd=world.checkout)
    set_filter(world)


def workflow_that_is_not_there(world: World) -> None:
    world.runner.inputs["ci-workflow"] = "ci.yml"


def workflow_without_the_trigger(world: World) -> None:
    world.use_ci("on: [push, pull_request]\njobs: {}\n")


def workflow_that_is_not_yaml(world: World) -> None:
    world.use_ci("on: [push\n")


def workflow_with_a_required_input(world: World) -> None:
    inputs = "{ level: { default: all, required: true }, target: { required: true, type: string } }"
    world.use_ci(f"on:\n  push:\n  workflow_dispatch:\n    inputs: {inputs}\njobs: {{}}\n")


def set_filter(world: World) -> None:
    (world.checkout / ".gitattributes").write_text("*.bin filter=crypt diff=crypt\n")
    for name, value in (
        ("clean", "no-such-program clean %f"),
        ("smudge", "no-such-program smudge"),
        ("required", "true"),
    ):
        git("config", f"filter.crypt.{name}", value, cwd=world.checkout)


CASES = [
    (no_repository, "actions/checkout"),
    (no_commit, "it has no commit to start from"),
    (branch_above, "branchPrefix"),
    (branch_above_the_agent, "`stepflow/fixer`"),
    (branch_below, "`stepflow/fixer/issue-7/x`"),
    (commit_of_a_step, "is not in the repository on the server"),
    (token_that_reads, "The token may not push: the job needs `contents: write`"),
    (base_that_is_gone, "`dev`"),
    (repository_that_is_not_there, "`github-token` is for this repository"),
    (prefix_that_is_none, "pullRequest.branchPrefix"),
    (workflow_that_is_not_there, "the checkout has no file .github/workflows/ci.yml"),
    (workflow_without_the_trigger, "has no trigger `workflow_dispatch`"),
    (workflow_that_is_not_yaml, "is not valid YAML"),
    (workflow_with_a_required_input, "requires the input `target`"),
    (filter_without_program, "`no-such-program` is not installed"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("happens", "says"), CASES)
def test_a_run_ends_before_the_model_is_asked(world: World, happens: Any, says: str) -> None:
    happens(world)
    done = world.run(solve(), on_failure="nothing")
    assert (done.outputs["outcome"], done.exit_code, world.model.bodies) == ("misconfigured", 2, []), done.log
    assert says in done.outputs["reason"]
    assert world.branches().keys() - {"stepflow", "stepflow/fixer", "stepflow/fixer/issue-7/x"} == {"main"}


@pytest.mark.parametrize(
    ("happens", "says"),
    [pytest.param(*CASES[0], marks=pytest.mark.whole), pytest.param(*CASES[6], marks=pytest.mark.whole), CASES[-1]],
)
def test_a_preflight_asks_the_same(world: World, happens: Any, says: str) -> None:
    happens(world)
    done = preflight(world)
    assert done.outputs["outcome"] == "misconfigured", done.log
    assert says in done.log


@pytest.mark.whole
@pytest.mark.parametrize("on", ["workflow_dispatch", "[push, workflow_dispatch]", "{ workflow_dispatch: null }"])
def test_a_workflow_that_can_be_started_is_told_by_preflight_with_what_it_takes(world: World, on: str) -> None:
    world.use_ci(f"on: {on}\njobs: {{}}\n")
    done = preflight(world)
    assert done.outputs["outcome"] == "completed", done.log
    assert "it takes contents, actions, issues and pull-requests, each `write`" in " ".join(done.log.split())


def preflight(world: World, **inputs: str) -> Invocation:
    inputs = {"agent": "fixer", "issue": "7", **inputs}
    return world.runner.run(EVENT, name="workflow_dispatch", mode="preflight", **inputs)


def test_an_issue_that_is_locked_takes_no_comment(world: World) -> None:
    world.github.state.locked.add(7)
    done = world.run(solve(), label_event(locked=True))
    assert (done.outputs["outcome"], world.model.bodies) == ("misconfigured", []), done.log
    assert "Issue #7 is locked" in done.outputs["reason"]


def test_an_issue_that_is_read_is_known_to_be_locked(world: World) -> None:
    world.github.state.locked.add(7)
    world.github.read_token = READ_TOKEN
    world.play(solve())
    inputs = {"agent": "fixer", "issue": "7", "read-token": world.github.read_token}
    done = world.runner.run(EVENT, name="workflow_dispatch", **inputs)
    assert (done.outputs["outcome"], world.model.bodies) == ("misconfigured", []), done.log
    assert "Issue #7 is locked" in done.outputs["reason"]


@pytest.mark.whole
def test_a_dry_run_asks_the_server_nothing(world: World) -> None:
    world.git_server.token = "another"
    done = world.run(solve(), boundary="dry-run")
    assert done.outputs["outcome"] == "completed", done.log
    assert world.git_server.requests == []
    table = preflight(world, boundary="dry-run")
    assert "| git server |" not in table.summary, table.summary
    assert world.git_server.requests == []


@pytest.mark.whole
def test_a_filter_that_no_file_goes_through_is_not_missed(world: World) -> None:
    set_filter(world)
    git("add", ".gitattributes", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Attributes", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log


def test_a_dry_run_is_told_of_a_branch_that_cannot_be(world: World) -> None:
    prefix_that_is_none(world)
    done = world.run(solve(), boundary="dry-run")
    assert (done.outputs["outcome"], world.model.bodies) == ("misconfigured", []), done.log
    assert "pullRequest.branchPrefix" in done.outputs["reason"]


@pytest.mark.whole
def test_a_preflight_by_number_is_told_that_the_issue_is_locked(world: World) -> None:
    world.github.read_token = READ_TOKEN
    assert "| issue | ✅ ok |" in preflight(world, **{"read-token": world.github.read_token}).summary
    world.github.state.locked.add(7)
    done = preflight(world, **{"read-token": world.github.read_token})
    assert done.outputs["outcome"] == "misconfigured", done.log
    assert "Issue #7 is locked" in done.outputs["reason"]
    assert "| actor | ✅ ok |" in done.summary


@pytest.mark.parametrize(
    ("scopes", "private", "says"),
    [
        ("gist, read:org", False, "the scopes gist, read:org"),
        pytest.param("public_repo", True, "the scopes public_repo", marks=pytest.mark.whole),
        pytest.param("public_repo, gist", False, "", marks=pytest.mark.whole),
        pytest.param("repo, workflow", True, "", marks=pytest.mark.whole),
        pytest.param("", True, "", marks=pytest.mark.whole),
    ],
)
def test_a_token_whose_scopes_write_nothing_ends_a_run_before_the_model_is_asked(
    world: World, scopes: str, private: bool, says: str
) -> None:
    world.github.scopes = scopes
    event = label_event()
    event["repository"]["private"] = private
    done = world.run([], event, on_failure="nothing")
    expected = "misconfigured" if says else "model_failed"
    assert done.outputs["outcome"] == expected, done.log
    assert bool(world.model.bodies) is not bool(says)
    assert says in done.outputs["reason"]


@pytest.mark.parametrize("pushes", [True, pytest.param(False, marks=pytest.mark.whole)])
def test_an_archived_repository_ends_a_run_before_the_model_is_asked(world: World, pushes: bool) -> None:
    world.github.state.archived = True
    if not pushes:
        world.edit("agent.json", only_comments)
    done = world.run(solve(), on_failure="nothing")
    assert (done.outputs["outcome"], world.model.bodies) == ("misconfigured", []), done.log
    for said in (done.outputs["reason"], preflight(world).log):
        assert "The repository o/r is archived, so nothing can be written to it. Unarchive it" in said


@pytest.mark.whole
def test_a_run_that_writes_nothing_works_in_an_archived_repository(world: World) -> None:
    world.github.state.archived = True
    done = world.run(solve(), boundary="dry-run")
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.whole
def test_a_disk_without_room_ends_a_run_before_the_model_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepflow.run.readiness.LEAST_SPACE", 2**70)
    done = world.run(solve(), on_failure="nothing")
    assert (done.outputs["outcome"], world.model.bodies) == ("misconfigured", []), done.log
    assert "MiB are free on the disk of" in done.outputs["reason"]
    assert "MiB are free on the disk of" in preflight(world).log


@pytest.mark.whole
def test_a_server_that_does_not_answer_is_a_warning(world: World) -> None:
    """It is asked again, and answers, so the next run says nothing of it."""
    world.git_server.fail("info/refs.*upload-pack", 502)
    for is_warned in (True, False):
        done = world.run([], on_failure="nothing")
        assert done.outputs["outcome"] == "model_failed", done.log
        assert ("could not be checked" in done.log) is is_warned


@pytest.mark.whole
def test_an_agent_that_pushes_nothing_needs_no_repository(world: World) -> None:
    world.edit(
        "agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(pullRequest={"enabled": False})
    )
    world.edit("steps_registry.json", drop_checks)
    no_repository(world)
    done = world.run([*solve()[:1], *solve()[2:]])
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.whole
@pytest.mark.parametrize(
    "command",
    ["echo more >> greeting.txt; {}", "touch -d 2020-01-01 README.md; rm -f README.md; {}", "touch coverage.xml; {}"],
    ids=("changes", "removes", "leaves"),
)
def test_what_a_check_does_to_files_reaches_neither_the_next_check_nor_the_branch(world: World, command: str) -> None:
    """The check for a clean tree comes after it."""
    world.edit("steps_registry.json", lambda registry: change_greeting(registry, command, is_first=True))
    done = world.run(solve(), base_checks="tell", on_failure="nothing")
    assert done.outputs["outcome"] == "completed", done.log
    pushed = git("diff", "--name-only", "main", BRANCH, cwd=world.served)
    assert pushed == "greeting.txt\n"
    assert git("show", f"{BRANCH}:greeting.txt", cwd=world.served) == "hello, world\n"


@pytest.mark.whole
def test_a_check_that_repairs_a_file_and_fails_is_red_until_the_repair_is_committed(world: World) -> None:
    """As `pre-commit run` with a formatter."""
    repairing = "grep -q hello, greeting.txt || { echo 'hello, world' > greeting.txt; false; }"
    world.edit("steps_registry.json", lambda registry: change_greeting(registry, repairing))
    done = world.run(solve(), base_checks="tell", on_failure="nothing")
    assert "before the run: ✗ greeting failed (exit 1, " in done.log
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.whole
def test_a_check_that_takes_long_gets_a_line_in_the_log_while_it_runs(world: World, monkeypatch) -> None:
    monkeypatch.setattr("stepflow.run.long_activity.FIRST_LINE_AFTER", 1.0)
    world.edit("steps_registry.json", lambda registry: change_greeting(registry, "sleep 3; {}"))
    done = world.run(solve(), base_checks="tell", on_failure="nothing")
    running, checked = done.log.find("s: sleep 3; "), done.log.find("before the run: ✗ greeting failed")
    assert 0 < running < checked, done.log
    assert "… still running after 1." in done.log[:running]


def change_greeting(registry: dict[str, Any], command: str, *, is_first: bool = False) -> None:
    """Change the check of the greeting; `{}` stands for its command. `is_first`: it runs before the others."""
    validator = registry["validators"]["greeting"]
    validator["command"] = command.replace("{}", validator["command"])
    if is_first:
        for entry in registry["validationSteps"].values():
            entry["validationConditions"].sort(key=lambda condition: condition["validator"] != "greeting")


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
    done = readable.run([], mode="preflight", start={"labels": "fix-it"}, agent="fixer")
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
