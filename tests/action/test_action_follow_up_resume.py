"""A follow-up that goes on in its folder, and what its tokens and its tools may reach; a forged folder is not law."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.action.follow_up_world import ANSWERS, PULL, before_last, failed, follow_up, improve, last_words, reviewed
from tests.action.killed import KILLED, Nursery
from tests.checkout import Invocation, git
from tests.sandbox.credentials_world import PAYLOAD, persist_as_v5
from tests.servers.messages_api import Reply
from tests.world import BRANCH, READ_TOKEN, World, answer, bash, label_event

pytestmark = pytest.mark.whole

OTHER = f"{BRANCH}-2"
REPLY = "/graphql addPullRequestReviewThreadReply$"


@pytest.fixture
def folder(opened: World) -> str:
    """The run folder that every job of these tests is given."""
    return str(opened.runner.folder / "mine")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def pushes(world: World) -> int:
    return sum(request.path.endswith("/git-receive-pack") for request in world.git_server.requests)


def assert_whole(world: World, begun_at: str, commits: int = 1) -> None:
    """GitHub is as after a run that nothing disturbed."""
    assert git("rev-list", "--count", f"{begun_at}..{BRANCH}", cwd=world.served).strip() == str(commits)
    assert [len(each["comments"]) for each in world.github.state.threads[:3]] == [2, 2, 1]
    assert [each["resolved"] for each in world.github.state.threads[:3]] == [True, False, False]
    assert world.github.mutations().count("resolveReviewThread") == 1
    assert (len(world.comments()), len(world.pulls())) == (1, 1)


@pytest.mark.parametrize("line", ["tool_call", "validator_ran", "effect_applied"])
def test_a_follow_up_that_was_killed_goes_on(opened: World, folder: str, nursery: Nursery, line: str) -> None:
    begun_at, first = opened.branches()[BRANCH], improve(threads=ANSWERS)
    opened.model.requests.clear()
    opened.play(first)
    environ = opened.runner.prepare(reviewed(), name="pull_request_review", run_folder=folder)
    assert nursery.run(environ, Path(folder).parent / "log", die_after_first=line).code == KILLED
    before, asked = pushes(opened), len(opened.model.bodies)
    done = follow_up(opened, first[asked:], run_folder=folder)
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    assert len(opened.model.bodies) == len(first)
    assert pushes(opened) - before == (line != "effect_applied")
    (started,) = (event for event in opened.events(done) if event["event"] == "run_started")
    assert started["base_commit"] == begun_at
    assert_whole(opened, begun_at)


def test_failed_checks_go_on_behind_their_own_push(opened: World, folder: str) -> None:
    """The event names the commit that the run itself has left behind."""
    opened.github.state.add_job(500, "test", "failure", log=b"too quiet")
    given = failed(opened)
    opened.github.fail("PATCH", "/issues/comments/", 500, times=999)
    first = follow_up(opened, improve(), given, name="workflow_run", run_folder=folder)
    assert first.outputs["outcome"] == "boundary_failed", first.log
    opened.github.state.faults.clear()
    tip = opened.branches()[BRANCH]
    done = follow_up(opened, [], given, name="workflow_run", run_folder=folder)
    assert (done.outputs["outcome"], opened.branches()[BRANCH]) == ("completed", tip), done.log
    assert "The review is followed." in opened.comments()[0]


@pytest.mark.parametrize("commits", ["git", "verified"])
def test_what_a_resumed_run_mends_goes_on_top_of_what_it_pushed(opened: World, folder: str, commits: str) -> None:
    command = 'grep "$(cat ~/wanted 2>/dev/null || echo hello)" greeting.txt'
    opened.edit("steps_registry.json", lambda it: it["validators"]["greeting"].update(command=command))
    begun_at = opened.branches()[BRANCH]
    opened.github.fail("POST", REPLY, 500, times=999)
    first = follow_up(opened, improve(threads=ANSWERS), run_folder=folder, commits=commits)
    assert first.outputs["outcome"] == "boundary_failed", first.log
    opened.github.state.faults.clear()
    mended = improve("hello, whole world", threads=ANSWERS)
    done = follow_up(opened, mended, run_folder=folder, commits=commits, setup="echo whole > ~/wanted")
    assert done.outputs["outcome"] == "completed", done.log
    assert git("show", f"{BRANCH}:greeting.txt", cwd=opened.served) == "hello, whole world\n"
    assert_whole(opened, begun_at, commits=2)


def other_pull_request(world: World) -> int:
    """Another pull request of the same agent and issue, with a thread."""
    git("branch", OTHER, BRANCH, cwd=world.served)
    number = int(world.github.state.add_pull(OTHER, login=world.github.state.viewer[0])["number"])
    world.github.state.add_thread(number, ("bob", "Greet the moon."), path="greeting.txt")
    return number


def test_the_folder_of_another_pull_request_does_not_go_on(opened: World, folder: str) -> None:
    assert follow_up(opened, improve()[:1], run_folder=folder).outputs["outcome"] == "model_failed"
    number, before = other_pull_request(opened), opened.branches()[BRANCH]
    done = follow_up(opened, improve(), reviewed(number=number), run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert "it is of another pull request" in done.log
    assert opened.branches()[BRANCH] == before != opened.branches()[OTHER]


@pytest.fixture
def planned(opened: World, folder: str) -> World:
    """A follow-up that waits for approval before it closes, with its commit made."""
    rule = {"approval": {"by": "write"}}
    opened.edit(
        "steps_registry.json", lambda it: it["steps"]["continuation.issue"]["transitions"]["handoff"].update(rule)
    )
    done = follow_up(opened, improve()[:2], run_folder=folder)
    assert (done.outputs["outcome"], done.exit_code) == ("awaiting_approval", 0), done.log
    return opened


def approve(world: World, folder: str, replies: list[Reply]) -> Invocation:
    """bob approves on the issue what is asked there."""
    (comment,) = world.comments()
    (digest,) = re.findall(r"approves ([0-9a-f]{20})", comment)
    user = {"login": "bob", "type": "User"}
    said = {"body": f"/stepflow approve {digest}", "user": user, "author_association": "MEMBER"}
    given = {**label_event(), "action": "created", "comment": said, "sender": user}
    return follow_up(world, replies, given, name="issue_comment", run_folder=folder)


def test_an_approval_on_the_issue_brings_the_commits_to_the_pull_request(planned: World, folder: str) -> None:
    begun_at = planned.branches()[BRANCH]
    done = approve(planned, folder, improve(threads=ANSWERS)[2:])
    assert (done.outputs["outcome"], done.outputs["pull-request"]) == ("completed", str(PULL)), done.log
    assert last_words(planned, 1) == f"Applied in {planned.branches()[BRANCH]}. It shouts now."
    assert_whole(planned, begun_at)


def test_a_pull_request_that_was_closed_meanwhile_is_left_alone(planned: World, folder: str) -> None:
    planned.pulls()[0]["state"] = "closed"
    before = planned.branches()
    done = approve(planned, folder, improve()[2:])
    assert (done.outputs["outcome"], done.exit_code) == ("skipped", 0), done.log
    assert f"pull request #{PULL} is closed" in done.outputs["reason"]
    assert planned.branches() == before


def forge(folder: str, **facts: Any) -> None:
    """Change what the folder says of the pull request that its run follows up on."""
    path = Path(folder) / "journal.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    started = next(event for event in events if event["event"] == "run_started")
    started["follow_up"].update(facts)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (lambda _: {"branch": "main"}, "another pull request"),
        (lambda _: {"base": "bobs"}, "another pull request"),
        (lambda _: {"url": "https://evil.example/pull/8"}, "another pull request"),
        (lambda world: {"pull_request": world.pulls()[1]["number"]}, "has no commits"),
        (lambda world: {"pull_request": other_pull_request(world)}, "another pull request"),
    ],
    ids=["default branch", "base", "address", "a person's pull request", "one more of ours"],
)
def test_a_forged_folder_pushes_nowhere(
    planned: World, folder: str, facts: Callable[[World], dict[str, Any]], says: str
) -> None:
    git("branch", "bobs", BRANCH, cwd=planned.served)
    planned.github.state.add_pull("bobs", login="bob")
    forge(folder, **facts(planned))
    planned.model.requests.clear()
    before = planned.branches()
    done = approve(planned, folder, improve(threads=ANSWERS)[2:])
    assert done.outputs["outcome"] in ("refused", "skipped"), done.log
    assert says in done.outputs["reason"]
    assert (planned.branches(), planned.model.requests) == (before, [])
    assert {len(each["comments"]) for each in planned.github.state.threads} == {1}


def test_a_forged_folder_speaks_in_no_thread_of_another_pull_request(planned: World, folder: str) -> None:
    other_pull_request(planned)
    forge(folder, threads=["PRRT_1", "PRRT_4"])
    answers = [{"thread": name, "applied": True, "why": "Done."} for name in ("PRRT_1", "PRRT_4")]
    done = approve(planned, folder, [answer("closure.issue", "closing", comment="Done.", threads=answers)])
    assert done.outputs["outcome"] == "completed", done.log
    assert [each["resolved"] for each in planned.github.state.threads] == [True, False, False, False]
    assert len(planned.github.state.threads[3]["comments"]) == 1


LOGIN = {"type": "service_account", "private_key_id": "k1", "private_key": "key-of-the-cloud-0123456789"}


@pytest.mark.parametrize("commits", ["git", "verified"])
def test_until_the_model_is_through_the_write_token_asks_nothing(opened: World, commits: str) -> None:
    api, git_server = opened.github, opened.git_server
    api.read_token = git_server.read_token = opened.runner.inputs["read-token"] = READ_TOKEN
    api.requests.clear()
    git_server.requests.clear()
    seen: list[int] = []

    def count(_: World) -> None:
        seen.extend((len(api.requests), len(git_server.requests)))

    done = follow_up(opened, before_last(opened, improve(threads=ANSWERS), count), commits=commits)
    assert done.outputs["outcome"] == "completed", done.log
    before, fetched = api.requests[: seen[0]], git_server.requests[: seen[1]]
    assert {each.credential for each in before} == {"read"}
    assert fetched
    assert all(each.read_only for each in fetched)
    assert not any(each.read_only for each in git_server.requests[seen[1] :])
    # What wrote is the other token, without exception.
    writes = [each for each in api.requests if each.method != "GET" and not each.path.endswith("/graphql")]
    mutations = [each for each in api.requests if each.body and str(each.body.get("query", "")).startswith("mutation")]
    assert {each.credential for each in (*writes, *mutations)} == {"write"}


def test_a_read_token_of_another_account_follows_up_nothing_and_names_it(opened: World) -> None:
    opened.github.read_token = opened.git_server.read_token = opened.runner.inputs["read-token"] = READ_TOKEN
    opened.github.state.reader = ("reader[bot]", 77)
    done = follow_up(opened, improve(threads=ANSWERS))
    assert done.outputs["outcome"] == "skipped", done.log
    assert "that reader[bot] pushed for an agent" in done.outputs["reason"]


def test_tools_find_no_credential_in_the_workspace_or_in_the_checkout(opened: World) -> None:
    checkout = opened.checkout
    persist_as_v5(checkout)
    login = checkout / "gha-creds-1.json"
    login.write_text(json.dumps(LOGIN))
    opened.runner.environ = {**opened.runner.environ, "GOOGLE_GHA_CREDS_PATH": str(login)}
    config = (checkout / ".git/config").read_bytes()
    # Turned, so that nothing takes it out of the output again.
    turn = "tr A-Za-z N-ZA-Mn-za-m"
    looks: list[Reply] = [
        bash(f"cat {place}/.git/config {place}/{login.name} | {turn}; echo looked") for place in (".", checkout)
    ]
    before = opened.branches()[BRANCH]
    done = follow_up(opened, [*looks, *improve(threads=ANSWERS)])
    assert done.outputs["outcome"] == "completed", done.log
    outputs = [each["output"] for each in opened.events(done) if each["event"] == "tool_call"][: len(looks)]
    assert all("looked" in output for output in outputs)
    assert codecs.encode("[core]", "rot13") in outputs[0]
    for secret in (PAYLOAD, LOGIN["private_key"]):
        assert codecs.encode(secret, "rot13") not in "".join(outputs)
    assert opened.branches()[BRANCH] != before
    assert ((checkout / ".git/config").read_bytes(), json.loads(login.read_text())) == (config, LOGIN)
