"""A bug of ours ends a run with a report that says how to report it, and set-up happens before the tools live."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable

import pytest

from stepflow.domain.event import Entry, StepAnswered
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.report.summary import final_words
from tests.run.stopped_run import SECRET, Run

pytestmark = pytest.mark.whole


def breaks_at(kind: type) -> Callable[[Entry], None]:
    """A listener with a bug that shows once."""
    broken: list[Entry] = []

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, kind) and not broken:
            broken.append(entry)
            raise ZeroDivisionError(f"a bug beside {SECRET}")

    return listen


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that a bug ended in its flow."""
    run = Run.of(tmp_path_factory.mktemp("broken"))
    run.result = run.play(breaks_at(StepAnswered), github_token=SECRET)
    return run


def test_the_traceback_is_folded_in_the_job_log_and_redacted_everywhere(broken: Run) -> None:
    assert json.loads((broken.folder / "report.json").read_text())["outcome"] == "internal_error"
    at = broken.log.index("::group::internal error")
    folded = broken.log[at : broken.log.index("::endgroup::", at)]
    assert any("Traceback (most recent call last)" in line for line in folded)
    assert any("ZeroDivisionError: a bug beside ***" in line for line in folded)
    files = [path.read_bytes() for path in broken.folder.rglob("*") if path.is_file()]
    assert files
    assert all(SECRET.encode() not in data for data in (*files, "\n".join(broken.log).encode()))


def test_the_last_words_say_how_to_report_a_bug(broken: Run) -> None:
    output = "\n".join(final_words(broken.result.report))
    assert "fault of stepflow" in output
    assert "traceback" in output
    assert "journal.jsonl" in output
    assert str(broken.folder) in output


def fake_apt(run: Run, script: str) -> tuple[str, ...]:
    folder = run.root.parent / "bin"
    folder.mkdir()
    (folder / "apt-get").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "apt-get").chmod(0o755)
    return (str(folder), "/usr/bin", "/bin")


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="packages are installed by root alone")


@as_root
@pytest.mark.whole
def test_packages_are_there_before_setup_and_before_the_flow(run: Run) -> None:
    run.play(path=fake_apt(run, "echo did $1"), apt_packages="shellcheck", setup="echo ready")
    notes = [event for event in run.events() if event["event"] == "noted"]
    messages = [event["message"] for event in notes]
    assert messages[:2] == ["[Packages] installing shellcheck", "[Packages] apt-get ended with exit code 0"]
    assert notes[1]["data"] == {"output": "did update\ndid install"}
    setup = next(event for event in notes if event["message"].startswith("setup"))
    assert (setup["message"], setup["data"]) == ("setup ended with exit code 0", {"output": "ready"})
    assert run.kinds().index("model_turn") > run.events().index(setup) > run.events().index(notes[1])
    assert "::group::[Packages] apt-get ended with exit code 0" in run.log


@as_root
@pytest.mark.parametrize(
    ("met", "given"),
    [
        ("open", {"network": "full"}),
        ("closed", {"network": "none"}),
        ("closed", {"network": "good.example"}),
    ],
    ids=["full", "none", "allow"],
)
@pytest.mark.whole
def test_a_closed_network_is_closed_to_setup_and_never_to_packages(run: Run, met: str, given: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        reach = f"exec 3<> /dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        path = fake_apt(run, f"bash -c '{reach}' && echo reached")
        run.play(path=path, apt_packages="jq", setup=f"({reach}) 2> /dev/null || true", **given)
        came = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                came += 1
    # apt-get runs twice: to update and to install.
    assert came == (3 if met == "open" else 2)
    notes = [event for event in run.events() if event["event"] == "noted" and event["data"]]
    assert notes[0]["data"]["output"] == "reached\nreached"
    started = next(event for event in run.events() if event["event"] == "run_started")
    assert started["isolation"]["network"].startswith(met)


@as_root
def test_packages_that_cannot_be_installed_end_the_run_before_anything_else(run: Run) -> None:
    result = run.play(path=fake_apt(run, "echo E: Unable to locate package; exit 100"), apt_packages="nosuch")
    assert result.report.outcome is Outcome.MISCONFIGURED
    assert "Unable to locate package" in result.reason
    assert [event["event"] for event in run.events()] == ["noted", "noted", "run_finished"]


def test_a_machine_without_apt_get_is_reported_before_the_run(run: Run) -> None:
    with pytest.raises(InputError, match="apt-packages"):
        run.play(path=(str(run.root),), apt_packages="jq")
    assert not run.folder.exists()
