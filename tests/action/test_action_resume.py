"""A second job goes on with the run folder of the first: what was done stands, and what the folder says is not law."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import git
from tests.servers.github_api import Fault
from tests.servers.messages_api import Reply
from tests.world import BRANCH, CLOSING, COMMIT, TOKEN, World, answer, bash, label_event, solve, understood

pytestmark = pytest.mark.whole


@pytest.fixture
def folder(world: World) -> Path:
    """The run folder that every job of these tests is given."""
    return world.runner.folder / "mine"


def fail_boundary(world: World, folder: Path) -> None:
    """A job whose pull request GitHub rejects."""
    world.github.state.faults.append(Fault("POST", "/pulls", 422, message="not today", times=9))
    done = world.run(solve(), run_folder=str(folder), on_failure="nothing")
    assert done.outputs["outcome"] == "boundary_failed"
    world.github.state.faults.clear()


def written(world: World) -> list[str]:
    """Every request that changed something on GitHub."""
    requests = world.github.requests
    return [f"{one.method} {one.path}" for one in requests if one.method != "GET" and "graphql" not in one.path]


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def rewrite(folder: Path, events: list[dict[str, Any]]) -> None:
    numbered = ({**event, "seq": seq} for seq, event in enumerate(events, 1))
    (folder / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in numbered))


def test_after_a_failed_boundary_only_what_is_missing_is_written(world: World, folder: Path) -> None:
    fail_boundary(world, folder)
    tip, before, requests = world.branches()[BRANCH], len(written(world)), len(world.model.bodies)
    done = world.run([], run_folder=str(folder))
    assert done.outputs["outcome"] == "completed", done.log
    assert len(world.model.bodies) == requests
    assert world.branches()[BRANCH] == tip
    assert [line.split("/")[0] for line in written(world)[before:]][:1] == ["POST "]
    assert (len(world.pulls()), len(world.comments())) == (1, 1)
    kinds = [event["event"] for event in journal(folder)]
    after = kinds[kinds.index("run_resumed") :]
    assert after.count("validator_ran") == 2
    assert after.count("effect_applied") == 4
    assert done.outputs["validated"] == "true"
    assert "The run is resumed after" in done.log
    assert int(done.outputs["iterations"]) == 3
    assert float(done.outputs["cost-usd"]) > 0
    # The statement tells the two parts apart, so that what the first job wrote can be checked by itself.
    said = json.loads(Path(done.outputs["statement"]).read_text())["predicate"]["journal"]
    link = bytes(32)
    for line in (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)[: kinds.index("run_finished") + 1]:
        link = hashlib.sha256(link + line).digest()
    assert said["parts"] == [
        {"lines": kinds.index("run_finished") + 1, "chain": link.hex()},
        {"lines": len(kinds), "chain": said["chain"]},
    ]


MEND = bash(f"echo 'hello, whole world' > greeting.txt && {COMMIT}")
SUMMARY, CLOSE = answer("continuation.issue", "handoff", summary="again"), answer("closure.issue", "closing", **CLOSING)


@pytest.mark.parametrize(
    "parts",
    [[[MEND, SUMMARY, CLOSE]], [[MEND, SUMMARY], [CLOSE]], [[MEND], [SUMMARY, CLOSE]]],
    ids=["at once", "stopped before it closes", "stopped after its commit"],
)
def test_a_resumed_run_whose_validator_turns_red_pushes_what_it_does_then(
    world: World, folder: Path, parts: list[list[Reply]]
) -> None:
    """The branch was pushed before the first job stopped; the commit that mends the fault belongs on it, too."""
    command = 'grep "$(cat ~/wanted 2>/dev/null || echo hello)" greeting.txt'
    world.edit("steps_registry.json", lambda it: it["validators"]["greeting"].update(command=command))
    fail_boundary(world, folder)
    before = world.branches()[BRANCH]
    for replies in parts:
        inputs = {"run_folder": str(folder), "setup": "echo whole > ~/wanted", "on_failure": "nothing"}
        done = world.run(replies, **inputs)
    assert done.outputs["outcome"] == "completed", done.log
    tip = world.branches()[BRANCH]
    assert tip != before
    assert git("show", f"{tip}:greeting.txt", cwd=world.served) == "hello, whole world\n"
    assert (len(world.pulls()), len(world.comments())) == (1, 1)


def test_a_resumed_run_that_fails_its_validators_for_good_writes_nothing_more(world: World, folder: Path) -> None:
    command = "test ! -e ~/red && grep hello greeting.txt"
    world.edit("steps_registry.json", lambda it: it["validators"]["greeting"].update(command=command))
    world.edit(
        "steps_registry.json", lambda it: it["validationSteps"]["closure.issue"]["onFailure"].update(action="abort")
    )
    fail_boundary(world, folder)
    before = written(world)
    done = world.run([], run_folder=str(folder), setup="touch ~/red", on_failure="nothing")
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("validation_failed", "false")
    assert (written(world), world.pulls(), world.comments()) == (before, [], [])


def test_a_resumed_run_that_takes_its_commit_back_leaves_no_bundle_of_it(world: World, folder: Path) -> None:
    command = "test ! -e ~/red || ! grep world greeting.txt"
    world.edit("steps_registry.json", lambda it: it["validators"]["greeting"].update(command=command))
    fail_boundary(world, folder)
    assert (folder / "work.bundle").exists()
    before = world.branches()
    replies = [bash("git reset --quiet --hard HEAD^"), SUMMARY, CLOSE]
    inputs = {"run_folder": str(folder), "setup": "touch ~/red", "on_failure": "push-branch"}
    done = world.run(replies, **inputs)
    assert done.outputs["outcome"] in ("completed", "no_changes"), done.log
    assert not (folder / "work.bundle").exists()
    assert world.branches() == before


def test_no_snapshot_holds_a_secret_of_the_run(world: World, folder: Path) -> None:
    """The folder is uploaded, where more people read than may know it."""
    (world.checkout / "npmrc").write_text("x" * 65_530 + TOKEN)
    done = world.run([understood()], run_folder=str(folder), on_failure="nothing")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert done.log.count("contains a secret of this run") == 1
    again = world.run([understood()], run_folder=str(folder), on_failure="nothing")
    assert "A new run begins" in again.log


#: Where forged receipts lead.
ADDRESSES = {
    "another server": "https://evil.example/pull/1",
    "a repository of a longer name": "{server}/o/r-evil.example/pull/1",
    "a server of a longer name": "{server}.evil.example/o/r/pull/1",
}


@pytest.mark.parametrize(
    ("address", "branch"),
    list(zip(ADDRESSES.values(), ["main", f"{BRANCH}-evil", f"evil/{BRANCH}"], strict=True)),
    ids=ADDRESSES,
)
def test_a_forged_receipt_is_not_believed(world: World, folder: Path, address: str, branch: str) -> None:
    fail_boundary(world, folder)
    events = journal(folder)
    push = next(event for event in events if event["event"] == "effect_applied" and event["kind"] == "push_branch")
    url = address.format(server=world.git_server.url)
    elsewhere = {**push, "kind": "open_pull_request", "url": url, "number": 1, "detail": "x"}
    push["branch"] = branch
    rewrite(folder, [*events[:-1], {**elsewhere, "status": "applied"}, events[-1]])
    done = world.run([], run_folder=str(folder))
    assert done.outputs["outcome"] == "completed"
    assert [pull["head"] for pull in world.pulls()] == [BRANCH]
    assert "evil.example" not in json.dumps(world.comments())


@pytest.mark.parametrize("label", ["important", "agent:other", "Agent:*"])
def test_a_forged_folder_takes_no_label_off_that_starts_no_such_agent(world: World, folder: Path, label: str) -> None:
    fail_boundary(world, folder)
    events = journal(folder)
    events[0]["started_by"]["label"] = label
    rewrite(folder, events)
    world.github.state.issues[7]["labels"].append(label)
    world.play([])
    given = {"inputs": {}, "repository": {"full_name": "o/r", "default_branch": "main"}}
    inputs = {"agent": "fixer", "issue": "7", "run_folder": str(folder)}
    done = world.runner.run(given, name="workflow_dispatch", **inputs)
    assert done.outputs["outcome"] == "completed", done.log
    assert "The run is resumed after" in done.log
    assert label in world.labels()


FORGED = {"branch": "stepflow/fixer/issue-7-2", "commit": "0" * 40}


def forge_receipts(
    world: World, folder: Path, branch: str = FORGED["branch"], login: str = "ann", *, says_what_is: bool = False
) -> None:
    """A folder that names a pull request and a branch of the repository, which are not the run's."""
    git("branch", branch, "main", cwd=world.served)
    pull = world.github.state.add_pull(branch, login=login)
    events = journal(folder)
    push = next(event for event in events if event["event"] == "effect_applied" and event["kind"] == "push_branch")
    commit, name = (world.branches()[branch], branch) if says_what_is else (FORGED["commit"], "x")
    push |= {"branch": branch, "commit": commit, "url": f"{world.git_server.url}/o/r/tree/{name}"}
    opened = {**push, "kind": "open_pull_request", "url": f"{world.git_server.url}/o/r/pull/{pull['number']}"}
    opened |= {"number": pull["number"], "branch": "", "commit": "", "status": "applied"}
    events = [each for each in events if each.get("kind") != "open_pull_request" or each["event"] != "effect_applied"]
    rewrite(folder, [*events[:-1], opened, events[-1]])


@pytest.mark.parametrize("theirs", ["a person's", "a run's for another issue"])
def test_branch_and_pull_request_of_a_forged_folder_are_asked_of_github(
    world: World, folder: Path, theirs: str
) -> None:
    fail_boundary(world, folder)
    branch, login = FORGED["branch"], "ann"
    if theirs == "a run's for another issue":
        branch, login = f"{BRANCH}0", world.github.state.viewer[0]
    forge_receipts(world, folder, branch, login, says_what_is=login != "ann")
    done = world.run([], run_folder=str(folder))
    assert done.outputs["outcome"] == "completed", done.log
    assert done.outputs["branch"] == BRANCH
    assert done.outputs["commit"] == world.branches()[BRANCH]
    assert [pull["head"] for pull in world.pulls()] == [branch, BRANCH]
    assert done.outputs["pull-request"] == str(world.pulls()[1]["number"])


def test_a_run_that_goes_on_and_fails_names_no_forged_branch(world: World, folder: Path) -> None:
    fail_boundary(world, folder)
    forge_receipts(world, folder)
    world.github.fail("GET", "/permission$", 500, times=99, skip=1)
    done = world.run([], run_folder=str(folder), on_failure="nothing")
    assert done.outputs["outcome"] == "boundary_failed", done.log
    assert [done.outputs[name] for name in ("branch", "commit", "pull-request", "pull-request-url")] == [""] * 4
    report = json.loads((folder / "report.json").read_text())
    assert FORGED["branch"] not in json.dumps(report["effects"])


def test_a_complete_folder_names_what_github_confirms_alone(world: World, folder: Path) -> None:
    first = world.run(solve(), run_folder=str(folder))
    again = world.run([], label_event(), resume=str(folder))
    names = ("branch", "commit", "pull-request", "pull-request-url")
    assert [again.outputs[name] for name in names] == [first.outputs[name] for name in names]
    # This job saw none of the run, so it gives nothing to sign.
    assert (Path(first.outputs["statement"]).name, again.outputs["statement"]) == ("statement.json", "")
    forge_receipts(world, folder)
    forged = world.run([], label_event(), resume=str(folder))
    assert (forged.exit_code, forged.outputs["outcome"]) == (0, "completed")
    assert [forged.outputs[name] for name in names] == [""] * 4


#: One fact of a receipt that leads elsewhere in the same repository, by the output that it would end in.
ELSEWHERE: dict[str, tuple[str, dict[str, object]]] = {
    "comment-url": ("post_comment", {"url": "{site}/issues/7#issuecomment-1"}),
    "pull-request-url": ("open_pull_request", {"url": "{site}/pull/99"}),
    "commit": ("push_branch", {"commit": "0" * 40}),
}


def forge_fact(world: World, folder: Path, kind: str, facts: dict[str, object]) -> None:
    """Change one receipt of a folder."""
    events = journal(folder)
    receipt = next(event for event in events if event["event"] == "effect_applied" and event["kind"] == kind)
    site = f"{world.git_server.url}/o/r"
    receipt |= {name: str(value).format(site=site) for name, value in facts.items()}
    rewrite(folder, events)


@pytest.mark.parametrize("output", ELSEWHERE)
def test_a_forged_fact_of_the_same_repository_is_not_told(world: World, folder: Path, output: str) -> None:
    world.github.state.faults.append(Fault("DELETE", "/labels/", 403, message="not today", times=9))
    first = world.run(solve(), run_folder=str(folder), on_failure="nothing")
    assert first.outputs["outcome"] == "boundary_failed", first.log
    world.github.state.faults.clear()
    forge_fact(world, folder, *ELSEWHERE[output])
    done = world.run([], run_folder=str(folder))
    assert done.outputs["outcome"] == "completed", done.log
    assert "The run is resumed after" in done.log
    facts = (*ELSEWHERE, "branch", "pull-request")
    assert {name: done.outputs[name] for name in facts} == {name: first.outputs[name] for name in facts}
    assert (len(world.pulls()), len(world.comments())) == (1, 1)
    assert done.outputs["comment-url"].endswith(f"#issuecomment-{world.github.state.comments[0]['id']}")


@pytest.mark.parametrize("output", ELSEWHERE)
def test_a_forged_fact_of_a_complete_folder_is_not_told(world: World, folder: Path, output: str) -> None:
    first = world.run(solve(), run_folder=str(folder))
    again = world.run([], label_event(), resume=str(folder))
    assert {name: again.outputs[name] for name in ELSEWHERE} == {name: first.outputs[name] for name in ELSEWHERE}
    forge_fact(world, folder, *ELSEWHERE[output])
    forged = world.run([], label_event(), resume=str(folder))
    assert (forged.outputs["outcome"], forged.outputs[output]) == ("completed", "")
    assert forged.outputs["comment-url"] == ("" if output == "comment-url" else first.outputs["comment-url"])


def test_a_complete_folder_names_no_comment_of_a_later_run(world: World, folder: Path) -> None:
    first = world.run(solve(), run_folder=str(folder))
    world.check_out_again()
    later = world.run(solve(), run_folder=f"{folder}-later")
    assert later.outputs["comment-url"] == first.outputs["comment-url"] != "", "it is the same comment"
    again = world.run([], label_event(), resume=str(folder))
    assert (again.outputs["outcome"], again.outputs["comment-url"]) == ("completed", "")


def test_a_complete_folder_tells_of_no_failure(world: World, folder: Path) -> None:
    """A run that completed keeps its work on its branch, and has no comment of a failure."""
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(allowedEffects=["comment"]))
    first = world.run(solve(), run_folder=str(folder))
    assert first.outputs["outcome"] == "completed", first.log
    events = journal(folder)
    failure = {"event": "failure_reported", "detail": "x", "url": f"{world.git_server.url}/o/r/issues/1", **FORGED}
    rewrite(folder, [*events[:-1], {**events[-1], **failure}, events[-1]])
    forged = world.run([], label_event(), resume=str(folder))
    assert forged.outputs["outcome"] == "completed"
    assert [forged.outputs[name] for name in ("branch", "commit")] == ["", ""]
    assert forged.outputs["comment-url"] == first.outputs["comment-url"]


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_run_that_goes_on_and_fails_names_no_forged_address(world: World, folder: Path, address: str) -> None:
    """Nothing is written any more, so no receipt of this job takes the place of the forged one."""
    fail_boundary(world, folder)
    events = journal(folder)
    push = next(event for event in events if event["event"] == "effect_applied" and event["kind"] == "push_branch")
    url = address.format(server=world.git_server.url)
    elsewhere = {**push, "kind": "open_pull_request", "url": url, "number": 1, "detail": "x"}
    rewrite(folder, [*events[:-1], {**elsewhere, "status": "applied"}, events[-1]])
    world.github.fail("GET", "/permission$", 500, times=99, skip=1)
    done = world.run([], run_folder=str(folder), on_failure="nothing")
    assert done.outputs["outcome"] == "boundary_failed", done.log
    assert "evil.example" not in json.dumps(done.outputs)
    assert "evil.example" not in done.summary


def test_a_folder_from_elsewhere_raises_no_limit_and_names_no_actor(world: World, folder: Path) -> None:
    work_on = answer("continuation.issue", "repeat", summary="still at it")
    done = world.run([understood(), work_on], run_folder=str(folder), limits={"iterations": 2}, on_failure="nothing")
    assert done.outputs["outcome"] == "limit_reached"
    events = journal(folder)
    events[0]["options"] |= {
        "limits": {"iterations": 50},
        "max-turns-per-step": 50,
        "start": {"min-permission": "read"},
    }
    events[0]["started_by"]["actor"] = "octocat"
    rewrite(folder, events)
    requests = len(world.model.bodies)
    done = world.run([work_on], run_folder=str(folder), limits={"iterations": 2}, on_failure="nothing")
    assert done.outputs["outcome"] == "limit_reached"
    assert len(world.model.bodies) == requests
    world.github.state.permissions["bob"] = "read"
    continued = [answer("continuation.issue", "handoff", summary="s"), answer("closure.issue", "closing")]
    commit = bash("echo 'hello, world' > greeting.txt && git -c user.name=M -c user.email=m@x commit -qam Greet")
    done = world.run([commit, *continued], run_folder=str(folder), on_failure="nothing")
    assert done.outputs["outcome"] == "refused"
    assert written(world) == []


def test_the_budget_of_an_issue_counts_what_the_earlier_job_has_spent(world: World, folder: Path) -> None:
    first = world.run([understood()], run_folder=str(folder), limits={"iterations": 1})
    assert first.outputs["outcome"] == "limit_reached"
    requests = len(world.model.bodies)
    spent = float(first.outputs["cost-usd"])
    done = world.run([bash("true")], run_folder=str(folder), limits={"usd-per-issue": f"{spent / 2:.6f}"})
    assert done.outputs["outcome"] == "budget_exhausted"
    assert (len(world.model.bodies), float(done.outputs["cost-usd"])) == (requests, spent)


def test_a_named_folder_without_a_run_exits_with_2_and_a_complete_one_with_0(world: World, folder: Path) -> None:
    missing = world.run(solve(), resume=str(folder))
    assert missing.exit_code == 2
    assert "no run to resume" in missing.outputs["reason"]
    both = world.run(solve(), resume=str(folder), run_folder=str(folder.with_name("other")))
    assert (both.exit_code, "leave out run-folder" in both.outputs["reason"]) == (2, True)
    first = world.run(solve(), run_folder=str(folder))
    before, requests = (folder / "journal.jsonl").read_bytes(), len(written(world))
    again = world.run([], label_event(), resume=str(folder))
    assert (again.exit_code, again.outputs["outcome"]) == (0, "completed")
    assert again.outputs["pull-request"] == first.outputs["pull-request"]
    assert "nothing to resume" in again.log
    assert ((folder / "journal.jsonl").read_bytes(), len(written(world))) == (before, requests)
