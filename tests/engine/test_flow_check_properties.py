"""Whatever checks say, a check flow keeps its promises; so does a flow that its verdict runs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stepflow.domain.agent.agent_settings import VerdictConfig
from stepflow.domain.agent.definition import AgentDefinition, AgentVerdict, OutcomeRule
from stepflow.domain.conversation import ModelFault, ModelTurn
from stepflow.domain.event import CheckJudged, Event, IterationStarted, Routed, StepAnswered
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits
from stepflow.domain.words import Intent, Outcome, StepKind, VerdictType
from tests.build import make_agent, make_check_step, make_step
from tests.engine import played
from tests.fakes import says

STEPS = ("s_0001", "s_0002", "s_0003")
RETRIES = 2
LIMIT = 12
LIMITS = Limits(iterations=LIMIT)

AGAIN = OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=2)
RETRY = OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=RETRIES)
DONE = OutcomeRule(intent=Intent.CLOSING, transition="complete")
TO = [OutcomeRule(intent=Intent.NEXT, transition="next", target=step_id) for step_id in STEPS]
BACK = [OutcomeRule(intent=Intent.JUMP, transition="fallback", target=step_id) for step_id in STEPS]

RULES = st.lists(st.sampled_from([AGAIN, RETRY, DONE, *TO, *BACK]), max_size=3, unique=True).map(tuple)
STEP = st.tuples(RULES, RULES, st.sampled_from([None, "Is it done?"]))
VERDICTS = st.sampled_from(
    [
        AgentVerdict(type=VerdictType.COUNT_ITERATION, limits=LIMITS),
        AgentVerdict(type=VerdictType.COUNT_CHECK, limits=LIMITS, config=VerdictConfig(max_checks=3)),
        AgentVerdict(type=VerdictType.DETECT_KEYWORD, limits=LIMITS, config=VerdictConfig(verdict_keyword="ok")),
        AgentVerdict(type=VerdictType.DETECT_STRUCTURED, limits=LIMITS, config=VerdictConfig(signal_type="pass")),
        AgentVerdict(type=VerdictType.POLL_STATE, limits=LIMITS),
    ]
)
ANSWERS = st.sampled_from(["ok", "ng", "pass", True, False, 7, None]).map(
    lambda word: says(json.dumps({"result": word, "message": "why", "type": word}))
)
REPLIES = st.lists(ANSWERS | st.sampled_from([says("ok"), says("result: ok"), says("[]"), says("")]), max_size=30)


@settings(max_examples=60)
@given(st.tuples(STEP, STEP, STEP), REPLIES)
def test_a_check_flow_never_runs_too_often_and_only_a_check_completes_it(
    steps: tuple[tuple[tuple[OutcomeRule, ...], tuple[OutcomeRule, ...], str | None], ...], replies: list[ModelTurn]
) -> None:
    made = [make_check_step(name, *rules, question=ask) for name, (*rules, ask) in zip(STEPS, steps, strict=True)]
    result, journal = play(make_agent(*made), replies)
    assert result.outcome in {Outcome.COMPLETED, Outcome.ROUTING_FAILED, Outcome.LIMIT_REACHED, Outcome.MODEL_FAILED}
    routed = journal.of(Routed)
    if result.outcome is Outcome.COMPLETED:
        assert routed[-1].transition == "complete"
        assert journal.of(CheckJudged)
    for visit in visits(routed):
        assert visit.count("retry") <= RETRIES


@settings(max_examples=60)
@given(VERDICTS, st.tuples(*[st.sampled_from([None, *StepKind])] * 3), REPLIES)
def test_a_flow_without_gates_ends_only_when_its_verdict_says_so(
    verdict: AgentVerdict, kinds: tuple[StepKind | None, ...], replies: list[ModelTurn]
) -> None:
    next_of = dict(pairwise(STEPS))
    made = [
        replace(make_step(name, to={"next": next_of[name]} if name in next_of else {}, gate=None), kind=kind)
        for name, kind in zip(STEPS, kinds, strict=True)
    ]
    result, journal = play(make_agent(*made, verdict=verdict), replies)
    assert result.outcome in {Outcome.COMPLETED, Outcome.LIMIT_REACHED, Outcome.MODEL_FAILED}
    if result.outcome is Outcome.COMPLETED:
        assert journal.of(Routed)[-1].transition == "closing"
        assert not result.validated


def play(agent: AgentDefinition, replies: list[ModelTurn]):
    """Run it; the state is the fold of its events, step by step, and the limit holds."""
    result, ports = played.play(agent, [*replies, *[ModelFault(reason="nothing is left to say")] * 2], most=LIMIT)
    journal = ports.journal
    state = fold(journal.events)
    assert (state.outcome, state.iteration) == (result.outcome, result.iterations)
    assert state.iteration == len(journal.of(IterationStarted)) <= LIMIT
    assert state.answers == len(journal.of(StepAnswered))
    assert state.runs == runs_of_last_visit(journal.events)
    assert fold(journal.events[5:], fold(journal.events[:5])) == state
    return result, journal


def visits(routed: list[Routed]) -> list[list[str]]:
    """The transitions of each visit: another one begins where another step was moved to."""
    paths: list[list[str]] = [[]]
    for event in routed:
        paths[-1].append(event.transition)
        if event.to != event.source:
            paths.append([])
    return paths


def runs_of_last_visit(events: list[Event]) -> int:
    """The answers since another step moved to the current one, counted without the state."""
    runs = 0
    for event in events:
        if isinstance(event, StepAnswered):
            runs += 1
        elif isinstance(event, Routed) and event.to not in (None, event.source):
            runs = 0
    return runs
