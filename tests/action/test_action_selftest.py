"""A whole run whose sandbox has a hole ends before the model is asked."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.checkout import git
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


@pytest.fixture
def hole():
    """A socket that every user may use; its path."""
    path = Path(f"/run/stepflow-test-{os.getpid()}.sock")
    with sockets_held(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        try:
            path.chmod(0o666)
            server.listen(8)
            yield path
        finally:
            path.unlink()


@root_only
def test_a_socket_that_every_user_may_use_refuses_the_run_before_a_token_is_spent(reachable_world, hole):
    done = reachable_world.run(solve(), isolation="required")
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "The self-test got out of the sandbox, so nothing else runs in it." in done.outputs["reason"]
    assert f"other sockets under /run, reached by shell: {hole} (connect)" in done.outputs["reason"]
    assert reachable_world.model.requests == []
    events = [event["event"] for event in reachable_world.events(done)]
    assert "canaries_tried" in events
    assert "iteration_started" not in events
    assert reachable_world.wrote_nothing(but_comments=1)
    assert "The self-test got out of the sandbox" in reachable_world.comments()[0]


@root_only
def test_it_refuses_a_proof_before_a_command_of_the_pull_request_runs(reachable_world, hole):
    checkout = reachable_world.runner.checkout
    git("commit", "--quiet", "--allow-empty", "--message", "Change nothing", cwd=checkout)
    ends = {
        name: {"sha": git("rev-parse", rev, cwd=checkout).strip()}
        for name, rev in (("base", "HEAD^"), ("head", "HEAD"))
    }
    event = {
        "pull_request": {"number": 7, **{name: {**end, "repo": {"full_name": "o/r"}} for name, end in ends.items()}}
    }
    inputs = {"mode": "prove", "prove": "touch ran", "isolation": "required"}
    done = reachable_world.runner.run(event, name="pull_request", **inputs)
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert f"other sockets under /run, reached by shell: {hole} (connect)" in done.outputs["reason"]


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
