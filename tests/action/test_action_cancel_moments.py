"""A termination signal at any moment of whole runs: exit 130 within five seconds, and everything written.

Each of five runs gets it at one moment, and at ten with `STEPFLOW_FULL=1`.
The runs are real processes with a set-up, tools that sleep, a model that hangs and is busy, a validator, and effects.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepflow.action.runner import outputs_of
from stepflow.journal import read_journal
from stepflow.report.collect import collect_report
from tests.action.entry_process import SLEEP, EntryProcess, sleepers
from tests.checkout import Invocation
from tests.covering import FULL
from tests.servers.messages_api import Drop, Failure, Reply
from tests.world import COMMIT, World, answer, bash, crowd, label_event, open_world, understood

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1500)]

MOMENTS = 10 if FULL else 1
ALLOWED = 5.0
FIRST = (signal.SIGTERM, signal.SIGINT)
CLOSING = {"comment": "Greeted.", "pull_request": {"title": "Greet the world", "body": "It was left out."}}


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


def whole_seconds(folder: Path, kind: str) -> float:
    """How long the run takes from its first line on when nobody disturbs it; one that would hang counts until then."""
    with open_world(folder) as world:
        process = begin(world, kind)
        process.wait_for(lambda: process.log != "")
        began = time.monotonic()
        if kind == "silent model":
            process.wait_for(lambda: len(world.model.bodies) == 2)
            process.running.send_signal(signal.SIGTERM)
            process.end(20)
            return time.monotonic() - began + 2
        done = process.end(60)
        assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
        return time.monotonic() - began


def owners(checkout: Path) -> set[int]:
    return {path.lstat().st_uid for path in (checkout, *checkout.rglob("*"))}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_at_any_moment_ends_the_run_whole_and_soon(folder: Path, kind: str) -> None:
    (folder / "whole").mkdir()
    chance = random.Random(f"cancel {kind}")
    whole = whole_seconds(folder / "whole", kind)
    moments = sorted(chance.uniform(0, whole) for _ in range(MOMENTS))
    rows = []
    for number, moment in enumerate(moments):
        rows.append(struck(folder / str(number), kind, moment, chance))
    print(f"\n{kind} ({whole:.1f} s)\n" + "\n".join(rows))


def struck(folder: Path, kind: str, moment: float, chance: random.Random) -> str:
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


def strike(world: World, kind: str, moment: float, first: signal.Signals, second: float) -> tuple[str, str]:
    """The row, empty for a run that was refused, and the log."""
    process = begin(world, kind)
    process.wait_for(lambda: process.log != "")
    time.sleep(moment)
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
    return f"  {moment:5.2f} s  {first.name:<7} exit {done.exit_code:<3} in {took:.2f} s  {last}", done.log


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
