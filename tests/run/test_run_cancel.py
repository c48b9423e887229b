"""A termination signal ends the run once, at a safe moment."""

from __future__ import annotations

import os
import signal
import time

import pytest

from stepflow.errors import RunCancelled
from stepflow.run.cancel import Cancellation


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_whatever_is_going_on(number) -> None:
    started = time.monotonic()
    with pytest.raises(RunCancelled, match=number.name), Cancellation().listening():
        os.kill(os.getpid(), number)
        time.sleep(10)
    assert time.monotonic() - started < 5


def test_a_second_signal_does_not_disturb_the_ending() -> None:
    cancellation = Cancellation()
    with cancellation.listening():
        with pytest.raises(RunCancelled):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_held_signal_counts_only_where_it_is_asked_for() -> None:
    cancellation = Cancellation()
    with cancellation.listening():
        cancellation.hold()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RunCancelled, match="SIGTERM"):
            cancellation.check()


def test_a_held_signal_strikes_where_it_is_obeyed_again() -> None:
    cancellation = Cancellation()
    begun = []
    with cancellation.listening():
        cancellation.hold()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RunCancelled, match="SIGTERM"), cancellation.obeyed():
            begun.append(True)
    assert begun == []


def test_after_a_section_that_obeys_signals_are_held_again() -> None:
    cancellation = Cancellation()
    with cancellation.listening():
        cancellation.hold()
        with pytest.raises(ZeroDivisionError), cancellation.obeyed():
            raise ZeroDivisionError
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RunCancelled):
            cancellation.check()


def test_a_signal_in_a_section_that_obeys_interrupts_it() -> None:
    cancellation = Cancellation()
    started = time.monotonic()
    with cancellation.listening():
        cancellation.hold()
        with pytest.raises(RunCancelled), cancellation.obeyed():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
    assert time.monotonic() - started < 5


def test_without_a_signal_there_is_nothing_to_ask_for() -> None:
    Cancellation().check()


def test_the_signals_go_back_to_whoever_had_them() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Cancellation().listening():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
