"""Trials run at the same time, within the time for all of them, and end together."""

from __future__ import annotations

import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.domain.proof import TrialLimits
from stepflow.errors import InputError, IsolationError
from stepflow.run.clock import Cancellation
from stepflow.run.proof import Trials, count_processors, in_shell
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.isolation import ToolboxOptions, choose_identity, release_identity
from tests.checkout import git

AT_ONCE = min(2, count_processors())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose last commit adds a test."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet", "--template=", cwd=folder)
    for name in ("code.txt", "test_code.py"):
        (folder / name).write_text(name)
        git("add", "--all", cwd=folder)
        git("commit", "--quiet", "--message", name, cwd=folder)
    return folder


def running(word: str) -> list[str]:
    """The processes with this word among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode().split("\0")
        except OSError:
            continue
        found += [file.parent.name] if word in words else []
    return found


@pytest.mark.whole
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="this system has no /proc")
def test_a_signal_ends_all_trials_at_once_and_leaves_nothing(checkout: Path, tmp_path: Path) -> None:
    temp = tmp_path / "temporary"
    temp.mkdir(mode=0o755)
    seconds = f"600.{random.randrange(10**9)}"
    words = [sys.executable, "-m", "stepflow", "prove", "HEAD^..HEAD", "--command", f"touch begun; sleep {seconds}"]
    environ = {**os.environ, "TMPDIR": str(temp), "RUNNER_TEMP": ""}
    with subprocess.Popen(
        words, cwd=checkout, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + 60
        while len(running(seconds)) < AT_ONCE and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[0].decode()
            time.sleep(0.05)
        began = list(temp.glob("stepflow-workspace-*/checkout/begun"))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert len(began) == AT_ONCE
    assert process.returncode == 130, output.decode()
    assert "SIGTERM" in output.decode()
    assert (running(seconds), list(temp.iterdir())) == ([], [])


@pytest.fixture
def trials_of(checkout: Path, tmp_path: Path) -> Callable[..., Trials]:
    """Makes the trials of a command."""

    def make(command: str, **inputs: str) -> Trials:
        cancellation = Cancellation()
        cancellation.hold()
        request = RunRequest(
            run_id="run-1", inputs=read_inputs(inputs), trigger=Trigger(), root=checkout, folder=tmp_path / "run"
        )
        return Trials(
            repository=ChangeRepository(tmp_path / "change", checkout),
            request=request,
            commands=(in_shell(command, 60.0),),
            cancellation=cancellation,
        )

    return make


WITH, WITHOUT = "HEAD^{tree}", "HEAD^^{tree}"
HANGS_WITHOUT = "test -e test_code.py || sleep 60; echo with"


def run(trials: Trials, checkout: Path, *names: str, **limits: float) -> list[CommandResult | None]:
    trees = [git("rev-parse", name, cwd=checkout).strip() for name in names]
    return [*trials.run(trees, TrialLimits(**limits))]


@pytest.mark.fast
@pytest.mark.whole
def test_a_trial_that_hangs_ends_at_its_own_limit(checkout: Path, trials_of: Callable[..., Trials]) -> None:
    results = run(trials_of(HANGS_WITHOUT), checkout, WITHOUT, WITH, each=2.0, together=60.0)
    assert [result and (result.timed_out, result.stdout) for result in results] == [(True, ""), (False, "with\n")]


@pytest.mark.whole
def test_a_trial_that_the_time_of_all_cuts_off_says_nothing(checkout: Path, trials_of: Callable[..., Trials]) -> None:
    trials = trials_of("sleep 60")
    assert run(trials, checkout, WITHOUT, together=3.0) == [None]
    assert run(trials, checkout, WITHOUT, WITH, together=0.0) == [None, None]


@pytest.mark.whole
def test_setup_that_the_time_of_all_cuts_off_says_nothing(checkout: Path, trials_of: Callable[..., Trials]) -> None:
    began = time.monotonic()
    assert run(trials_of("echo tested", setup="sleep 60"), checkout, WITHOUT, together=3.0) == [None]
    assert time.monotonic() - began < 30


@pytest.mark.whole
def test_trials_that_meet_at_a_port_are_tried_again_alone(checkout: Path, trials_of: Callable[..., Trials]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = f"import socket, time; s = socket.socket(); s.bind(('127.0.0.1', {port})); print('bound'); time.sleep(2)"
    results = run(trials_of(f"python3 -c {shlex.quote(script)}"), checkout, WITHOUT, WITH)
    assert [result and result.stdout for result in results] == ["bound\n", "bound\n"]


def test_setup_that_fails_on_a_tree_is_the_result_of_its_trial(
    checkout: Path, trials_of: Callable[..., Trials]
) -> None:
    setup = "echo preparing; test -e test_code.py"
    good, failed = run(trials_of("echo tested", setup=setup), checkout, WITH, WITHOUT)
    assert good
    assert good.stdout == "tested\n"
    assert failed
    assert (failed.started, failed.stdout) == (False, "preparing\n")
    assert failed.error == "the setup commands failed with exit code 1"


@pytest.mark.whole
@pytest.mark.skipif(AT_ONCE < 2, reason="one processor runs one trial at once")
def test_a_trial_that_cannot_be_prepared_ends_the_others(checkout: Path, trials_of: Callable[..., Trials]) -> None:
    begun = time.monotonic()
    blob = git("rev-parse", "HEAD:code.txt", cwd=checkout).strip()
    # No git checks such a file out.
    broken = subprocess.run(
        ["git", "mktree"], cwd=checkout, input=f"100644 blob {blob}\t.git\n", capture_output=True, text=True, check=True
    ).stdout.strip()
    with pytest.raises(InputError, match="invalid path"):
        run(trials_of("sleep 60"), checkout, WITH, broken)
    assert time.monotonic() - begun < 50


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its tools a user of their own")
def test_sandboxes_that_start_at_the_same_moment_have_different_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of them has a process yet that would show in the process table."""
    monkeypatch.setattr("stepflow.sandbox.isolation._IDS", range(61184, 61188))
    options = ToolboxOptions()
    first, second = (choose_identity(Path("/tmp"), options).identity for _ in range(2))
    assert first
    assert second
    assert len({first.uid, first.gid, second.uid, second.gid}) == 4
    with pytest.raises(IsolationError, match="is free on this machine"):
        choose_identity(Path("/tmp"), options)
    release_identity(first)
    again = choose_identity(Path("/tmp"), options).identity
    assert again
    assert {again.uid, again.gid} == {first.uid, first.gid}
    release_identity(second)
    release_identity(again)
