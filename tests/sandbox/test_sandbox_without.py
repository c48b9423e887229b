"""What each layer alone stops: the same attempt fails with all layers and succeeds without the one.

Landlock, seccomp and the network have modules of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket

import pytest
from toolbox_world import Box, alive, root_only

from stepflow.domain.words import Isolation
from stepflow.sandbox.isolation import LAYERS, ProcessLimits

pytestmark = [
    pytest.mark.whole,
    pytest.mark.parametrize("left_out", [False, True], ids=["with all layers", "without it"]),
]


@pytest.fixture
def begin(start, left_out):
    """Starts a toolbox with all layers or without the one that is named."""

    def begun(layer: str, **options: object) -> Box:
        assert layer in LAYERS
        if not left_out:
            return start(**options)
        box = start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({layer}), **options)
        assert box.toolbox.isolation[layer] == "switched off"
        assert f"{layer}: switched off" in box.toolbox.warnings
        return box

    return begun


@root_only
def test_uid_keeps_the_tools_from_files_of_root(begin, left_out):
    ended = begin("uid").sh("head -c 1 /etc/shadow")
    assert (ended.exit_code == 0) == left_out


@root_only
def test_gid_keeps_the_tools_from_sockets_of_the_parents_group(begin, left_out, checkout):
    """The parent can belong to the group that may speak to Docker."""
    docker = checkout.parent / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(docker))
        server.listen()
        docker.chmod(0o660)
        ended = begin("gid").sh(f"python3 -c 'import socket; socket.socket(1).connect(\"{docker}\")'")
    assert (ended.exit_code == 0) == left_out


def test_environment_keeps_the_parents_variables_away(begin, left_out, monkeypatch):
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "canary")
    assert ("canary" in begin("environment").sh("env").stdout) == left_out


def test_path_keeps_planted_programs_from_being_run(begin, left_out, checkout, monkeypatch):
    (checkout / "git").write_text("#!/bin/sh\necho planted\n")
    (checkout / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{checkout}:{os.environ['PATH']}")
    assert ("planted" in begin("path").sh("git --version").stdout) == left_out


def test_limits_end_a_file_that_grows(begin, left_out):
    box = begin("limits", limits=ProcessLimits(file_bytes=1 << 20))
    box.sh("head -c 2000000 /dev/zero > big")
    assert ((box.checkout / "big").stat().st_size == 2_000_000) == left_out


@root_only
def test_no_new_privs_makes_a_set_user_program_an_ordinary_one(begin, left_out, checkout):
    if os.statvfs(checkout).f_flag & os.ST_NOSUID:
        pytest.skip("the file system ignores set-user bits")
    box = begin("no_new_privs")
    shutil.copy("/usr/bin/id", checkout / "rights")
    (checkout / "rights").chmod(0o4755)
    assert (box.sh("./rights -u").stdout == "0\n") == left_out


def test_life_ends_what_a_tool_has_left_running(begin, left_out):
    box = begin("life")
    box.bash("(setsid nohup sh -c 'echo $$ > daemon.pid; exec sleep 30' > /dev/null 2>&1 < /dev/null &); sleep 0.3")
    pid = int((box.checkout / "daemon.pid").read_text())
    box.toolbox.end_step()
    lives = alive(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert lives == left_out


@root_only
def test_memory_keeps_the_launcher_from_the_tools(begin, left_out):
    box = begin("memory")
    assert (box.sh("head -c 1 /proc/$PPID/environ").exit_code == 0) == left_out
