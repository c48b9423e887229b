"""The parent bounds what comes over the pipe by itself: its time and its size are not the program's to keep."""

from __future__ import annotations

import time
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from toolbox_world import granted

from stepflow.errors import BoundaryError, IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.channel import ChildChannel
from stepflow.sandbox.identity import Choice
from stepflow.sandbox.isolation import SandboxState
from stepflow.sandbox.options import ToolboxOptions

pytestmark = pytest.mark.whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Programs that take the one request and answer as no toolbox should.
NEVER_DONE = """
    while True:
        send(b"R", b"x" * 1000)
"""
DRIPS = """
    import time
    while True:
        send(b"R", b"x")
        time.sleep(0.01)
"""
DRIPS_INSIDE_A_FRAME = """
    import time
    os.write(1, struct.pack("!cI", b"J", 60_000_000))
    while True:
        os.write(1, b" ")
        time.sleep(0.01)
"""
SENDS_TWO_MIB = """
    for _ in range(2048):
        send(b"R", b"x" * 1024)
    send(b"J", b'{"commits": 1, "commit": "", "tree": "", "bytes": 5}')
"""
NESTS_WITHOUT_END = """
    send(b"J", b"[" * 200_000)
"""


@contextmanager
def program(folder: Path, body: str) -> Iterator[ChildChannel]:
    """A channel with this program on the other side."""
    file = folder / "unruly.py"
    head = """
    import os, struct
    def send(kind, payload):
        data = struct.pack("!cI", kind, len(payload)) + payload
        while data:
            data = data[os.write(1, data):]
    os.read(0, 65536)
    """
    file.write_text(dedent(head) + dedent(body))
    channel = ChildChannel(checkout=folder, environment={}, program=file)
    try:
        yield channel
    finally:
        channel.close()


@pytest.mark.parametrize("body", [NEVER_DONE, DRIPS, DRIPS_INSIDE_A_FRAME], ids=["floods", "drips", "drips in a frame"])
def test_a_program_that_sends_without_end_is_left_when_its_time_is_over(tmp_path: Path, body: str) -> None:
    begun = time.monotonic()
    with program(tmp_path, body) as channel:
        with pytest.raises(IsolationError, match=r"no whole answer to `bundle` in time"):
            channel.ask({"op": "bundle"}, timeout=0.5, sink=lambda _: time.sleep(0.002))
        assert time.monotonic() - begun < 20
        assert not channel.usable


def test_a_bundle_over_the_limit_is_cut_off_by_the_parent_too(tmp_path: Path) -> None:
    came: list[bytes] = []
    with program(tmp_path, SENDS_TWO_MIB) as channel:
        sandbox = SandboxState(facts=granted(), choice=Choice(identity=None), options=ToolboxOptions(), path="")
        toolbox = Toolbox(channel=channel, sandbox=sandbox, layers=(), root=tmp_path, private=tmp_path)
        with pytest.raises(BoundaryError, match="a bundle of more than 1048576 bytes"):
            toolbox.stream_bundle("0" * 40, came.append, max_bytes=1024 * 1024)
    assert sum(map(len, came)) == 1024 * 1024


def test_an_answer_that_nests_without_end_is_no_answer(tmp_path: Path) -> None:
    with program(tmp_path, NESTS_WITHOUT_END) as channel, pytest.raises(IsolationError, match="JSON"):
        channel.ask({"op": "tree"}, timeout=20)
