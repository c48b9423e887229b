"""A whole run whose sandbox has a hole ends before the model is asked."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.world import open_world, sockets_held, solve, understood

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only a root process may put a socket into /run")


@pytest.fixture
def reachable_world():
    """The tools' own user must be able to walk to the checkout."""
    folder = Path(tempfile.mkdtemp(prefix="stepflow-test-"))
    folder.chmod(0o755)
    with open_world(folder) as world:
        yield world
    shutil.rmtree(folder)


@root_only
def test_a_socket_that_every_user_may_use_refuses_the_run_before_a_token_is_spent(reachable_world):
    path = Path(f"/run/stepflow-test-{os.getpid()}.sock")
    with sockets_held(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        try:
            path.chmod(0o666)
            server.listen(8)
            done = reachable_world.run(solve(), isolation="required")
        finally:
            path.unlink()
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "The self-test got out of the sandbox, so no model is asked." in done.outputs["reason"]
    assert f"other sockets under /run, reached by shell: {path} (connect)" in done.outputs["reason"]
    assert reachable_world.model.requests == []
    events = [event["event"] for event in reachable_world.events(done)]
    assert "canaries_tried" in events
    assert "iteration_started" not in events
    assert reachable_world.wrote_nothing(but_comments=1)
    assert "The self-test got out of the sandbox" in reachable_world.comments()[0]


@pytest.mark.whole
def test_with_best_effort_what_is_open_is_told_and_the_run_goes_on(world):
    done = world.run([understood()], isolation="best-effort")
    assert "[Isolation] self-test: " in done.log
    assert len(world.model.requests) > 1
    assert "| self-test | " in done.summary
    tried = next(event for event in world.events(done) if event["event"] == "canaries_tried")
    assert tried["canaries"]["the parent in /proc"] == "kept"
    for location, state in tried["canaries"].items():
        opened = state.startswith("reached")
        assert (f"[Isolation] open: {location}, reached" in done.log) is opened
