"""Whatever a run does and however it ends, the checkout is as it was; and a sandbox with a hole ends it first."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.action.entry_process import SLEEP, EntryProcess, sleepers
from tests.checkout import facts_of, git
from tests.world import (
    BRANCH,
    CLOSING,
    COMMIT,
    TOKEN,
    World,
    bash,
    label_event,
    open_world,
    sockets_held,
    solve,
    understood,
)

#: What a run makes in the user's repository at a terminal: the branch, its commits, and the branch's log.
BRANCH_MADE = (".git/objects", ".git/refs", ".git/logs")
WORK = f"echo 'hello, world' > greeting.txt; git add --all; {COMMIT}"
ENDS = {"completed": (WORK, None), "failed": (WORK, None)} | {
    name: (f"{WORK}; sleep {SLEEP}", number)
    for name, number in (("cancelled", signal.SIGTERM), ("killed", signal.SIGKILL))
}


@pytest.fixture
def lived_in(world: World) -> World:
    """A checkout with what a job or a person may have in one."""
    library, checkout = world.checkout.parent / "library", world.checkout
    library.mkdir()
    (library / "word.txt").write_text("world\n")
    git("init", "--quiet", cwd=library)
    git("add", "--all", cwd=library)
    git("commit", "--quiet", "--message", "Begin", cwd=library)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib", cwd=checkout)
    (checkout / ".gitignore").write_text("ignored/\n")
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Add a library", cwd=checkout)
    git("push", "--quiet", str(world.served), "main", cwd=checkout)
    for repository in (checkout, checkout / "lib"):
        git("config", "http.https://github.com/.extraheader", f"AUTHORIZATION: basic {TOKEN}", cwd=repository)
    hook = checkout / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    (checkout / "ignored").mkdir()
    (checkout / "ignored/cache").write_text("cached\n")
    (checkout / "ignored/link").symlink_to(checkout / "greeting.txt")
    own = checkout / "untracked.txt"
    own.write_text("mine\n")
    own.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(own, 1001, 118)
    return world


def mess(checkout: Path) -> str:
    """What a model may do where it works, and try where it does not. Modes and times of files of its own user are the
    one thing that Landlock does not close: the container tests try them, where tools have a user of their own."""
    return "; ".join(
        (
            "rm -rf ignored untracked.txt .git/hooks; ln -s / root; chmod 777 . .git lib; git -C lib config a.b c",
            "git config core.fsmonitor 'touch /tmp/evil; false'; git config --unset core.fsmonitor",
            "echo evil > .git/info/attributes; rm root .git/info/attributes; git checkout --quiet -- .",
            f"for at in {checkout} {checkout}/.git {checkout}/lib; do echo evil > $at/new; ln -s / $at/link; done",
            f"mv {checkout}/.git/config {checkout}/.git/new; rm -rf {checkout}/.git/hooks {checkout}/ignored",
            f"echo evil > {checkout}/greeting.txt; git -C {checkout} config core.hooksPath /evil",
        )
    )


def begin_action(world: World, work: str, end: str) -> subprocess.Popen[bytes]:
    """The action in its job."""
    world.play([understood(), bash(work), *(solve()[2:] if end == "completed" else ())])
    return EntryProcess(world, world.runner.prepare(label_event())).running


def begin_terminal(world: World, work: str, end: str) -> subprocess.Popen[bytes]:
    """`stepflow run` as a person starts it."""
    turns = [
        says("initial.issue", "next", understanding="x"),
        {"tools": [{"bash": {"command": work}}]},
        says("continuation.issue", "handoff", summary="x"),
        says("closure.issue", "closing", **CLOSING),
    ]
    scenario = world.runner.folder / "scenario.yaml"
    scenario.write_text(yaml.safe_dump({"turns": turns if end == "completed" else turns[:2]}))
    folder, log = world.runner.folder / "run", world.runner.folder / "log"
    words = ("run", "fixer", "--issue", "7", "--repo", str(world.checkout), "--run-folder", str(folder))
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", "stepflow", *words, "--scenario", str(scenario)],
            env={"PATH": os.environ["PATH"], "HOME": str(world.runner.folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def log_of(world: World) -> str:
    return (world.runner.folder / "log").read_text()


def says(step: str, intent: str, **more: object) -> dict[str, object]:
    """A step's structured answer in a scenario."""
    return {"output": {"stepId": step, "next_action": {"action": intent, "reason": "so"}, **more}}


def run_to(begun: subprocess.Popen[bytes], strike: signal.Signals | None) -> int:
    """Let it end, or end it while a tool is at work; the exit code."""
    try:
        deadline = time.monotonic() + 120
        while strike and not sleepers():
            assert begun.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if strike:
            begun.send_signal(strike)
        return begun.wait(timeout=120)
    finally:
        begun.kill()
        begun.wait()


@pytest.mark.whole
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        *(pytest.param(begin_action, end, id=f"action, {end}") for end in ENDS),
        # Only here something is left in the repository on purpose; the other ends have one path with the action's.
        *(pytest.param(begin_terminal, end, id=f"terminal, {end}") for end in ("completed", "killed")),
    ],
)
def test_the_checkout_is_as_it_was(
    lived_in: World, begin: Callable[[World, str, str], subprocess.Popen[bytes]], end: str
) -> None:
    work, strike = ENDS[end]
    before = facts_of(lived_in.checkout)
    begun = begin(lived_in, f"({mess(lived_in.checkout)}) 2> /dev/null; {work}", end)
    code = run_to(begun, strike)
    after = facts_of(lived_in.checkout)
    assert code == {"completed": 0, "failed": 1, "cancelled": 130, "killed": -signal.SIGKILL}[end], log_of(lived_in)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    if begin is begin_terminal and end == "completed":
        assert git("log", "--format=%s", f"main..{BRANCH}", cwd=lived_in.checkout).strip() == "Greet the world"
        changed = {path for path in changed if path != ".git" and not path.startswith(BRANCH_MADE)}
    assert changed == set()


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
