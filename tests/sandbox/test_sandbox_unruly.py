"""The parent bounds what comes from the sandbox by itself: its time and its size are not the launcher's to keep."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from textwrap import dedent

import pytest
from toolbox_world import granted

from stepflow.errors import BoundaryError, IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child.enter_sandbox import SandboxConfig
from stepflow.sandbox.isolation import Choice, SandboxState, ToolboxOptions, sandbox_config
from stepflow.sandbox.launcher import Launcher

pytestmark = pytest.mark.whole

#: Launchers whose operations answer as none should, on their descriptors: what they stream, and their answer.
FLOODS = """
    while True:
        os.write(output, b"x" * 1000)
"""
DRIPS = """
    while True:
        os.write(output, b"x")
        time.sleep(0.01)
"""
DRIPS_INTO_THE_ANSWER = """
    while True:
        os.write(answer, b" ")
        time.sleep(0.01)
"""
SENDS_TWO_MIB = """
    for _ in range(2048):
        os.write(output, b"x" * 1024)
    os.write(answer, b'{"commits": 1, "commit": "", "tree": "", "bytes": 5}')
"""
ANSWERS_WITHOUT_END = """
    while True:
        os.write(answer, b" " * 1_000_000)
"""


@contextmanager
def launcher(folder: Path, body: str) -> Iterator[Launcher]:
    """A launcher each of whose operations is this."""
    head = f"""
    # {folder}
    import json, os, signal, socket, time
    channel = socket.socket(fileno=0)
    socket.recv_fds(channel, 64, 16)
    channel.sendall(json.dumps({asdict(granted())!r}).encode() + b"\\n")
    pid = 0
    while received := socket.recv_fds(channel, 64, 16):
        word, (*descriptors,) = received[0].split(), received[1]
        if not word:
            break
        if word[0] == b"start":
            output, answer = descriptors[2], descriptors[4]
            if not (pid := os.fork()):
                break
        elif word[0] == b"kill":
            os.kill(pid, signal.SIGKILL)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(json.dumps({{"pid": pid, "alive": []}}).encode() + b"\\n")
    if pid:
        raise SystemExit
    """
    config: SandboxConfig = sandbox_config(
        checkout=folder, private=folder, read=(), identity=None, options=ToolboxOptions(), broker=None
    )
    started = Launcher(config, {"PATH": os.environ["PATH"]}, grace=10, program=dedent(head) + dedent(body))
    try:
        yield started
    finally:
        subprocess.run(["pkill", "-KILL", "-f", f"# {folder}"], check=False)
        started.close()


#: What a launcher says of two programs, the second of which gets the first one's process id; and how that one ended.
REUSED = {
    "the first had ended": ('{"pid": 5}\n{"ended": 5, "status": 1}\n', '{"pid": 5}\n', None),
    "it ends as the second starts": ('{"pid": 5}\n', '{"ended": 5, "status": 1}\n{"pid": 5}\n', None),
    "both have ended": ('{"pid": 5}\n{"ended": 5, "status": 1}\n', '{"pid": 5}\n{"ended": 5, "status": 0}\n', 0),
}
SAYS = """
import json, os, socket
channel = socket.socket(fileno=0)
socket.recv_fds(channel, 64, 16)
channel.sendall(json.dumps({facts}).encode() + b"\\n")
for words in {words}:
    for descriptor in socket.recv_fds(channel, 64, 16)[1]:
        os.close(descriptor)
    channel.sendall(words.encode())
channel.recv(64)
"""


@pytest.mark.fast
@pytest.mark.parametrize("case", REUSED)
def test_a_program_that_gets_the_process_id_of_another_has_not_ended_as_that_did(tmp_path: Path, case: str) -> None:
    *words, ended = REUSED[case]
    config = sandbox_config(
        checkout=tmp_path, private=tmp_path, read=(), identity=None, options=ToolboxOptions(), broker=None
    )
    program = SAYS.format(facts=asdict(granted()), words=words)
    started = Launcher(config, {"PATH": os.environ["PATH"]}, grace=10, program=program)
    try:
        with started.during("a test"), Path(os.devnull).open("rb") as null:
            assert [started.start(["true"], [null.fileno()]) for _ in words] == [5, 5]
            assert started.status_of(5) == ended
    finally:
        started.close()


@pytest.mark.parametrize("body", [FLOODS, DRIPS, DRIPS_INTO_THE_ANSWER], ids=["floods", "drips", "drips: answer"])
def test_an_operation_that_sends_without_end_is_left_when_its_time_is_over(tmp_path: Path, body: str) -> None:
    begun = time.monotonic()
    with launcher(tmp_path, body) as started, started.during("bundle"):
        answer = started.ask("bundle", {}, timeout=0.5, sink=lambda _: time.sleep(0.002))
        assert answer == {"problem": "took longer than 0.5 s and was stopped"}
        assert time.monotonic() - begun < 20


def test_a_bundle_over_the_limit_is_cut_off_by_the_parent_too(tmp_path: Path) -> None:
    came: list[bytes] = []
    with launcher(tmp_path, SENDS_TWO_MIB) as started:
        sandbox = SandboxState(facts=granted(), choice=Choice(identity=None), options=ToolboxOptions(), path="")
        toolbox = Toolbox(launcher=started, sandbox=sandbox, layers=(), root=tmp_path, private=tmp_path)
        with pytest.raises(BoundaryError, match="a bundle of more than 1048576 bytes"):
            toolbox.stream_bundle("0" * 40, came.append, max_bytes=1024 * 1024)
        toolbox.close()
    assert 0 < sum(map(len, came)) <= 1024 * 1024


def test_an_answer_without_end_is_the_end_of_the_toolbox(tmp_path: Path) -> None:
    with launcher(tmp_path, ANSWERS_WITHOUT_END) as started:
        with pytest.raises(IsolationError, match="more than 67108864 bytes"), started.during("tree"):
            started.ask("tree", {}, timeout=60)
        with pytest.raises(IsolationError, match="more than"), started.during("tree"):
            pass
