"""What the security tests share: a hosted runner to attack from inside the image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import HostedRunner
from tests.e2e.repository import labeled, make_checkout
from tests.e2e.script import EVENT_CANARY
from tests.e2e.security.attacked import Attacked

#: What an attacker brings runs inside the image only, whatever its name is.
collect_ignore = ["exploits"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.world import World


@pytest.fixture(scope="session")
def new_runner(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HostedRunner]]:
    """Lays out a runner's folders, as often as asked."""
    runners: list[HostedRunner] = []

    def prepare(owner: tuple[int, int]) -> HostedRunner:
        root: Path = tmp_path_factory.mktemp("attacked")
        checkout = make_checkout(root / "checkout", urls={})
        event = labeled("agent:fixer", secret=EVENT_CANARY)
        runner = HostedRunner.prepare(root / "runner", image=image, checkout=checkout, event=event, owner=owner)
        runners.append(runner)
        return runner

    yield prepare
    for runner in runners:
        runner.give_to((os.getuid(), os.getgid()))


@pytest.fixture
def attacked(new_world: Callable[[], World]) -> Attacked:
    """A repository of its own."""
    return Attacked(new_world(), Path(__file__).parent / "exploits")
