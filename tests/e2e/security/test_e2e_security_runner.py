"""What only Landlock can keep from the tools: the runner's own files, and the checkout with its credential."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER_UID
from tests.e2e.repository import labeled
from tests.e2e.script import ALL_SECRETS, EVENT_CANARY, fix_with_one_forgotten_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)


@pytest.fixture(scope="module")
def fixed(new_world: Callable[[], World]) -> tuple[World, HostedRunner, Ended]:
    """One run of the fixer on a hosted runner."""
    world = new_world()
    runner = world.hosted_runner(fix_with_one_forgotten_commit(), EVENT)
    with runner.started(world.inputs(), event_name="issues") as process:
        ended = runner.finish(process, timeout=200)
    assert ended.exit_code == 0, ended.log
    return world, runner, ended


def test_neither_the_event_nor_the_credential_of_the_checkout_comes_into_the_reach_of_the_model(
    fixed: tuple[World, HostedRunner, Ended],
) -> None:
    world, _, _ = fixed
    transcript = json.dumps(world.model_bodies())
    assert "hunted as uid" in transcript
    assert f"hunted as uid {RUNNER_UID}" not in transcript
    assert [secret for secret in ALL_SECRETS if secret in transcript] == []


def test_the_tools_wrote_into_none_of_the_runners_files(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, ended = fixed
    files = runner.root / "temp/_runner_file_commands"
    untouched = {"env": "", "path": "", "state": ""}
    assert {name: (files / name).read_text() for name in untouched} == untouched
    assert "hijacked" not in (files / "output").read_text()
    assert "hijacked" not in ended.summary


def test_the_checkout_is_as_it_was(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, _ = fixed
    assert runner.changes() == []


def test_under_act_the_event_does_not_come_into_the_reach_of_the_model(new_world: Callable[[], World]) -> None:
    world = new_world()
    job = world.run(fix_with_one_forgotten_commit(), EVENT)
    assert job.exit_code == 0, job.everything
    transcript = json.dumps(world.model_bodies())
    assert "hunted as uid" in transcript
    assert [secret for secret in ALL_SECRETS if secret in transcript] == []
