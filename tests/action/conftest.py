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
        yield world


@pytest.fixture
def opened(world: World) -> World:
    """A world with a pull request of ours."""
    return world


@pytest.fixture
def unchecked_base(world: World) -> None:
    """Runs check nothing before their first step: for tests of something else, which take less time this way."""
    world.runner.inputs["base-checks"] = "skip"
