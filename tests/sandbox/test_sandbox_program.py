"""The program on the hostile side is small and stands alone (security.md "The toolbox process")."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stepflow.sandbox.child
from stepflow.sandbox.child import wire

INNER = Path(stepflow.sandbox.child.__file__).parent


def imports(path: Path) -> list[tuple[int, str]]:
    """(level, module) of every import of a file."""
    imports = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or ""))
    return imports


def run_alone(argv: list[str], said: bytes = b"", **options) -> subprocess.CompletedProcess:
    """Run the program with a channel that is closed after what was `said`."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(said)
        return subprocess.run(argv, stdin=theirs, check=False, **options)


@pytest.mark.parametrize("path", sorted(INNER.glob("*.py")), ids=lambda path: path.name)
def test_each_module_imports_the_standard_library_and_its_siblings_only(path):
    for level, module in imports(path):
        assert level == 1 or (level == 0 and module.partition(".")[0] in sys.stdlib_module_names), module


def test_it_starts_fast_answers_and_ends_with_its_channel(open_folder):
    """Started bare: an unreadable identity is answered, then the process ends by itself."""
    begun = time.monotonic()
    settings = {"checkout": str(open_folder / "elsewhere"), "uid": None, "gid": None}
    settings |= {"working_directory": settings["checkout"]}
    rest = {"guard_uid": None, "groups": [], "processes": 9, "file_bytes": 9, "open_files": 9}
    rest |= {"write": [], "read": [], "devices": [], "close_network": 0, "broker": None, "disabled_layers": []}
    times = {"bash_timeout": 1, "bash_max_timeout": 1, "file_timeout": 1}
    request = {"op": "enter_sandbox", "config": {**settings, **rest, **times}}
    frame = wire.pack(wire.JSON, json.dumps(request).encode())
    environment = {"HOME": str(open_folder), "TMPDIR": str(open_folder)}
    argv = [sys.executable, "-I", "-S", str(INNER / "__main__.py")]
    done = run_alone(argv, frame, capture_output=True, env=environment, cwd=open_folder)
    frames = wire.Frames()
    frames.feed(done.stdout)
    assert (done.returncode, done.stderr) == (1, b"")
    assert "cannot enter" in str(wire.unpack(frames.take()[1])["problem"])
    assert time.monotonic() - begun < 20


def test_a_channel_that_closes_before_the_first_word_ends_it(open_folder):
    argv = [sys.executable, "-I", "-S", str(INNER / "__main__.py")]
    assert run_alone(argv, env={}, cwd=open_folder).returncode == 0


def test_nothing_of_stepflow_is_loaded_beside_it():
    code = (
        "import sys, runpy; sys.argv = ['x']\n"
        "try: runpy.run_path(sys.path.pop(), run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('stepflow', 'anthropic', 'pydantic', 'asyncio')))"
    )
    program = f"import sys; sys.path.append({str(INNER / '__main__.py')!r})\n{code}"
    argv = [sys.executable, "-I", "-S", "-c", program]
    done = run_alone(argv, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


class TestFrames:
    def test_come_out_as_they_went_in_however_they_are_cut(self):
        data = wire.pack(wire.JSON, b'{"a": "\\u00fc"}') + wire.pack(wire.RAW, b"\0" * 1000) + wire.pack(wire.RAW, b"")
        for size in (1, 3, 7, len(data)):
            frames = wire.Frames()
            received = []
            for start in range(0, len(data), size):
                frames.feed(data[start : start + size])
                while frame := frames.take():
                    received.append(frame)
            assert received == [(wire.JSON, b'{"a": "\\u00fc"}'), (wire.RAW, b"\0" * 1000), (wire.RAW, b"")]
            assert wire.unpack(received[0][1]) == {"a": "ü"}

    @pytest.mark.parametrize("data", [b"hello world", b"J\xff\xff\xff\xff", b"X\0\0\0\0"])
    def test_what_is_no_frame_is_told(self, data):
        frames = wire.Frames()
        frames.feed(data)
        with pytest.raises(wire.WireError):
            frames.take()

    @pytest.mark.parametrize("payload", [b"{", b"[]", b"\xff"])
    def test_what_is_no_object_is_told(self, payload):
        with pytest.raises(wire.WireError):
            wire.unpack(payload)

    def test_a_frame_over_the_limit_is_never_sent(self):
        with pytest.raises(wire.WireError):
            wire.pack(wire.RAW, bytes(wire.MAX_PAYLOAD + 1))

    def test_sending_writes_everything(self):
        reader, writer = os.pipe()
        wire.send(writer, {"a": 1})
        wire.send_raw(writer, b"xy")
        os.close(writer)
        frames = wire.Frames()
        frames.feed(os.read(reader, 1000))
        os.close(reader)
        assert [frames.take(), frames.take(), frames.take()] == [(b"J", b'{"a": 1}'), (b"R", b"xy"), None]
