"""The rule of two in a review: what the event says of the pull request and its repository decides."""

from __future__ import annotations

import pytest

from tests.action.review_world import labeled, let_review, looks, propose, review
from tests.world import World

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
