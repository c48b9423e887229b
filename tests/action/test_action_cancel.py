"""A termination signal at any moment ends the action within five seconds: exit 130, and everything is written."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepflow.action.main import act
from stepflow.action.runner import outputs_of
from stepflow.engine import conversation
from stepflow.journal import read_journal
from stepflow.report.collect import collect_report
from stepflow.run import clock
from tests.action.entry_process import SLEEP, EntryProcess, sleepers
from tests.checkout import Invocation
from tests.covering import FULL
from tests.servers.messages_api import Drop, Failure, Reply
from tests.world import CLOSING, COMMIT, World, answer, bash, crowd, label_event, open_world, solve, understood

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
    assert "the deadline passed (input timeout-minutes)" in done.outputs["reason"]
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


MOMENTS = 10 if FULL else 1
#: Of the journal of most of these runs; a moment is one of them, and up to half a second more.
LINES = 60
ALLOWED = 5.0
FIRST = (signal.SIGTERM, signal.SIGINT)


def slow_work() -> list[Reply]:
    """Tools that take their time."""
    return [
        understood(),
        bash(f"sleep 0.4; (sleep {SLEEP} &) ; sleep 0.4"),
        bash(f"echo 'hello, world' > greeting.txt && {COMMIT}; sleep 0.3"),
        answer("continuation.issue", "handoff", summary="the world is greeted"),
        answer("closure.issue", "closing", **CLOSING),
    ]


#: What the model says, and the inputs: five ways to spend a run's time. The first two are played, which spares every
#: run the second that loading the libraries of model and GitHub takes.
KINDS: dict[str, tuple[Callable[[], list[Reply]], dict[str, str]]] = {
    "tools": (list, {"provider": "scripted", "boundary": "dry-run"}),
    "set-up": (list, {"provider": "scripted", "boundary": "dry-run", "setup": "sleep 1.5"}),
    "busy model": (lambda: [understood(), Failure(status=529), *slow_work()[1:]], {}),
    "silent model": (lambda: [understood(), Drop(silent=600)], {}),
    "boundary": (lambda: [*slow_work()[:1], *slow_work()[2:]], {}),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the tools' own user can reach, so that the checkout really changes owners and back."""
    path = Path(tempfile.mkdtemp(prefix="stepflow-test-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def played(step: str, intent: str, **more: object) -> dict[str, object]:
    return {"output": {"stepId": step, "next_action": {"action": intent, "reason": "so it is"}, **more}}


def scenario() -> str:
    """The same work for a scripted model."""
    turns = [
        played("initial.issue", "next", understanding="x"),
        {"tools": [{"bash": {"command": "sleep 0.4; (sleep 3600 &) ; sleep 0.4"}}]},
        {"tools": [{"bash": {"command": f"echo 'hello, world' > greeting.txt && {COMMIT}; sleep 0.3"}}]},
        played("continuation.issue", "handoff", summary="x"),
        played("closure.issue", "closing", **CLOSING),
    ]
    return json.dumps({"turns": turns})


def begin(world: World, kind: str) -> EntryProcess:
    replies, inputs = KINDS[kind]
    world.play(replies())
    script = world.runner.folder / "scenario.yaml"
    script.write_text(scenario())
    inputs = {**inputs, "scenario": str(script)} if "provider" in inputs else inputs
    greeting = {"command": "sleep 0.5; grep 'hello, world' greeting.txt"}
    world.edit("steps_registry.json", lambda registry: registry["validators"]["greeting"].update(greeting))
    isolation = "required" if os.geteuid() == 0 else "best-effort"
    environ = world.runner.prepare(label_event(), isolation=isolation, **inputs)
    return EntryProcess(world, environ)


def lines_of(world: World) -> int:
    """How far the run has come: the lines of its journal."""
    return sum(len(path.read_bytes().splitlines()) for path in world.runner.folder.glob("temp/*/*/journal.jsonl"))


def owners(checkout: Path) -> set[int]:
    return {path.lstat().st_uid for path in (checkout, *checkout.rglob("*"))}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_at_any_moment_ends_the_run_whole_and_soon(folder: Path, kind: str) -> None:
    chance = random.Random(f"cancel {kind}")
    lines = 20 if kind == "silent model" else LINES
    moments = sorted((chance.randrange(lines), chance.uniform(0, 0.5)) for _ in range(MOMENTS))
    rows = [struck(folder / str(number), kind, moment, chance) for number, moment in enumerate(moments)]
    print(f"\n{kind}\n" + "\n".join(rows))


def struck(folder: Path, kind: str, moment: tuple[int, float], chance: random.Random) -> str:
    """One run with a signal at this moment, and every second time another one shortly after; a row of the table."""
    first, second = chance.choice(FIRST), chance.choice((0.0, chance.uniform(0.01, 0.4)))
    folder.mkdir()
    with open_world(folder) as world:
        row, log = strike(world, kind, moment, first, second)
    if row:
        return row
    # Tests of the sandbox that run beside this one plant sockets, which a run that finds them refuses.
    assert "/run/stepflow-test" in log, log
    return struck(folder.with_name(f"{folder.name}+"), kind, moment, chance)


def strike(world: World, kind: str, moment: tuple[int, float], first: signal.Signals, second: float) -> tuple[str, str]:
    """The row, empty for a run that was refused, and the log."""
    process = begin(world, kind)
    lines, delay = moment
    process.wait_for(lambda: process.log != "" and lines_of(world) >= lines)
    time.sleep(delay)
    over = process.running.poll() is not None
    process.running.send_signal(first)
    sent = time.monotonic()
    if second:
        time.sleep(second)
        process.running.send_signal(signal.SIGTERM)
    done = process.end(ALLOWED * 20)
    took = time.monotonic() - sent
    if done.outputs.get("outcome") == "refused":
        return "", done.log
    last = check_whole(world, done, over=over)
    if not over:
        assert took < ALLOWED * crowd(), f"{took:.1f} s at a load of {crowd():.1f} per core\n{done.log}"
    row = f"  {lines:3} lines and {delay:.2f} s  {first.name:<7} exit {done.exit_code:<3} in {took:.2f} s  {last}"
    return row, done.log


def check_whole(world: World, done: Invocation, *, over: bool) -> str:
    """Everything is there; what the run was doing, for the table."""
    context = f"{done.exit_code} {done.outputs}\n{done.log}"
    ended = {130: "cancelled", 0: "completed"}
    assert done.outputs.get("outcome") == ended.get(done.exit_code), context
    assert done.exit_code == 130 or over or "Agent" in done.log, context
    assert set(done.outputs) == set(outputs_of(collect_report(()))), context
    assert "Traceback" not in done.log, context
    assert f": {'completed' if done.exit_code == 0 else 'canceled'}\n" in done.summary, context
    if os.geteuid() == 0:
        assert owners(world.checkout) == {0}, context
    assert sleepers() == []
    if not done.outputs["run-folder"]:
        assert "Agent fixer on" not in done.log, context
        return "before the run"
    folder = done.folder
    entries = read_journal(folder / "journal.jsonl")
    last = entries[-1].event
    assert (last.event, last.outcome) == ("run_finished", done.outputs["outcome"]), context
    assert json.loads((folder / "report.json").read_text())["outcome"] == done.outputs["outcome"], context
    applied = [entry.event for entry in entries if entry.event.event == "effect_applied"]
    assert all(effect.status == "applied" for effect in applied), context
    pulls, comments = bool(world.pulls()), bool(world.comments())
    assert {(pulls, "open_pull_request"), (comments, "post_comment")} == {
        (any(effect.kind == kind for effect in applied), kind) for kind in ("open_pull_request", "post_comment")
    }, context
    return f"{done.outputs['reason'].partition(':')[0]}, after {entries[-2].event.event if entries[1:] else 'nothing'}"


def test_a_signal_while_the_program_is_loaded_is_not_lost(folder: Path) -> None:
    with open_world(folder) as world:
        process = begin(world, "tools")
        bit = 1 << signal.SIGTERM - 1

        def caught() -> bool:
            status = Path(f"/proc/{process.running.pid}/status").read_text()
            mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
            return bool(int(mask, 16) & bit)

        process.wait_for(caught)
        process.running.send_signal(signal.SIGTERM)
        loading = not process.log
        done = process.end(ALLOWED * 20)
        assert loading
        assert check_whole(world, done, over=False) == "before the run"
        assert done.exit_code == 130
