"""A termination signal ends the run once, at a safe moment."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stepflow.errors import RunCancelled
from stepflow.journal import read_journal
from stepflow.run.clock import Cancellation, RehearsalClock
from stepflow.run.ending import write_unbegun
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger


def strike(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


class DyingSlowly:
    """Its finalizer is where the signal strikes."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        strike(self._number)
        sum(range(10))


@pytest.fixture
def held() -> Iterator[Cancellation]:
    """A cancellation that listens and holds every signal back."""
    cancellation = Cancellation()
    with cancellation.listening():
        cancellation.hold()
        yield cancellation


@pytest.mark.parametrize("strikes", [strike, DyingSlowly], ids=["at work", "inside a finalizer"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_whatever_is_going_on(number: signal.Signals, strikes: Callable, capfd) -> None:
    started = time.monotonic()
    with pytest.raises(RunCancelled, match=number.name), Cancellation().listening():
        strikes(number)
        time.sleep(30)
    assert time.monotonic() - started < 20
    assert capfd.readouterr().err == ""


def test_a_signal_lets_a_module_be_loaded_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of the import system it could leave a lock behind that every other thread's imports wait for."""
    strikes = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nsum(range(10))\nloaded = True\n"
    (tmp_path / "struck_while_loaded.py").write_text(strikes)
    monkeypatch.syspath_prepend(tmp_path)
    started = time.monotonic()
    with pytest.raises(RunCancelled, match="SIGTERM"), Cancellation().listening():
        importlib.import_module("struck_while_loaded")
        time.sleep(30)
    assert sys.modules.pop("struck_while_loaded").loaded
    assert time.monotonic() - started < 20


def test_a_second_signal_does_not_disturb_the_ending() -> None:
    with Cancellation().listening():
        with pytest.raises(RunCancelled):
            strike()
        strike()


def test_a_held_signal_strikes_where_it_is_obeyed_again(held: Cancellation) -> None:
    strike()
    with pytest.raises(RunCancelled, match="SIGTERM"), held.obeyed():
        raise AssertionError("unreachable: the signal has struck already")


def test_after_a_section_that_obeys_signals_are_held_again(held: Cancellation) -> None:
    with pytest.raises(ZeroDivisionError), held.obeyed():
        raise ZeroDivisionError
    strike()
    with pytest.raises(RunCancelled):
        held.check()


def wrap() -> None:
    try:
        time.sleep(30)
    except BaseException as cancelled:
        raise ValueError("a model could not be built") from cancelled


def swallow() -> None:
    with suppress(BaseException):
        time.sleep(30)


@pytest.mark.parametrize("library", [wrap, swallow])
def test_a_library_that_wraps_or_swallows_the_signal_cannot_keep_a_run_going(
    library: Callable[[], None], held: Cancellation
) -> None:
    with pytest.raises(RunCancelled, match="SIGTERM"), held.waiting():
        threading.Timer(0.2, strike).start()
        library()


def test_signals_that_came_before_anybody_listened_count() -> None:
    early: list[int] = []
    cancellation = Cancellation(early)
    early.append(signal.SIGINT)
    with pytest.raises(RunCancelled, match="SIGINT"), cancellation.listening():
        raise AssertionError("unreachable: the signal has struck already")
    held = Cancellation([signal.SIGTERM])
    held.hold()
    with held.listening(), pytest.raises(RunCancelled, match="SIGTERM"), held.obeyed():
        raise AssertionError("unreachable: the signal strikes where it is obeyed first")


LAST_WORDS = """
import os, signal, sys
from stepflow.run.clock import Cancellation
cancellation = Cancellation(for_good=True)
cancellation.hold()
with cancellation.listening():
    pass

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

sys.modules["last"] = Last()
raise SystemExit(7)
"""


def test_a_signal_while_the_interpreter_ends_does_not_change_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", LAST_WORDS], check=False).returncode == 7


def request_for(folder: Path) -> RunRequest:
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False, issue_number=7)
    return RunRequest(run_id="r-1", inputs=read_inputs({}), trigger=trigger, root=folder, folder=folder / "run")


def test_a_run_that_is_cancelled_before_it_begins_leaves_its_folder(tmp_path: Path) -> None:
    request = request_for(tmp_path)
    report = write_unbegun(request, RunCancelled("the run received SIGTERM"), RehearsalClock())
    assert (report.outcome, report.reason) == ("cancelled", "Before the run: the run received SIGTERM")
    assert (report.agent, report.issue, report.run_folder) == ("fixer", 7, str(request.folder))
    (entry,) = read_journal(request.folder / "journal.jsonl")
    assert (entry.event.event, entry.event.outcome) == ("run_finished", "cancelled")
    assert json.loads((request.folder / "report.json").read_text())["outcome"] == "cancelled"


def test_it_adds_nothing_to_the_journal_of_an_earlier_run(tmp_path: Path) -> None:
    request = request_for(tmp_path)
    request.folder.mkdir()
    (request.folder / "journal.jsonl").write_text("somebody else's\n")
    write_unbegun(request, RunCancelled("x"), RehearsalClock())
    assert [path.name for path in request.folder.iterdir()] == ["journal.jsonl"]
    assert (request.folder / "journal.jsonl").read_text() == "somebody else's\n"
