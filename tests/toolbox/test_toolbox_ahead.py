"""The next step's shell is started while the model is asked; nobody can tell, but by the clock."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from toolbox_world import Box, alive, gone_within

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has started")


def children(supervisor: int) -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()}


def ahead(supervisor: int) -> int:
    """The shell that nobody has asked for yet."""
    deadline = time.monotonic() + 2
    while not children(supervisor) and time.monotonic() < deadline:
        time.sleep(0.005)
    (shell,) = children(supervisor)
    return shell


@pytest.fixture
def ended(box) -> tuple[Box, int]:
    """A toolbox after a step that used the shell; with its supervisor."""
    supervisor = box.supervisor
    box.toolbox.end_step()
    return box, supervisor


def test_the_first_call_of_a_step_finds_its_shell_and_it_is_a_fresh_one(box):
    supervisor = box.supervisor
    box.bash("cd /; X=1; ulimit -n 100")
    box.toolbox.end_step()
    shell = ahead(supervisor)
    said = box.bash("echo $$ ${X-unset} $PWD; ulimit -n").text.split()
    assert said[:3] == [str(shell), "unset", str(box.checkout)]
    assert said[3] != "100"


def test_a_shell_that_no_step_has_used_is_not_followed_by_another(ended):
    box, supervisor = ended
    shell = ahead(supervisor)
    box.toolbox.end_step()
    assert not alive(shell)
    time.sleep(0.1)
    assert children(supervisor) == set()


def test_a_command_begins_without_the_shell_that_was_started_ahead(ended):
    box, supervisor = ended
    shell = ahead(supervisor)
    assert box.sh(f"kill -0 {shell} 2> /dev/null || echo dead").stdout == "dead\n"
    assert box.bash("echo $$").text != f"{shell}\n"


def test_a_shell_that_died_before_it_was_used_is_replaced_without_a_word(ended):
    box, supervisor = ended
    shell = ahead(supervisor)
    os.kill(shell, signal.SIGKILL)
    assert gone_within(1, shell)
    assert box.bash("echo fine").text == "fine\n"
