"""The world of the action's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.action.follow_up_world import open_pull_request
from tests.world import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as world:
        yield world


@pytest.fixture
def opened(world: World) -> World:
    """A world with a pull request of ours."""
    return open_pull_request(world)


@pytest.fixture
def unchecked_base(world: World) -> None:
    """Runs check nothing before their first step: for tests of something else, which take less time this way."""
    world.runner.inputs["base-checks"] = "skip"
