"""What a journal says of the run that wrote it: its snapshots and its place in a scenario."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.conversation import ModelTurn, ToolCall, Usage
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.event import (
    AnswerLost,
    CacheRenewed,
    EffectApplied,
    FlowEnded,
    IterationStarted,
    ModelWaited,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    ToolStarted,
)
from stepflow.domain.words import Outcome, Stage, StepKind
from stepflow.model.scenario import Scenario, ScriptedError, Turn
from stepflow.run.recorded import PreviousRun, RunSnapshots
from stepflow.run.resume import implausible

STARTED = RunStarted(
    run_id="r",
    agent="a",
    dialect="gate",
    definition_digest="",
    verdict_type="",
    entry_step="a",
    max_iterations=3,
    nonce="0" * 24,
)
LOST = AnswerLost(reason="reset", usage=Usage(input_tokens=7), cost_usd=0.25)
RENEWED = CacheRenewed(step_id="a", usage=Usage(cache_read_tokens=9), cost_usd=0.5, seconds=1.0)
BEGUN = ToolStarted(tool_use_id="t", name="bash")
CALLED = ToolCall(tool_use_id="t", name="bash", input={}, output="", is_error=False, exit_code=0, seconds=0.0)
FAILED = SnapshotFailed(reason="full")
MODEL_FAILED = FlowEnded(
    outcome=Outcome.MODEL_FAILED, stage=Stage.FLOW, reason="x", step_id="a", answer=None, validated=False
)


def snapshot(name: str) -> SnapshotTaken:
    return SnapshotTaken(name=name, files=1, bytes=1, seconds=0.0)


A, B, C, D = (snapshot(name) for name in "abcd")


def kept(names: str, **fields: object) -> RunSnapshots:
    """The first of these one-letter names is the start, the last one where the run stopped."""
    return RunSnapshots(start=names[0], latest=names[-1], names=tuple(names), **fields)


def resumed(snapshot: str) -> RunResumed:
    return RunResumed(events=1, from_seq=1, iteration=1, step_id="a", snapshot=snapshot)


def begins(step_id: str, iteration: int = 1) -> IterationStarted:
    return IterationStarted(iteration=iteration, step_id=step_id, kind=StepKind.WORK, model="")


def turned(text: str = "x") -> ModelTurn:
    content = [{"type": "text", "text": text}]
    return ModelTurn(content=content, stop_reason="end_turn", usage=Usage(), cost_usd=0.0, model="", seconds=0.0)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], RunSnapshots()),
        ([A, A], kept("a", is_set_up=True)),
        ([A, B, BEGUN, C], kept("ab", is_set_up=True)),
        ([A, B, BEGUN, C, CALLED], kept("abc", is_set_up=True)),
        ([A, B, BEGUN, C, resumed("b"), D], kept("abd", is_set_up=True)),
        ([A, B, FAILED], kept("ab", is_set_up=True, is_whole=False)),
        ([A, B, FAILED, C], kept("abc", is_set_up=True)),
        ([A, B, begins("a"), C], kept("abc", is_set_up=True, flow_start="b", step_start="b")),
        ([A, B, begins("a"), C, begins("b", 2), D], kept("abcd", is_set_up=True, flow_start="b", step_start="c")),
    ],
)
def test_the_tree_comes_back_as_it_was_before_the_call_that_was_at_work(events, expected) -> None:
    assert PreviousRun(events=events).snapshots == expected


WAITED = ModelWaited(reason="busy", seconds=5.0, attempt=1)
ERROR, TEXT = Turn(error=ScriptedError(status=401)), Turn(text="x")


@pytest.mark.parametrize(
    ("events", "scenario", "position"),
    [
        ([begins("a"), WAITED, turned(), begins("b"), turned()], Scenario(turns=(TEXT,) * 4), {"turns": 3}),
        ([begins("a"), turned(), begins("b"), turned()], Scenario(steps={"a": (TEXT,), "b": ()}), {"a": 1, "b": 1}),
        ([begins("a"), turned(), MODEL_FAILED], Scenario(turns=(TEXT, ERROR, TEXT)), {"turns": 2}),
        ([begins("a"), turned(), MODEL_FAILED], Scenario(turns=(TEXT,)), {"turns": 1}),
    ],
)
def test_a_scenario_goes_on_after_the_turns_that_were_played(events, scenario, position) -> None:
    assert PreviousRun(events=events).position(scenario) == position


@pytest.mark.parametrize("event", [LOST, RENEWED])
@pytest.mark.parametrize("changes", [{"cost_usd": -1.0}, {"usage": Usage(input_tokens=-5)}])
def test_what_was_paid_without_a_turn_and_gives_money_back_is_forged(
    event: AnswerLost | CacheRenewed, changes: dict[str, object]
) -> None:
    assert implausible((STARTED, event)) == ""
    assert event.event in implausible((STARTED, replace(event, **changes)))


PUSHED = EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.APPLIED, detail="b", commit="c" * 40)
OPENED = EffectApplied(kind=EffectKind.OPEN_PULL_REQUEST, status=EffectStatus.APPLIED, number=3)


@pytest.mark.parametrize(
    ("events", "iterations", "done"),
    [
        ([begins("a"), PUSHED], 1, [PUSHED]),
        ([begins("a"), PUSHED, resumed("")], 1, [PUSHED]),
        ([begins("a"), PUSHED, resumed("")], 2, []),
        ([begins("a"), PUSHED, resumed(""), begins("a", 2)], 2, []),
        ([begins("a"), PUSHED, resumed(""), begins("a", 2)], 3, []),
        ([begins("a"), PUSHED, resumed(""), begins("a", 2), OPENED], 2, [OPENED]),
    ],
    ids=[
        "an end that stands",
        "an end that stands in a run that was resumed",
        "the flow goes on from it now",
        "the flow went on from it before",
        "the flow went on before, and does again",
        "a later end",
    ],
)
def test_what_was_written_counts_for_the_end_that_it_was_written_for_and_no_later_one(events, iterations, done) -> None:
    """Else the commits that a run makes after it was resumed would count as pushed."""
    assert PreviousRun(events=(STARTED, *events)).receipts(iterations) == tuple(event.receipt for event in done)
