"""The program on the hostile side is small and stands alone (docs/threat-model.md)."""

from __future__ import annotations

import ast
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import stepflow.sandbox.child

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


def run_alone(argv: list[str], body: dict | None = None, **options) -> tuple[subprocess.CompletedProcess, bytes]:
    """Run the program with a channel that is closed after one request; also what it answers there."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, tempfile.TemporaryFile() as file:
            file.write(json.dumps(body).encode())
            file.flush()
            if body is not None:
                socket.send_fds(ours, [b"enter"], [file.fileno()])
            ours.shutdown(socket.SHUT_WR)
            done = subprocess.run(argv, stdin=theirs, check=False, **options)
        return done, b"".join(iter(lambda: ours.recv(65536), b""))


@pytest.mark.parametrize("path", sorted(INNER.glob("*.py")), ids=lambda path: path.name)
def test_each_module_imports_the_standard_library_and_its_siblings_only(path):
    for level, module in imports(path):
        assert level == 1 or (level == 0 and module.partition(".")[0] in sys.stdlib_module_names), module


def test_it_starts_fast_answers_and_ends_with_its_channel(open_folder):
    """Started bare: an unreadable identity is answered, then the process ends by itself."""
    begun = time.monotonic()
    settings = {"checkout": str(open_folder / "elsewhere"), "uid": None, "gid": None}
    settings |= {"working_directory": settings["checkout"]}
    rest = {"groups": [], "processes": 9, "file_bytes": 9, "open_files": 9}
    rest |= {"write": [], "read": [], "devices": [], "close_network": 0, "broker": None, "disabled_layers": []}
    environment = {"HOME": str(open_folder), "TMPDIR": str(open_folder)}
    argv = [sys.executable, "-I", "-S", str(INNER / "__main__.py")]
    done, answer = run_alone(argv, {**settings, **rest}, capture_output=True, env=environment, cwd=open_folder)
    assert (done.returncode, done.stderr) == (1, b"")
    assert "cannot enter" in json.loads(answer)["problem"]
    assert time.monotonic() - begun < 20


def test_a_channel_that_closes_before_the_first_word_ends_it(open_folder):
    argv = [sys.executable, "-I", "-S", str(INNER / "__main__.py")]
    done, answer = run_alone(argv, env={}, cwd=open_folder)
    assert (done.returncode, answer) == (0, b"")


def test_nothing_of_stepflow_is_loaded_beside_it():
    code = (
        "import sys, runpy; sys.argv = ['x']\n"
        "try: runpy.run_path(sys.path.pop(), run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('stepflow', 'anthropic', 'pydantic', 'asyncio')))"
    )
    program = f"import sys; sys.path.append({str(INNER / '__main__.py')!r})\n{code}"
    argv = [sys.executable, "-I", "-S", "-c", program]
    done, _ = run_alone(argv, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
