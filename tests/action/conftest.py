"""The world of the action's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.action.follow_up_world import open_reviewed_world
from tests.world import World, open_world


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    opens = open_reviewed_world if "opened" in request.fixturenames else open_world
    with opens(tmp_path) as world:
        if "checked_base" not in request.fixturenames:
            world.runner.inputs["base-checks"] = "skip"
        yield world


@pytest.fixture
def opened(world: World) -> World:
    """A world with a pull request of ours."""
    return world


@pytest.fixture
def checked_base() -> None:
    """Runs try the checks before their first step, as they do by default: tests of something else need no such time."""
