"""With `progress: comment` the run's one comment shows how far it has come, in the engine's own words, until it becomes
the result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from stepflow.boundary.own_texts import is_progress, read_marker
from stepflow.run.progress import EARLIER_RUN_DIED, THIS_RUN_DIED
from tests.action.killed import KILLED, Nursery
from tests.servers.messages_api import Failure, Reply
from tests.world import BRANCH, World, answer, bash, label_event, solve, understood

AS_OF = re.compile(r"As of \S+ (\d\d:\d\d:\d\d) UTC")
PROGRESS = {"progress": "comment"}
ABORTS = [understood(), answer("continuation.issue", "abort")]


def paced(world: World, replies: Iterable[Reply], seconds: float, seen: list[str]) -> Iterator[Reply]:
    """The replies, each of which takes so many seconds; `seen` is what the comment says before each."""
    for reply in replies:
        seen += world.comments() or [""]
        world.clock.sleep(seconds)
        yield reply


def edits(world: World) -> list[str]:
    """The writes that concern the comment."""
    return [line.split("/", 1)[0].strip() for line in world.github.writes() if "comments" in line]


@pytest.mark.whole
def test_the_comment_follows_the_run_and_becomes_its_result(world: World) -> None:
    seen: list[str] = []
    done = world.run(paced(world, solve(), 40, seen), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert [is_progress(body) for body in seen] == [True] * 4
    assert "### ⏳ fixer on issue #7: running" in seen[0]
    assert "**Steps:**" not in seen[0]
    assert "**Steps:** initial.issue → continuation.issue\n" in seen[3]
    assert "2 iterations · " in seen[3]
    assert "· $0.0" in seen[3]
    assert "[the run](" in seen[3]
    assert edits(world)[0] == "POST"
    assert set(edits(world)[1:]) == {"PATCH"}
    (comment,) = world.comments()
    assert "The world is greeted now." in comment
    assert not is_progress(comment)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("seconds", "shown"), [(10, 5), *(pytest.param(*given, marks=pytest.mark.whole) for given in ((1, 1), (31, 13)))]
)
def test_the_comment_is_edited_at_most_every_30_seconds(world: World, seconds: int, shown: int) -> None:
    replies = [understood(), *(bash(f"echo {number}") for number in range(9)), *solve()[1:]]
    done = world.run(paced(world, replies, seconds, seen := []), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    moments = [datetime.strptime(found[1], "%H:%M:%S") for body in seen if (found := AS_OF.search(body))]
    assert len(moments) == len(seen)
    assert len(set(moments)) == shown
    assert all(after == before or (after - before).seconds >= 29 for before, after in pairwise(moments))


@pytest.mark.whole
def test_no_word_of_the_model_is_in_it(world: World) -> None:
    word = "xylophone"
    replies = [
        answer("initial.issue", "next", understanding=word),
        bash(
            f"echo {word} > {word}.txt && git add {word}.txt && git -c user.name=M -c user.email=m@e commit -qm {word}"
        ),
        answer("continuation.issue", "handoff", summary=word),
        answer("closure.issue", "closing", comment=f"A {word}."),
        bash(f"echo {word}"),
        answer("continuation.issue", "abort", reason=word),
    ]
    done = world.run(paced(world, replies, 40, seen := []), on_failure="nothing", **PROGRESS)
    assert word in str(world.events(done))
    assert "❌ `grep 'hello, world' greeting.txt" in seen[-1]
    assert not any(word in body for body in (*seen, *world.comments()))


@pytest.mark.whole
@pytest.mark.parametrize(("on_failure", "says"), [("nothing", "As of"), ("comment", "**What to do next:**")])
def test_a_run_that_fails_ends_it(world: World, on_failure: str, says: str) -> None:
    done = world.run(ABORTS, on_failure=on_failure, **PROGRESS)
    assert done.outputs["outcome"] == "aborted", done.log
    (comment,) = world.comments()
    assert comment.startswith("<!-- stepflow -->\n### ❌ fixer on issue #7: the agent gave up")
    assert (says in comment) is (on_failure == "comment")
    assert not is_progress(comment)


@pytest.mark.whole
def test_a_boundary_that_fails_replaces_it(world: World) -> None:
    world.github.fail("POST", "/pulls$", 422, "not today", times=9)
    done = world.run(solve(), **PROGRESS)
    assert done.outputs["outcome"] == "boundary_failed", done.log
    (comment,) = world.comments()
    assert "not today" in comment
    assert "running" not in comment


@pytest.mark.whole
def test_writes_that_fail_stop_nothing_and_are_given_up(world: World) -> None:
    world.github.fail("POST", "/issues/7/comments$", 502, times=3)
    done = world.run(paced(world, solve(), 40, seen := []), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert seen == [""] * 4
    assert done.log.count("[Progress] the comment could not be written: GitHub did not comment") == 3
    assert "The world is greeted now." in world.comments()[0]


@pytest.mark.whole
def test_a_lost_answer_writes_nothing_twice(world: World) -> None:
    world.github.fail("POST", "/issues/7/comments$", 0, after_write=True)
    done = world.run(paced(world, solve(), 40, seen := []), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(seen) == 4
    assert not any(THIS_RUN_DIED in body or EARLIER_RUN_DIED in body for body in seen)
    assert len(world.comments()) == 1


@pytest.mark.whole
@pytest.mark.parametrize(
    "given",
    [{"boundary": "dry-run"}, pytest.param({"progress": "nothing"}, marks=pytest.mark.whole)],
    ids=lambda given: next(iter(given)),
)
def test_without_it_nothing_is_written_before_the_boundary(world: World, given: dict[str, str]) -> None:
    world.run(paced(world, solve(), 40, seen := []), **{**PROGRESS, **given})
    assert seen == [""] * 4


@pytest.mark.whole
def test_an_agent_that_wants_no_comment_gets_none(world: World) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(comment={"enabled": False}))
    world.run(paced(world, solve(), 40, seen := []), **PROGRESS)
    assert (seen, world.comments()) == ([""] * 4, [])


@pytest.mark.whole
def test_a_result_that_is_there_already_stays_when_the_run_is_resumed(world: World, tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    world.github.fail("DELETE", "/labels/", 422, "not today", times=9)
    first = world.run(solve(), run_folder=folder, on_failure="nothing", **PROGRESS)
    assert first.outputs["outcome"] == "boundary_failed", first.log
    (result,) = world.comments()
    world.github.state.faults.clear()
    done = world.run([], run_folder=folder, **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert world.comments() == [result]
    assert "The world is greeted now." in result


@pytest.fixture
def dead(world: World, tmp_path: Path) -> World:
    """A world whose run was killed in the middle; its folder is `kept`."""
    world.play(solve())
    environ = world.runner.prepare(label_event(), run_folder=str(tmp_path / "kept"), **PROGRESS)
    with Nursery() as nursery:
        assert nursery.run(environ, tmp_path / "log", die_after=14).code == KILLED
    (comment,) = world.comments()
    assert is_progress(comment)
    return world


@pytest.mark.whole
def test_a_run_that_was_killed_is_resumed_in_the_same_comment_which_says_so(dead: World, tmp_path: Path) -> None:
    done = dead.run(paced(dead, solve()[1:], 40, seen := []), run_folder=str(tmp_path / "kept"), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert all(THIS_RUN_DIED in body for body in seen)
    assert seen
    (comment,) = dead.comments()
    assert THIS_RUN_DIED not in comment
    assert edits(dead).count("POST") == 1


@pytest.mark.whole
def test_the_run_after_one_that_was_killed_says_so_and_counts_its_cost(dead: World) -> None:
    (before,) = dead.comments()
    done = dead.run(paced(dead, solve(), 40, seen := []), **PROGRESS)
    assert done.outputs["outcome"] == "completed", done.log
    assert all(EARLIER_RUN_DIED in body for body in seen)
    (comment,) = dead.comments()
    marker, first = read_marker(comment), read_marker(before)
    assert marker
    assert first
    assert marker.before == first.cost
    assert dead.branches().keys() == {"main", BRANCH}


@pytest.mark.whole
def test_a_model_that_never_answers_leaves_what_was_seen(world: World) -> None:
    done = world.run([understood(), *[Failure(status=400, message="no")] * 9], on_failure="nothing", **PROGRESS)
    assert done.outputs["outcome"] == "model_failed", done.log
    (comment,) = world.comments()
    assert "### ❌ fixer on issue #7: the model gave no answer" in comment
    assert "initial.issue" in comment
