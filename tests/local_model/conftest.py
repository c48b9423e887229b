"""An inference server that nobody here wrote, with a small model: what `tests/local_model/build` has built."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.checkout import Runner, git

HERE = Path(__file__).parent
BUILDS = HERE.parents[1] / "build" / "local-model"
#: The model is read and warmed up first; many programs may be at work on the machine.
SECONDS_TO_START = 120.0
#: The same words each time, and no endless ones. One thread: two wait for each other forever where cores are shared.
SETTINGS = (
    *("--parallel", "1", "--ctx-size", "2048", "--threads", "1", "--threads-batch", "1"),
    *("--temp", "0.3", "--seed", "7", "--repeat-penalty", "1.2"),
)

Serve = Callable[..., str]


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder with the server and its model. Without it these tests fail: they were asked for."""
    folder = BUILDS / hashlib.sha256((HERE / "requirements.txt").read_bytes()).hexdigest()[:12]
    if not (folder / "llama-server").is_file():
        pytest.fail("llama-server is not built: run tests/local_model/build")
    return folder


@pytest.fixture
def serve(built: Path, tmp_path: Path) -> Iterator[Serve]:
    """Start a server with more arguments; gives its address."""
    with ExitStack() as stack:

        def start(*arguments: str) -> str:
            port = _free_port()
            usual = ["--host", "127.0.0.1", "--port", str(port), "--model", built / "model.gguf", "--no-webui"]
            argv = [built / "llama-server", *usual, *SETTINGS, *arguments]
            stack.enter_context(_running(argv, tmp_path / f"server-{port}.log", port))
            return f"http://127.0.0.1:{port}"

        yield start


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A checkout with the agent `looker`, and a job around it. The model has no price, so tokens are the budget."""
    folder, checkout = tmp_path / "runner", tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(HERE / "checkout", checkout)
    git("init", "--quiet", cwd=checkout)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Begin", cwd=checkout)
    inputs = {
        "anthropic-api-key": "sk-of-a-local-server",
        "model": {"name": "smollm2"},
        "limits": "tokens: 200000",
        "boundary": "dry-run",
        "isolation": "best-effort",
    }
    return Runner(checkout=checkout, folder=folder, inputs=inputs)


@contextmanager
def _running(argv: list[str | Path], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            _await_health(process, port, log)
            yield
        finally:
            process.terminate()


def _await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"llama-server does not answer:\n{log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
