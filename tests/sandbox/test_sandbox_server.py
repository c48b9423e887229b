"""A program that serves in the sandbox: a process of its step like any other, which the parent speaks with."""

from __future__ import annotations

import pytest
from toolbox_world import gone_within

from stepflow.sandbox.launcher import CannotStart

#: Answers each line in capital letters.
SHOUT = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"


def test_it_reads_what_is_sent_and_what_it_writes_comes_back(box):
    with box.toolbox.start_server(("python3", "-c", SHOUT), {}) as server:
        server.stdin.sendall(b"hello\n")
        assert server.stdout.recv(100) == b"HELLO\n"
        # The end of its input ends it, as it would at a pipe.
        server.stdin.close()
        assert server.stdout.recv(100) == b""


def test_its_environment_is_that_of_every_tool_and_its_own_variables(box):
    names = "import os; print(sorted(os.environ), os.environ['TOKEN_OF_DOCS'], os.getcwd())"
    with box.toolbox.start_server(("python3", "-c", names), {"TOKEN_OF_DOCS": "given"}) as server:
        said = server.stdout.recv(10_000).decode()
    names = box.bash("python3 -c 'import os; print(sorted(os.environ))'").output
    assert set(eval(said.partition("]")[0] + "]")) - set(eval(names)) == {"TOKEN_OF_DOCS"}
    assert said.partition("]")[2].split() == ["given", str(box.checkout)]


def test_its_errors_are_kept_for_a_message(box):
    with box.toolbox.start_server(("sh", "-c", "echo no such project >&2"), {}) as server:
        assert server.stdout.recv(100) == b""
        assert server.last_words() == "no such project"


def test_what_cannot_be_started_says_why(box):
    with pytest.raises(CannotStart, match="`no-such-program` could not be started: No such file or directory"):
        box.toolbox.start_server(("no-such-program",), {})
    assert box.bash("echo fine").output == "fine\n"


def test_it_ends_with_its_step_and_all_that_it_started(box):
    with box.toolbox.start_server(("sh", "-c", "sleep 100 & echo $$ $!; cat"), {}) as server:
        pids = [int(word) for word in server.stdout.recv(100).split()]
        assert len(pids) == 2
        box.toolbox.end_step()
        assert gone_within(1, *pids)
        assert server.stdout.recv(100) == b""
