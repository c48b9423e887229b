"""A ladder of models: the run begins on the first and climbs where the checks say so, in a new conversation each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged, Rung
from stepflow.domain.agent.definition import AgentDefinition, OutcomeRule
from stepflow.domain.conversation import ModelTurn, Refusal, StopReason
from stepflow.domain.event import CompletionJudged, IterationStarted, PromptRendered, Routed, StepAnswered
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits
from stepflow.domain.words import Effort, Intent, Outcome, Strategy, StructuredOutput
from stepflow.ports import Ports
from tests.build import issue_agent, make_agent, make_check_step, make_facts
from tests.engine.played import HAPPY, check_every_beginning, completed, play, resume, steps_of
from tests.engine.test_flow_loop import CLEAN, DIRTY, checked_agent
from tests.fakes import RecordingTools, TableCommands, answers, calls, says

RUNGS = tuple(map(Rung.parse, ("haiku:low", "sonnet:medium", "opus:high")))
FALLBACK = Rung.parse("claude-opus-4-6:max", fallback=True)
REFUSED = replace(
    says("", stop=StopReason.REFUSAL),
    content=(),
    refusal=Refusal(category="cyber", explanation="It looks harmful."),
)
WRONG = says('{"next_action": 3}')


def laddered(agent: AgentDefinition | None = None, **changes: object) -> AgentDefinition:
    """The agent with a ladder."""
    return replace(agent or issue_agent(), models=RUNGS, **changes)


def own(agent: AgentDefinition, step_id: str, **changes: object) -> AgentDefinition:
    """The agent with a step that says something of its own."""
    return replace(agent, steps={**agent.steps, step_id: replace(agent.steps[step_id], **changes)})


def asked(ports: Ports) -> list[tuple[str, str | None]]:
    """Model and effort of each request."""
    return [(request.model, request.effort) for request in ports.model.requests]


def climbs(ports: Ports) -> list[tuple[str, str, ClimbCause]]:
    return [(change.before, change.to, change.cause) for change in ports.journal.of(ModelChanged)]


def test_a_run_in_which_nothing_fails_stays_on_the_first_rung() -> None:
    ports = completed(laddered(), HAPPY)
    assert asked(ports) == [("haiku", "low")] * 3
    assert climbs(ports) == []
    begun = ports.journal.of(IterationStarted)
    assert [(event.model, event.effort) for event in begun] == [("haiku", "low")] * 3


def test_a_red_validator_sends_its_retry_prompt_to_the_next_rung() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, DIRTY, CLEAN]})
    ports = completed(laddered(checked_agent()), [*HAPPY, *HAPPY[1:], *HAPPY[1:]], commands=commands)
    assert asked(ports) == [("haiku", "low")] * 3 + [("sonnet", "medium")] * 2 + [("opus", "high")] * 2
    assert climbs(ports) == [
        ("haiku:low", "sonnet:medium", ClimbCause.VALIDATOR),
        ("sonnet:medium", "opus:high", ClimbCause.VALIDATOR),
    ]
    (retry,) = ports.model.requests[3].messages
    assert ports.journal.of(PromptRendered)[3].retry
    assert "git-clean" in str(ports.journal.of(ModelChanged)[0].reason)
    assert len(retry.content) == len(ports.journal.of(PromptRendered)[3].blocks)


def test_above_the_top_a_red_validator_changes_nothing() -> None:
    agent = replace(checked_agent(), models=RUNGS[2:], fallback=FALLBACK)
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    ports = completed(agent, [*HAPPY, *HAPPY[1:]], commands=commands)
    assert asked(ports) == [("opus", "high")] * 5, "a fallback is for refusals alone"


def test_an_answer_that_does_not_fit_after_its_format_retries_begins_the_step_again_on_the_next_rung() -> None:
    ports = completed(laddered(), [calls("bash", command="ls"), WRONG, WRONG, WRONG, *HAPPY])
    assert asked(ports) == [("haiku", "low")] * 4 + [("sonnet", "medium")] * 3
    assert steps_of(ports) == ["initial.issue", "initial.issue", "continuation.issue", "closure.issue"]
    (change,) = ports.journal.of(ModelChanged)
    assert change.cause is ClimbCause.FORMAT
    assert "the answer does not fit: next_action" in change.reason
    (opening,) = ports.model.requests[4].messages
    assert '- bash {"command":"ls"}' in str(opening.content), "what was done is told"
    assert len(ports.journal.of(StepAnswered)) == 3, "the answer that did not fit counts for nothing"
    assert ports.journal.of(Routed)[0].transition == "repeat"


def test_at_the_top_an_answer_that_does_not_fit_is_taken_as_before() -> None:
    alone = play(issue_agent(), [WRONG, WRONG, WRONG])[0]
    assert play(replace(issue_agent(), models=RUNGS[2:]), [WRONG, WRONG, WRONG])[0] == alone


@pytest.mark.parametrize("beginning", [[], HAPPY[:1]])
def test_an_answer_without_an_object_is_one_that_does_not_fit(beginning) -> None:
    ports = completed(laddered(), [*beginning, says("Done!"), *HAPPY[len(beginning) :]])
    assert climbs(ports) == [("haiku:low", "sonnet:medium", ClimbCause.FORMAT)]
    assert asked(ports)[len(beginning) :][:2] == [("haiku", "low"), ("sonnet", "medium")]


def test_a_refusal_climbs_and_only_above_the_top_it_ends_the_run() -> None:
    ports = completed(laddered(), [REFUSED, REFUSED, *HAPPY])
    assert asked(ports) == [("haiku", "low"), ("sonnet", "medium")] + [("opus", "high")] * 3
    assert [change.reason for change in ports.journal.of(ModelChanged)] == [str(REFUSED.refusal)] * 2
    result, ports = play(laddered(), [REFUSED] * 3)
    assert result.outcome is Outcome.MODEL_REFUSED
    assert "`cyber`: It looks harmful." in result.reason
    assert [change.to for change in ports.journal.of(ModelChanged)] == ["sonnet:medium", "opus:high"]


def test_a_fallback_goes_on_after_a_refusal_alone_and_stays() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    agent = replace(checked_agent(), fallback=FALLBACK)
    ports = completed(agent, [HAPPY[0], REFUSED, *HAPPY[1:], *HAPPY[1:]], commands=commands)
    assert asked(ports) == [("opus", None)] * 2 + [("claude-opus-4-6", "max")] * 4
    (change,) = ports.journal.of(ModelChanged)
    assert change.fallback
    assert str(change) == "the fallback model claude-opus-4-6:max takes over from opus"
    result, _ports = play(agent, [REFUSED, REFUSED])
    assert result.outcome is Outcome.MODEL_REFUSED


def test_a_fallback_stands_above_the_last_rung() -> None:
    ports = completed(laddered(fallback=FALLBACK), [REFUSED] * 3 + HAPPY)
    assert [model for model, _ in asked(ports)][:4] == ["haiku", "sonnet", "opus", "claude-opus-4-6"]


def test_a_refused_check_question_begins_the_step_again() -> None:
    step = make_check_step("s_one", (OutcomeRule(intent=Intent.CLOSING, transition="complete"),), question="Is it so?")
    ports = completed(
        replace(make_agent(step), models=RUNGS), [says("{}"), REFUSED, says("{}"), says('{"result":"ok"}')]
    )
    assert [model for model, _ in asked(ports)] == ["haiku", "haiku", "sonnet", "sonnet"]
    assert fold(ports.journal.events).runs == 1


def test_steps_that_say_nothing_share_the_ladder_of_the_agent_and_never_descend() -> None:
    ports = completed(laddered(), [HAPPY[0], REFUSED, *HAPPY[1:]])
    assert [model for model, _ in asked(ports)] == ["haiku", "haiku", "sonnet", "sonnet"]


def test_the_ladder_of_a_step_is_climbed_for_itself() -> None:
    agent = own(laddered(), "continuation.issue", models=RUNGS[1:], effort=Effort.MAX)
    ports = completed(agent, [HAPPY[0], REFUSED, *HAPPY[1:]])
    assert asked(ports) == [("haiku", "low"), ("sonnet", "medium"), ("opus", "high"), ("haiku", "low")]


def test_a_step_with_a_fallback_of_its_own_stays_on_it() -> None:
    agent = own(issue_agent(), "continuation.issue", fallback=FALLBACK)
    commands = TableCommands({})
    replies = [HAPPY[0], REFUSED, answers("next"), *HAPPY[1:]]
    ports = completed(agent, replies, commands=commands)
    assert [model for model, _ in asked(ports)] == ["opus", "opus", "claude-opus-4-6", "claude-opus-4-6", "opus"]


def test_the_effort_of_the_step_is_that_of_rungs_that_name_none() -> None:
    agent = own(issue_agent(), "initial.issue", effort=Effort.LOW)
    agent = replace(agent, models=(Rung(model="haiku"), Rung(model="haiku", effort=Effort.HIGH)))
    ports = completed(agent, [REFUSED, *HAPPY])
    assert asked(ports) == [("haiku", "low"), ("haiku", "high"), ("haiku", "high"), ("haiku", "high")]


def test_the_model_of_the_run_takes_the_place_of_the_agents_ladder_but_not_of_a_steps() -> None:
    facts = make_facts(limits=Limits(iterations=10), model="sonnet")
    agent = own(laddered(fallback=FALLBACK), "closure.issue", models=RUNGS[2:])
    ports = completed(agent, [REFUSED, *HAPPY], facts=facts)
    assert [model for model, _ in asked(ports)] == ["sonnet", "claude-opus-4-6", "claude-opus-4-6", "opus"]
    result, ports = play(replace(agent, fallback=Rung(model="sonnet", fallback=True)), [REFUSED], facts=facts)
    assert result.outcome is Outcome.MODEL_REFUSED, "no model falls back to itself"


def test_a_retry_prompt_and_the_work_of_every_conversation_go_along() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    agent = replace(laddered(checked_agent()), fallback=FALLBACK)
    replies = [*HAPPY, calls("bash", command="first"), REFUSED, calls("bash", command="second"), REFUSED, *HAPPY[1:]]
    ports = completed(agent, replies, commands=commands)
    prompts = ports.journal.of(PromptRendered)
    assert [prompt.retry for prompt in prompts[3:]] == [True, True, True, False]
    assert "first" in str(prompts[5].blocks)
    assert "second" in str(prompts[5].blocks)


def test_another_model_is_asked_in_the_way_that_it_takes() -> None:
    """What is known of one model's service says nothing of another model."""
    prose = says("It is done.")
    facts = make_facts(limits=Limits(iterations=10), structured_output=StructuredOutput.AUTO)
    ports = completed(laddered(), [prose, prose, prose, *HAPPY], facts=facts)
    strategies = [(request.model, request.strategy) for request in ports.model.requests]
    assert strategies[3:] == [("sonnet", Strategy.NATIVE)] * 3


def test_every_beginning_of_its_journal_leads_to_the_same_end_without_asking_twice() -> None:
    replies: list[ModelTurn] = [HAPPY[0], calls("bash"), WRONG, WRONG, WRONG, REFUSED, *HAPPY[1:]]
    check_every_beginning(laddered(fallback=FALLBACK), replies, tools=RecordingTools())


def test_a_run_that_was_stopped_behind_a_red_validator_climbs_no_more_than_once() -> None:
    agent, facts = laddered(checked_agent()), make_facts(limits=Limits(iterations=10))
    red = {"git status --porcelain": [DIRTY, CLEAN]}
    _result, ports = play(agent, [*HAPPY, *HAPPY[1:]], facts=facts, commands=TableCommands(red))
    recorded = ports.journal.events
    for kind in (ModelChanged, CompletionJudged):
        end = next(at for at, event in enumerate(recorded) if isinstance(event, kind)) + 1
        left = TableCommands({"git status --porcelain": [DIRTY, CLEAN] if kind is ModelChanged else [CLEAN]})
        result, journal = resume(agent, recorded[:end], HAPPY[1:], facts, commands=left)
        assert result.outcome is Outcome.COMPLETED
        assert fold(journal.events).rungs == {"": "sonnet:medium"}
