"""What a run does where a layer is missing or a canary is reached: it refuses, or says what is open."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.repository import labeled
from tests.e2e.script import EVENT_CANARY, HUNT, SECRETS, answer_the_question
from tests.servers.messages_api import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EVENT = labeled("agent:closer", secret=EVENT_CANARY)
#: The three system calls are not there, as on a kernel without Landlock; everything else is.
NO_LANDLOCK = ("--security-opt", f"seccomp={Path(__file__).parent / 'no_landlock.json'}")


def run(world: World, *, options: tuple[str, ...] = (), **inputs: str) -> Ended:
    """The closer, whose first step hunts for secrets."""
    answers = answer_the_question()
    runner = world.hosted_runner([calls(("bash", {"command": HUNT})), *answers], EVENT)
    given = {**world.inputs(), **{name.replace("_", "-"): value for name, value in inputs.items()}}
    with runner.started(given, event_name="issues", options=options) as process:
        return runner.finish(process, timeout=200)


def test_without_landlock_a_run_that_requires_isolation_is_refused_with_the_reason(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    ended = run(world, options=NO_LANDLOCK)
    assert ended.outputs["outcome"] == "refused", ended.log
    assert "landlock" in ended.outputs["reason"].lower()
    assert "Function not implemented" in ended.outputs["reason"]
    assert (world.model_bodies(), world.pulls(), len(world.comments())) == ([], [], 1)


def test_without_landlock_and_with_best_effort_it_runs_and_says_what_is_open(new_world: Callable[[], World]) -> None:
    world = new_world()
    ended = run(world, options=NO_LANDLOCK, isolation="best-effort")
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    assert "landlock: " in ended.log
    report = json.loads((Path(ended.outputs["run-folder"]) / "report.json").read_text())
    assert "Function not implemented" in json.dumps(report["isolation"])
    # The parent and the engine stay closed by the user alone; that the event can be read is what the warning says.
    transcript = json.dumps(world.model_bodies())
    assert "the engine's socket refused: PermissionError" in transcript
    assert [secret for secret in SECRETS if secret in transcript] == []
    assert EVENT_CANARY in transcript


def test_a_socket_that_lets_everybody_in_refuses_the_run_before_a_token_is_spent(
    new_world: Callable[[], World], tmp_path: Path
) -> None:
    world = new_world()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "open.sock"))
        server.listen()
        (tmp_path / "open.sock").chmod(0o666)
        volume = f"--volume={tmp_path / 'open.sock'}:/run/helpful.sock"
        ended = run(world, options=(volume,))
    assert ended.outputs["outcome"] == "refused", ended.log
    assert "/run/helpful.sock" in ended.log
    assert (world.model_bodies(), world.pulls(), len(world.comments())) == ([], [], 1)
