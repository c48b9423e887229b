"""A collector that others wrote receives a run: Rotel, from its package on PyPI, which passes on what it took."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepflow.journal import iter_journal
from stepflow.telemetry.spans import build_trace
from tests.checkout import git
from tests.servers.collector import CollectorServer, attributes_of
from tests.servers.messages_api import MessagesApi
from tests.servers.private_network import closed_port
from tests.telemetry.test_telemetry_export import names_of_metrics
from tests.world import MODEL_KEY, SOURCE, solve

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: A program in a wheel; it needs no Python.
ROTEL = "rotel==0.0.1a15 --hash=sha256:2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7"
WHEEL = ("--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux_2_34_x86_64")
TOKEN = "otel-token-of-a-test-0123456789"


@pytest.fixture(scope="module")
def rotel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rotel")
    (folder / "requirements.txt").write_text(f"{ROTEL}\n")
    words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", *WHEEL)
    command = [sys.executable, "-m", "pip", *words, "--dest", ".", "--requirement", "requirements.txt"]
    subprocess.run(command, cwd=folder, check=True, timeout=200)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract("rotel/rotel-agent", folder)
    program = folder / "rotel" / "rotel-agent"
    program.chmod(0o755)
    return program


@contextmanager
def serving(rotel: Path, forward_to: str) -> Iterator[str]:
    """The collector's address while it runs."""
    http, grpc = closed_port(), closed_port()
    command = [
        *(str(rotel), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}"),
        *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "otlp", "--otlp-exporter-protocol", "http"),
        *("--otlp-exporter-endpoint", forward_to),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _is_open(http))
            yield f"http://127.0.0.1:{http}"
        finally:
            process.terminate()


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_for(done: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def make_repository(root: Path) -> Path:
    shutil.copytree(SOURCE, root)
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "Begin", cwd=root)
    return root


def stepflow(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "stepflow", *words]
    secrets = {"ANTHROPIC_API_KEY": MODEL_KEY, "STEPFLOW_TELEMETRY": f"headers: {{Authorization: Bearer {TOKEN}}}"}
    environ = {**os.environ, **secrets}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def test_a_real_collector_receives_a_run_and_an_old_run_folder(rotel: Path, tmp_path: Path) -> None:
    checkout, folder = make_repository(tmp_path / "checkout"), tmp_path / "run"
    flags = ["--issue", "7", "--issue-text", "Greet the world.", "--run-folder", str(folder)]
    with CollectorServer() as behind, serving(rotel, behind.url) as url:
        with MessagesApi(solve(), api_key=MODEL_KEY) as api:
            flags += ["--model", f"base-url={api.url}", "--telemetry", f"endpoint={url}"]
            done = stepflow("run", "fixer", *flags, cwd=checkout)
        assert done.returncode == 0, done.stdout + done.stderr
        trace = build_trace(iter_journal(folder / "journal.jsonl"))
        wait_for(
            lambda: len(behind.spans()) == len(trace.spans) and "/v1/metrics" in {each[0] for each in behind.requests}
        )
        received, metrics = behind.spans(), behind.metrics()
        again = stepflow("show", str(folder), "--otlp", url, cwd=checkout)
        assert (again.returncode, again.stderr.strip()) == (0, f"sent to {url}")
        wait_for(lambda: len(behind.spans()) == 2 * len(trace.spans))
        twice = behind.spans()[len(received) :]
    assert sorted(span.span_id for span in received) == sorted(
        trace.span_id(span.number).to_bytes(8, "big") for span in trace.spans
    )
    names = {trace.span_id(span.number): span for span in trace.spans}
    for span in received:
        sent = names[int.from_bytes(span.span_id)]
        assert span.name == sent.name
        assert int.from_bytes(span.parent_span_id) == (trace.span_id(sent.parent.number) if sent.parent else 0)
        attributes = attributes_of(span)
        assert attributes.pop("error.type", "") == sent.error
        assert attributes == {**sent.attributes}
    assert {span.span_id for span in twice} == {span.span_id for span in received}
    assert metrics.keys() == {*names_of_metrics(trace)}
    assert TOKEN not in done.stdout + done.stderr + (folder / "journal.jsonl").read_text()
