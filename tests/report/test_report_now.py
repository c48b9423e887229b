"""What a run does just now, as a watcher reads it."""

from __future__ import annotations

from dataclasses import replace

from plausible_run import BEGAN, STARTED

from stepflow.domain.conversation import Usage
from stepflow.domain.event import (
    CompletionJudged,
    Entry,
    Event,
    IterationStarted,
    ModelTurned,
    ModelWaited,
    StepAnswered,
    ToolCalled,
    ToolStarted,
)
from stepflow.domain.words import Intent, StepKind
from stepflow.report.lines import Tone
from stepflow.report.log import TerminalLog

STEP = IterationStarted(iteration=1, step_id="initial.issue", kind=StepKind.WORK, model="m")
CALL = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "make\ntest"}}
TURN = ModelTurned(
    content=[{"type": "text", "text": "I look at it."}, CALL],
    stop_reason="tool_use",
    usage=Usage(),
    cost_usd=0.0,
    model="m",
    seconds=1,
)
BEGUN = ToolStarted(tool_use_id="t1", name="bash")
DONE = ToolCalled(
    tool_use_id="t1", name="bash", input={"command": "x"}, output="", is_error=False, exit_code=0, seconds=1
)


def log_after(*events: Event) -> TerminalLog:
    log = TerminalLog()
    for number, event in enumerate((STARTED, *events)):
        log.render(Entry(seq=number + 1, time=BEGAN + number, event=event))
    return log


def doing(*events: Event, later: float = 0.0) -> str:
    """What is going on, so many seconds after the last event."""
    ((kind, text), *_rest) = log_after(*events).now(BEGAN + len(events) + later)
    assert kind is Tone.STEP
    return text


def test_a_tool_at_work_is_shown_with_its_call_and_its_seconds() -> None:
    assert doing(STEP, TURN, BEGUN) == "initial.issue · bash make …"
    assert doing(STEP, TURN, BEGUN, later=7.9) == "initial.issue · 7 s · bash make …"
    assert doing(STEP, TURN, BEGUN, later=125) == "initial.issue · 2 min 5 s · bash make …"
    assert doing(STEP, TURN, BEGUN, DONE, later=3) == "initial.issue · 3 s · the model answers"


def test_a_wait_counts_down_and_ends_with_the_answer() -> None:
    wait = ModelWaited(reason="overloaded", seconds=20, attempt=2)
    assert doing(STEP, wait, later=5) == "initial.issue · 15 s left · waits for the model, try 2 of 5 failed"
    assert doing(STEP, wait, later=25) == "initial.issue · 0.0 s left · waits for the model, try 2 of 5 failed"
    assert doing(STEP, wait, TURN, BEGUN, later=2) == "initial.issue · 2 s · bash make …"


def test_what_stands_around_the_model_has_its_words_too() -> None:
    closing = StepAnswered(step_id="initial.issue", answer={}, intent=Intent.CLOSING, target=None, reason="")
    assert doing() == "prepares the run"
    assert doing(STEP) == "initial.issue · the model answers"
    assert doing(STEP, closing) == "initial.issue · validators run"
    judged = CompletionJudged(entry="issue", step_id="initial.issue", done=True, validated=True)
    assert doing(STEP, closing, judged) == "initial.issue · plans what to write to GitHub"


def test_a_step_of_any_name_leaves_room_for_what_it_does() -> None:
    assert doing(replace(STEP, step_id="s" * 90), TURN, BEGUN) == f"{'s' * 31}… · bash make …"


def test_the_last_words_come_below_once_the_log_has_gone_on() -> None:
    words = (Tone.WORDS, "│ I look at it.")
    assert words not in log_after(STEP, TURN, BEGUN).now(BEGAN)
    assert words in log_after(STEP, TURN, BEGUN, DONE).now(BEGAN)


def test_who_looks_from_outside_reads_the_limits_in_the_options() -> None:
    options = {"budget-usd": 5.0, "budget-tokens": 9000, "timeout-minutes": 50.0}
    log = TerminalLog()
    log.render(Entry(seq=1, time=BEGAN, event=replace(STARTED, options=options)))
    assert log.run_log.progress(BEGAN + 60) == "iteration 0 of 10 · $0.00 of $5.00 · 0 of 9,000 tokens · 1.0 of 50 min"
