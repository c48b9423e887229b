"""A termination signal at any moment ends the action within five seconds: exit 130, and everything is written."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepflow.action.main import act
from stepflow.action.runner import outputs_of
from stepflow.engine import conversation
from stepflow.report.collect import collect_report
from stepflow.run import clock
from tests.action.entry_process import SLEEP, EntryProcess, sleepers
from tests.checkout import Invocation
from tests.servers.messages_api import Drop, Reply
from tests.world import COMMIT, World, answer, bash, crowd, label_event, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]


def test_during_a_tool(world: World) -> None:
    hanging = bash(f"(sleep {SLEEP} & sleep {SLEEP}); echo never")
    done = signaled(world, [understood(), hanging], when=lambda: len(sleepers()) >= 2)
    assert_cancelled(world, done, where="Flow loop")
    assert done.outputs["iterations"] == "2"


def test_during_a_call_of_the_model(world: World) -> None:
    silent = Drop(silent=600)
    done = signaled(world, [understood(), silent], signal.SIGINT, when=lambda: len(world.model.bodies) == 2)
    assert_cancelled(world, done, signal.SIGINT, where="Flow loop")


def test_during_a_validator(world: World) -> None:
    world.edit(
        "steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command=f"sleep {SLEEP}")
    )
    done = signaled(world, solve(), when=lambda: len(sleepers()) >= 1)
    assert_cancelled(world, done, where="Flow loop")
    assert done.outputs["final-step"] == "closure.issue"


@pytest.mark.usefixtures("checked_base")
def test_during_a_check_before_the_run(world: World) -> None:
    world.edit(
        "steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command=f"sleep {SLEEP}")
    )
    done = signaled(world, [], when=lambda: len(sleepers()) >= 1)
    assert_cancelled(world, done, where="Before the run")
    assert world.model.bodies == []


def test_during_a_wait_for_the_model(world: World) -> None:
    down: list[Reply] = [Drop(), *solve()]
    done = signaled(world, down, when=lambda: "waiting 5 s" in (world.runner.folder / "log").read_text())
    assert_cancelled(world, done, where="Flow loop")


def test_between_two_effects_nothing_is_left_half_done(world: World) -> None:
    claim = answer("closure.issue", "closing", comment="done", pull_request={"title": "t", "body": "b"})
    address = f"{world.github.api_url}/pull/8"
    named = {"number": 8, "state": "open", "title": "t", "html_url": address, "node_id": "PR_8"}
    opened = {**named, "base": {"ref": "main"}}
    # The answer to the open pull request stays away for long enough that the signal comes before it.
    world.github.fail("POST", r"/pulls$", 201, content=json.dumps(opened), after_write=True, stall=2)
    done = signaled(world, [*solve()[:-1], claim], when=lambda: world.pulls() != [])
    assert (done.exit_code, done.outputs["outcome"]) == (130, "cancelled"), done.log
    effects = [line for line in world.events(done) if line["event"] == "effect_applied"]
    assert [(line["kind"], line["status"]) for line in effects] == [
        ("push_branch", "applied"),
        ("open_pull_request", "applied"),
    ]
    written = {"post_comment": len(world.comments()), "add_labels": "ready-for-review" in world.labels()}
    assert {kind: bool(is_there) for kind, is_there in written.items()} == {
        kind: kind in {line["kind"] for line in effects} for kind in written
    }


class StrikingLog(io.StringIO):
    """A job log that a signal meets in the middle of what it is about."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self._line: str | None = line

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._line and self._line in text:
            self._line = None
            signal.raise_signal(signal.SIGTERM)
        return written


def test_while_the_sandbox_closes(world: World) -> None:
    """The work is collected then, and nothing is written to GitHub yet."""
    world.play(solve())
    environ, log = world.runner.prepare(label_event()), StrikingLog("commits of this run: 1")
    code = act(environ, log, clock=world.clock)
    done = world.runner.collect(environ, code, log.getvalue())
    kept = ". The commits are kept in work.bundle in the run folder."
    assert_cancelled(world, done, where="Completion loop", then=kept)


def test_while_a_name_server_stays_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool asks for a host, and the proxy looks its name up in the C library, which no signal interrupts."""
    over, really = threading.Event(), socket.getaddrinfo

    def look_up(host: str | bytes | None, *words: Any, **named: Any) -> Any:
        if host != "silent.example":
            return really(host, *words, **named)
        os.kill(os.getpid(), signal.SIGTERM)
        over.wait(600)
        raise OSError("nobody answers")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    world.play([understood(), bash("curl --silent https://silent.example/; echo never"), *solve()])
    environ, log = world.runner.prepare(label_event(), network="silent.example"), io.StringIO()
    began = time.monotonic()
    try:
        code = act(environ, log, clock=world.clock)
        took = time.monotonic() - began
    finally:
        over.set()
    assert_cancelled(world, world.runner.collect(environ, code, log.getvalue()), where="Flow loop")
    assert took < 60 * crowd()


def assert_cancelled(
    world: World, done: Invocation, number: signal.Signals = signal.SIGTERM, *, where: str, then: str = ""
) -> None:
    """Exit 130, outputs, summary and journal, GitHub as it was, and nobody left."""
    assert (done.exit_code, done.outputs["outcome"]) == (130, "cancelled"), done.log
    assert done.outputs["reason"] == f"{where}: the run received {number.name}{then}"
    assert "## ⏹️ fixer on issue #7: canceled" in done.summary
    assert "**What to do next:** The run was stopped from outside" in done.summary
    assert "To start over, put the label on again." in done.summary
    assert [line.split(" ")[0] for line in done.annotations] == ["::error"]
    assert "Traceback" not in done.log
    last = world.events(done)[-1]
    assert (last["event"], last["outcome"]) == ("run_finished", "cancelled")
    assert ({each.method for each in world.github.requests}, world.wrote_nothing()) == ({"GET"}, True)
    assert sleepers() == []
    folder = done.folder
    assert all((folder / name).is_file() for name in ("report.json", "effects.json", "journal.jsonl"))


def signaled(
    world: World, replies: list[Reply], number: signal.Signals = signal.SIGTERM, *, when: Callable[[], bool]
) -> Invocation:
    """Run the container's entry point as a process and send it a signal as soon as something is so."""
    world.play(replies)
    process = EntryProcess(world, world.runner.prepare(label_event()))
    process.wait_for(when)
    assert process.running.poll() is None, process.log
    process.running.send_signal(number)
    sent = time.monotonic()
    done = process.end()
    assert time.monotonic() - sent < 5 * crowd()
    return done


@pytest.mark.parametrize("on_failure", ["push-branch", "nothing"])
def test_a_tool_in_flight_at_the_deadline_is_ended_and_the_work_is_kept_if_wanted(
    world: World, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> None:
    monkeypatch.setattr(clock, "GRACE", 0.2)
    commit = bash(f"echo 'hello, world' > greeting.txt && {COMMIT}")
    began = time.monotonic()
    replies = iter([understood(), commit, bash(f"sleep {SLEEP}")])

    def reply(_body: dict[str, Any]) -> Reply:
        """The hour that the last turn takes is over at once."""
        world.clock.sleep(3600 if len(world.model.bodies) == 3 else 0)
        return next(replies)

    done = world.run(reply, on_failure=on_failure)
    assert time.monotonic() - began < 100
    assert (done.exit_code, done.outputs["outcome"]) == (1, "timed_out"), done.log
    assert "the deadline passed (limits.minutes)" in done.outputs["reason"]
    call = [line for line in world.events(done) if line["event"] == "tool_call"][-1]
    assert "timed out after" in call["output"]
    assert call["input"] == {"command": f"sleep {SLEEP}"}
    assert any(name.startswith("stepflow/fixer/run-") for name in world.branches()) == (on_failure == "push-branch")
    assert sleepers() == []


def test_a_call_of_the_model_in_flight_at_the_deadline_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "ANSWER_GRACE", 0.2)
    began = time.monotonic()
    replies = iter([understood(), Drop(silent=600)])

    def reply(_body: dict[str, Any]) -> Reply:
        world.clock.sleep(50 * 60 - 5 if len(world.model.bodies) == 1 else 0)
        return next(replies)

    done = world.run(reply)
    assert time.monotonic() - began < 100
    assert (done.exit_code, done.outputs["outcome"]) == (1, "timed_out"), done.log
    assert "Traceback" not in done.log


def test_a_signal_while_the_program_is_loaded_is_not_lost(world: World) -> None:
    process = EntryProcess(world, world.runner.prepare(label_event()))
    bit = 1 << signal.SIGTERM - 1

    def caught() -> bool:
        status = Path(f"/proc/{process.running.pid}/status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(mask, 16) & bit)

    process.wait_for(caught)
    process.running.send_signal(signal.SIGTERM)
    loading = not process.log
    done = process.end()
    assert loading
    assert (done.exit_code, done.outputs["outcome"]) == (130, "cancelled"), done.log
    assert set(done.outputs) == set(outputs_of(collect_report(())))
    assert "Traceback" not in done.log
    assert ": canceled\n" in done.summary


def test_a_second_signal_during_set_up_changes_nothing(world: World) -> None:
    process = EntryProcess(world, world.runner.prepare(label_event(), setup=f"sleep {SLEEP}"))
    process.wait_for(lambda: sleepers() != [])
    process.running.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.running.send_signal(signal.SIGTERM)
    done = process.end()
    assert_cancelled(world, done, signal.SIGINT, where="Before the run")
