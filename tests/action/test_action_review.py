"""A review of somebody's pull request through the whole action: what stands on GitHub afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.action.follow_up_world import before_last
from tests.action.killed import KILLED, Nursery
from tests.action.review_world import Change, labeled, let_review, move_base, propose, pull, push, review
from tests.action.test_action_killed import FULL
from tests.action.test_action_proof_flow import BUGGY, COMMAND, FIXED, STRONG, WEAK
from tests.checkout import Invocation
from tests.servers.messages_api import Reply
from tests.world import SOURCE, World, answer, understood

LINES = [f"line {number}\n" for number in range(1, 41)]
TEXT = "".join(LINES)
TWENTY = TEXT.replace("line 20\n", "line twenty\n")
FORTY = TEXT.replace("line 40\n", "line forty\n")


def let_try(world: World, command: str = "! grep -q BROKEN *.txt") -> None:
    """The agent reviews, and its check `greeting` is this command."""
    let_review(world)
    own = json.loads((SOURCE / ".agent" / "fixer" / "steps_registry.json").read_text())

    def restore(registry: dict[str, Any]) -> None:
        registry |= {part: own[part] for part in ("validators", "failurePatterns", "validationSteps")}
        registry["validators"]["greeting"]["command"] = command

    world.edit("steps_registry.json", restore)


@pytest.fixture
def reviewing(world: World) -> World:
    let_try(world)
    world.runner.inputs["on-failure"] = "nothing"
    move_base(world, {"long.txt": TEXT, "old.txt": TEXT, "crlf.txt": TEXT.replace("\n", "\r\n")})
    return world


def on(line: int, body: str = "This counts twice.", path: str = "long.txt", **more: Any) -> dict[str, Any]:
    return {"path": path, "line": line, "body": body, **more}


def says(*comments: dict[str, Any], verdict: str = "comment", summary: str = "I looked at it.") -> list[Reply]:
    """An agent that reads and answers with this review."""
    return [
        understood(),
        answer("continuation.issue", "handoff", summary="read"),
        answer("closure.issue", "closing", review={"summary": summary, "verdict": verdict, "comments": [*comments]}),
    ]


def run(world: World, number: int, *comments: dict[str, Any], verdict: str = "comment", **options: Any) -> Invocation:
    done = review(world, labeled(world, number), says(*comments, verdict=verdict), **options)
    assert done.outputs["outcome"] == "completed", done.log
    return done


def places(world: World) -> list[tuple[str, int]]:
    return [(thread["path"], thread["line"]) for thread in world.github.state.threads]


def bodies(world: World) -> list[str]:
    """The comments on lines, without the lines that nobody sees."""
    return [thread["comments"][0]["body"].rpartition("\n\n<!--")[0] for thread in world.github.state.threads]


#: What the pull request changes, facts of it, the comment, and where it is then; nowhere means in the summary.
STORIES: dict[str, tuple[Change, dict[str, Any], dict[str, Any], tuple[str, int] | None]] = {
    "of a fork": ({"long.txt": TWENTY}, {}, on(20), ("long.txt", 20)),
    "of our own branch": ({"long.txt": TWENTY}, {"fork": "o/r", "login": "bob"}, on(20), ("long.txt", 20)),
    "a draft": ({"long.txt": TWENTY}, {"draft": True}, on(20), ("long.txt", 20)),
    "renamed": ({"old.txt": None, "new.txt": TWENTY}, {}, on(20, path="new.txt"), ("new.txt", 20)),
    "renamed, by the old name": ({"old.txt": None, "new.txt": TWENTY}, {}, on(20, path="old.txt"), None),
    "deleted": ({"old.txt": None}, {}, on(20, path="old.txt", side="LEFT"), ("old.txt", 20)),
    "deleted, on new lines": ({"old.txt": None}, {}, on(20, path="old.txt"), None),
    "binary": ({"a.png": b"\0PNG\n"}, {}, on(1, path="a.png"), None),
    "300 files": ({f"many/{n}.txt": "x\n" for n in range(300)}, {}, on(1, path="many/99.txt"), ("many/99.txt", 1)),
    "outside of the diff": ({"long.txt": TWENTY}, {}, on(3), None),
    "on two parts of it": (
        {"long.txt": TWENTY.replace("line 35\n", "x\n")},
        {},
        on(35, start_line=20),
        None,
    ),
}


#: Of the stories, the fast tests try these.
FAST = ("of a fork",)


@pytest.mark.sample(2)
@pytest.mark.whole
@pytest.mark.parametrize(
    "story", [pytest.param(story, marks=[pytest.mark.whole] * (story not in FAST)) for story in STORIES]
)
def test_a_comment_is_on_its_line_or_in_the_summary(reviewing: World, story: str) -> None:
    changes, facts, comment, place = STORIES[story]
    number = propose(reviewing, changes, **facts)
    done = run(reviewing, number, comment)
    (made,) = reviewing.github.state.reviews
    assert (made["state"], made["commit"]) == ("COMMENTED", reviewing.branches()["topic"])
    assert places(reviewing) == ([place] if place else [])
    assert ("On lines that the diff does not show" in made["body"]) is (place is None)
    assert done.outputs["comment-url"] == f"{reviewing.github.web_url}/o/r/pull/{number}#pullrequestreview-{made['id']}"
    assert reviewing.comments() == []
    assert reviewing.github.state.issues[number]["labels"] == []


@pytest.mark.whole
def test_a_base_that_moved_shifts_the_lines_of_the_workspace_only(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TWENTY})
    move_base(reviewing, {"long.txt": f"new\nnew\n{TEXT}"}, number)
    run(reviewing, number, on(22, "Here:", suggestion="line 20"))
    assert places(reviewing) == [("long.txt", 20)]
    assert bodies(reviewing) == ["Here:\n\n```suggestion\nline 20\n```"]


@pytest.mark.whole
def test_suggestions_were_tried_before_they_are_offered(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TWENTY, "crlf.txt": TWENTY.replace("\n", "\r\n")})
    done = run(
        reviewing,
        number,
        on(20, "Good:", suggestion="line 20"),
        on(21, "Red:", suggestion="BROKEN"),
        on(3, "Far:", suggestion="line three"),
        on(20, "Twice:", suggestion="line zwanzig"),
        on(20, "Same:", path="crlf.txt", suggestion="line 20\n"),
        on(22, "Endings:", suggestion="line 22\r\n"),
        on(23, "Both:", suggestion="line\r\n23\n"),
    )
    offered = [body.partition(":")[0] for body in bodies(reviewing) if "```suggestion\n" in body]
    assert offered == ["Good", "Same"]
    texts = "\n".join(bodies(reviewing))
    assert "Red:\n\n*Not offered as a suggestion: it makes `greeting` fail.*\n\n```text\nBROKEN\n```" in texts
    assert "it overlaps the one for `long.txt:20`" in texts
    assert "Endings:\n\n*Not offered as a suggestion: it changes nothing.*" in texts
    assert "it would change line endings" in texts
    summary = reviewing.github.state.reviews[0]["body"]
    assert "**Suggestions:** 2 of 7 offered, applied to a copy of what is reviewed, where `greeting` passed." in summary
    assert "Far:\n\n*Not offered as a suggestion: the diff does not show these lines.*" in summary
    assert "[Review] running the checks without a suggestion" in done.log
    (tried,) = [event for event in reviewing.events(done) if event["event"] == "suggestions_tried"]
    assert [each["red"] for each in tried["results"]["suggestions"] if each["red"]] == [["greeting"]]


@pytest.mark.whole
def test_a_suggestion_that_breaks_the_setup_becomes_words(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TWENTY})
    reviewing.runner.inputs["setup"] = "! grep BROKEN *.txt"
    run(reviewing, number, on(20, "Good:", suggestion="line 20"), on(21, "Breaks it:", suggestion="BROKEN"))
    good, broken = bodies(reviewing)
    assert good == "Good:\n\n```suggestion\nline 20\n```"
    assert "*Not offered as a suggestion: with it, the setup commands failed with exit code 1.*" in broken


@pytest.mark.whole
def test_a_pull_request_whose_checks_are_red_is_reviewed_all_the_same(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TEXT.replace("line 20\n", "BROKEN\n")})
    run(reviewing, number, on(20, "Mend it:", suggestion="line 20"), on(21, "Or:", suggestion="line XXI"))
    assert [body.count("```suggestion") for body in bodies(reviewing)] == [1, 1]
    said = "- `greeting` failed without a suggestion too, which counts against none of them."
    assert said in reviewing.github.state.reviews[0]["body"]


@pytest.mark.whole
def test_suggestions_are_tried_with_the_network_of_the_agent(world: World) -> None:
    host, port = urlsplit(world.github.web_url).netloc.split(":")
    let_try(world, f"! bash -c ': > /dev/tcp/{host}/{port}'")
    world.edit("agent.json", lambda agent: agent["runner"].update(boundaries={"network": "none"}))
    move_base(world, {"long.txt": TEXT})
    number = propose(world, {"long.txt": TWENTY})
    run(world, number, on(20, "Closed:", suggestion="line 20"))
    assert "where `greeting` passed." in world.github.state.reviews[0]["body"]


@pytest.mark.whole
def test_a_second_push_gets_what_is_new(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TWENTY})
    run(reviewing, number, on(20), verdict="request_changes")
    reviewing.github.state.threads[0]["line"] = None  # it is outdated
    push(reviewing, number, {"long.txt": TWENTY.replace("line 40\n", "line forty\n")})
    run(reviewing, number, on(20), on(40, "And this."))
    first, second = reviewing.github.state.reviews
    assert (first["state"], second["state"]) == ("DISMISSED", "COMMENTED")
    assert second["commit"] == reviewing.branches()["topic"]
    assert [thread["path"] for thread in reviewing.github.state.threads] == ["long.txt", "long.txt"]
    assert bodies(reviewing)[1] == "And this."


@pytest.mark.whole
def test_where_actions_may_not_approve_the_run_completes_with_a_review_that_comments(world: World) -> None:
    def allow(agent: dict[str, Any]) -> None:
        agent["runner"]["integrations"]["github"]["review"] = {"mayApprove": True}

    let_try(world)
    world.edit("agent.json", allow)
    move_base(world, {"long.txt": TEXT})
    world.github.state.may_approve = False
    done = run(world, propose(world, {"long.txt": TWENTY}), on(20), verdict="approve")
    (made,) = world.github.state.reviews
    assert (made["state"], places(world)) == ("COMMENTED", [("long.txt", 20)])
    for said in (done.log, done.summary, made["body"]):
        assert "GitHub Actions is not permitted to approve pull requests." in said


@pytest.mark.whole
def test_findings_on_a_locked_pull_request_are_in_the_summary_of_the_job(reviewing: World) -> None:
    number = propose(reviewing, {"long.txt": TWENTY})
    event = labeled(reviewing, number)
    replies = before_last(reviewing, says(on(20)), lambda world: world.github.state.locked.add(number))
    done = review(reviewing, event, replies)
    assert (done.outputs["outcome"], done.exit_code) == ("boundary_failed", 1), done.log
    assert reviewing.github.state.reviews == reviewing.comments() == []
    assert "lock prevents review" in done.outputs["reason"]
    assert "unlock it" in done.outputs["reason"]
    kept = done.summary.partition("could not write</summary>")[2]
    for words in ("I looked at it.", "`long.txt:20`", "This counts twice."):
        assert words in kept


@pytest.mark.whole
@pytest.mark.parametrize(("merged", "word"), [(None, "closed"), ("2026-01-02T03:04:05Z", "merged")])
def test_a_pull_request_that_is_over_meanwhile_gets_nothing(reviewing: World, merged: str | None, word: str) -> None:
    number = propose(reviewing, {"long.txt": TWENTY})
    event = labeled(reviewing, number)

    def end(replies: Iterator[Reply]) -> Callable[[dict[str, Any]], Reply]:
        def reply(_body: dict[str, Any]) -> Reply:
            pull(reviewing, number).update(state="closed", merged_at=merged)
            return next(replies)

        return reply

    done = review(reviewing, event, end(iter(says(on(20)))))
    assert done.outputs["outcome"] == "refused", done.log
    assert f"was {word} while the run reviewed it" in done.outputs["reason"]
    assert reviewing.github.writes() == []


@pytest.mark.whole
@pytest.mark.parametrize(("test", "proven"), [(STRONG, "true"), (WEAK, "false")], ids=["strong", "weak"])
def test_a_review_carries_the_proof_of_the_pull_request(world: World, test: str, proven: str) -> None:
    let_review(world)
    move_base(world, {"greeting.py": BUGGY})
    number = propose(world, {"greeting.py": FIXED, "test_greeting.py": test})
    world.runner.inputs |= {"agent": "builtin/review", "prove": COMMAND}
    fix = on(2, "Shorter:", "greeting.py", suggestion='    return f"hello, {name}"')
    review_of_it = {"summary": "I looked at it.", "verdict": "comment", "comments": [fix]}
    replies = [
        answer("initial.default", "next", question="Does it greet?", places="greeting.py"),
        answer("continuation.default", "handoff", findings="It could be shorter."),
        answer("closure.default", "closing", missing="nothing", comment="", review=review_of_it),
    ]
    done = review(world, labeled(world, number, label="agent:review"), replies, checks="python3 -m unittest")
    assert (done.outputs["outcome"], done.outputs["proven"]) == ("completed", proven), done.log
    (made,) = world.github.state.reviews
    assert "**Proof of fix**" in made["body"]
    assert ("✅ **Proven.**" in made["body"]) is (proven == "true")
    assert ("it makes `unittest` fail" in bodies(world)[0]) is (proven == "true")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def prepare_second_review(world: World) -> int:
    number = propose(world, {"long.txt": TWENTY})
    run(world, number, on(20), verdict="request_changes")
    push(world, number, {"long.txt": TWENTY.replace("line 40\n", "line forty\n")})
    world.github.state.issues[number]["labels"] = ["agent:fixer"]
    return number


def assert_whole(world: World, number: int) -> None:
    """GitHub is as after a second review that nothing disturbed."""
    assert [(each["state"], each["body"].count("A newer review")) for each in world.github.state.reviews] == [
        ("DISMISSED", 1),
        ("COMMENTED", 0),
    ]
    assert places(world) == [("long.txt", 20), ("long.txt", 40)]
    assert world.github.state.issues[number]["labels"] == []
    assert world.comments() == []


#: The lines of a review's journal, before its last one.
LINES_OF_JOURNAL = 35


@pytest.mark.sample(2)
@pytest.mark.whole
@pytest.mark.parametrize("point", range(1, LINES_OF_JOURNAL + 1, 1 if FULL else 3))
def test_a_review_that_was_killed_after_any_line_is_written_once(
    reviewing: World, nursery: Nursery, point: int
) -> None:
    number, folder = prepare_second_review(reviewing), reviewing.runner.folder / "mine"
    replies = says(on(20), on(40, "And this.", suggestion="line XL"))
    reviewing.model.requests.clear()
    reviewing.play(replies)
    event = labeled(reviewing, number)
    environ = reviewing.runner.prepare(event, name="pull_request_target", run_folder=str(folder))
    assert nursery.run(environ, folder.parent / "log", die_after=point).code == KILLED
    *_, last = (json.loads(line)["event"] for line in (folder / "journal.jsonl").read_text().splitlines())
    # The clock decides whether there is one snapshot more.
    if last == "run_finished":
        assert point == LINES_OF_JOURNAL
    else:
        done = review(reviewing, event, replies[len(reviewing.model.bodies) :], run_folder=str(folder))
        assert done.outputs["outcome"] == "completed", done.log
    assert len(reviewing.model.bodies) == len(replies)
    assert_whole(reviewing, number)


#: Every write of a second review, and whether its answer is lost or it is never made.
WRITES = (("POST", "/reviews$"), ("PUT", r"/reviews/\d+$"), ("PUT", "/dismissals$"), ("DELETE", "/labels/"))


@pytest.mark.sample(2)
@pytest.mark.whole
@pytest.mark.parametrize("after_write", [False, True], ids=["not made", "answer lost"])
@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_review_that_failed_at_a_write_is_written_once(
    reviewing: World, method: str, path: str, after_write: bool
) -> None:
    number, folder = prepare_second_review(reviewing), str(reviewing.runner.folder / "mine")
    replies = says(on(20), on(40, "And this.", suggestion="line XL"))
    event = labeled(reviewing, number)
    reviewing.github.fail(method, path, 500, after_write=after_write, times=99)
    broken = review(reviewing, event, replies, run_folder=folder)
    reviewing.github.state.faults.clear()
    if broken.outputs["outcome"] != "completed":
        done = review(reviewing, event, [], run_folder=folder)
        assert done.outputs["outcome"] == "completed", done.log
    assert_whole(reviewing, number)
