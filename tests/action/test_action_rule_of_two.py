"""The rule of two in a review: what the event says of the pull request and its repository decides."""

from __future__ import annotations

import re

import pytest

from tests.action.review_world import labeled, let_review, looks, propose, review
from tests.checkout import Invocation
from tests.servers.messages_api import Reply
from tests.world import World, answer

OWN = {"fork": "o/r", "login": "bob"}


@pytest.fixture
def reviewing(world: World) -> World:
    let_review(world)
    return world


@pytest.mark.whole
@pytest.mark.parametrize(
    ("private", "pull", "network", "outcome"),
    [
        (True, {}, "full", "invalid_definition"),
        (True, {}, "none", "completed"),
        pytest.param(True, OWN, "full", "completed", marks=pytest.mark.whole),
        pytest.param(False, {}, "full", "completed", marks=pytest.mark.whole),
    ],
    ids=["a fork of a private repository", "without the network", "a branch of its own", "a public repository"],
)
def test_a_shell_with_the_network_does_not_read_a_fork_of_a_private_repository(
    reviewing: World, private: bool, pull: dict[str, str], network: str, outcome: str
) -> None:
    number = propose(reviewing, {"greeting.txt": "hello\nworld\n"}, **pull)
    event = labeled(reviewing, number)
    event["repository"]["private"] = private
    reviewing.runner.inputs["network"] = network
    done = review(reviewing, event, looks())
    assert done.outputs["outcome"] == outcome, done.log
    if outcome == "invalid_definition":
        assert "text that strangers can write (the pull request from a fork); something private (" in done.log
        assert "a way out (a shell with `network: full`)" in done.log
        assert reviewing.model.bodies == []


def looks_as_shipped(*, comments: list[dict[str, object]]) -> list[Reply]:
    """What the shipped reviewer says."""
    review_of_it = {"summary": "It is read.", "verdict": "comment", "comments": comments}
    return [
        answer("initial.default", "next", question="Does it greet?", places="greeting.txt"),
        answer("continuation.default", "handoff", findings="It could be louder."),
        answer("closure.default", "closing", missing="nothing", comment="", review=review_of_it),
    ]


LOUDER = {"path": "greeting.txt", "line": 2, "body": "Louder:", "suggestion": "WORLD"}


@pytest.fixture
def shipped(world: World) -> World:
    """A private repository whose workflow is that of the shipped reviewer, on a pull request from a fork."""
    let_review(world)
    world.runner.inputs |= {"agent": "builtin/review", "checks": "grep hello greeting.txt", "on-failure": "comment"}
    return world


def review_fork(world: World, **inputs: str) -> tuple[Invocation, int]:
    number = propose(world, {"greeting.txt": "hello\nworld\n"})
    event = labeled(world, number, label="agent:review")
    event["repository"]["private"] = True
    return review(world, event, looks_as_shipped(comments=[LOUDER]), **inputs), number


@pytest.mark.whole
def test_the_shipped_reviewer_names_the_input_to_change_for_a_fork_of_a_private_repository(shipped: World) -> None:
    done, _ = review_fork(shipped)
    assert (done.outputs["outcome"], done.exit_code) == ("invalid_definition", 2), done.log
    assert shipped.model.bodies == []
    (comment,) = shipped.comments()
    for told in (comment, done.summary, "\n".join(done.annotations)):
        assert "network: none" in told
        assert ".agent/review" not in told, "the repository has no such file"
    assert not any("file=" in line or "line=" in line for line in done.annotations)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("inputs", "offered"),
    [({"network": "none"}, True), ({"checks": ""}, True)],
    ids=["without the network", "without checks"],
)
def test_the_shipped_reviewer_reviews_a_fork_of_a_private_repository(
    shipped: World, inputs: dict[str, str], offered: bool
) -> None:
    done, number = review_fork(shipped, **inputs)
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    (made,) = shipped.github.state.reviews
    assert made["pull"] == number, made
    (thread,) = shipped.github.state.threads
    assert ("```suggestion\nWORLD\n```" in thread["comments"][0]["body"]) is offered


@pytest.mark.whole
def test_a_reviewer_of_ones_own_names_its_file_for_a_fork_of_a_private_repository(shipped: World) -> None:
    """Its file is there to be changed, so the annotation is on it."""
    shipped.runner.inputs |= {"agent": "", "checks": ""}
    number = propose(shipped, {"greeting.txt": "hello\nworld\n"})
    event = labeled(shipped, number)
    event["repository"]["private"] = True
    done = review(shipped, event, looks())
    assert done.outputs["outcome"] == "invalid_definition", done.log
    places = [re.search("file=([^,]+),", line) for line in done.annotations if "SF357" in line]
    assert places
    for place in places:
        assert place
        assert (shipped.checkout / place[1]).is_file()
