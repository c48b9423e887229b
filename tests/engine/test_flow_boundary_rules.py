"""What the boundary would refuse sends the flow back while the agent can still correct it, and else ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.checkout import TreeState
from stepflow.domain.event import CompletionJudged, PromptRendered, ValidatorRan
from stepflow.domain.flow import Violation
from stepflow.domain.words import FailureAction, Outcome
from stepflow.ports import Ports
from tests.build import issue_agent
from tests.engine.played import HAPPY, completed, play
from tests.engine.test_flow_loop import CLEAN, checked_agent
from tests.fakes import ListedRules, TableChecks, TableCommands

PROTECTED = Violation(
    message="protected path: .github/workflows/ci.yml", advice="Take it back.", hint="Somebody with rights may do it."
)
LEFT_OUT = Violation(message="the label urgent is not allowed", advice="Choose another label.", refuses=False)
BACK = HAPPY[1:]


def checks(ports: Ports) -> list[tuple[bool, FailureAction | None, int]]:
    """Whether each run of the check passed, what followed, and which attempt it was."""
    ran = (event for event in ports.journal.of(ValidatorRan) if event.name == "boundary-rules")
    return [(event.passed, event.action, event.attempt) for event in ran]


def acting(action: FailureAction, most: int = 3) -> AgentDefinition:
    """An agent whose own checks lead to this when they are red."""
    agent = checked_agent()
    step = agent.steps["closure.issue"]
    entry = replace(step.validation, action=action, max_attempts=most)
    return replace(agent, steps={**agent.steps, step.id: replace(step, validation=entry)})


def test_a_closing_that_breaks_a_rule_is_sent_back_with_rule_and_advice() -> None:
    rules = ListedRules(before=[(PROTECTED, LEFT_OUT)])
    ports = completed(checked_agent(), [*HAPPY, *BACK], boundary_rules=rules)
    assert checks(ports) == [(False, FailureAction.RETRY, 1), (True, None, 1)]
    assert "mypy ." in str(ports.commands.ran), "the validators run once nothing is broken"
    (retry,) = (event for event in ports.journal.of(PromptRendered) if event.retry)
    for said in (PROTECTED.message, PROTECTED.advice, LEFT_OUT.message, LEFT_OUT.advice):
        assert said in retry.blocks[0]
    assert "attempt 1 of 3" in retry.blocks[0]


def test_the_same_advice_is_given_once() -> None:
    rules = ListedRules(before=[(PROTECTED, replace(PROTECTED, message="protected path: .git/config"))])
    ports = completed(checked_agent(), [*HAPPY, *BACK], boundary_rules=rules)
    (retry,) = (event for event in ports.journal.of(PromptRendered) if event.retry)
    assert retry.blocks[0].count(PROTECTED.advice) == 1


def test_a_run_that_breaks_a_rule_to_the_end_is_refused_in_words_for_people() -> None:
    rules = ListedRules(before=[(LEFT_OUT, PROTECTED)] * 3)
    result, ports = play(checked_agent(), [*HAPPY, *BACK, *BACK], boundary_rules=rules)
    assert result.outcome is Outcome.REFUSED
    assert f"{PROTECTED.message}. The agent was asked 2 times to correct it. {PROTECTED.hint}" in result.reason
    assert [action for _, action, _ in checks(ports)] == [*[FailureAction.RETRY] * 2, FailureAction.ABORT]
    assert ports.commands.ran == []


def test_what_is_only_left_out_is_asked_for_once() -> None:
    rules = ListedRules(before=[(LEFT_OUT,), (LEFT_OUT,)])
    ports = completed(checked_agent(), [*HAPPY, *BACK], boundary_rules=rules)
    assert [action for _, action, _ in checks(ports)] == [FailureAction.RETRY, FailureAction.SKIP]


@pytest.mark.parametrize(
    ("action", "replies", "outcome"),
    [
        (FailureAction.ABORT, HAPPY, Outcome.REFUSED),
        # The boundary lets nothing pass, so what the agent says of its own checks does not hold for its rules.
        (FailureAction.SKIP, [*HAPPY, *BACK], Outcome.COMPLETED),
    ],
)
def test_what_the_step_says_of_failures_holds_but_skip(action: FailureAction, replies, outcome: Outcome) -> None:
    result, _ = play(acting(action), replies, boundary_rules=ListedRules(before=[(PROTECTED,)]))
    assert result.outcome is outcome


def test_a_step_without_validators_is_judged_by_the_rules_alone() -> None:
    ports = completed(issue_agent(), [*HAPPY, *BACK], boundary_rules=ListedRules(before=[(PROTECTED,)]))
    assert [action for _, action, _ in checks(ports)] == [FailureAction.RETRY, None]
    assert [event.done for event in ports.journal.of(CompletionJudged)] == [False]


def test_green_validators_do_not_speak_for_what_differs_from_the_commit() -> None:
    checked = TableChecks(TableCommands(), TreeState(commit="c" * 40, changed=("a.py",)))
    result, ports = play(checked_agent(), [*HAPPY, *BACK, *BACK], checks=checked.opened)
    assert result.outcome is Outcome.REFUSED
    assert "the checks saw files that differ from the commit that would be pushed: a.py" in result.reason
    assert len(checks(ports)) == 3


def test_what_keeps_green_validators_from_speaking_for_the_commits_is_sent_back_after_them() -> None:
    commands = TableCommands({"git status --porcelain": [CLEAN], "mypy .": [CLEAN]})
    rules = ListedRules(after=[(PROTECTED,)])
    ports = completed(checked_agent(), [*HAPPY, *BACK], boundary_rules=rules, commands=commands)
    assert [event.name for event in ports.journal.of(ValidatorRan)][:3] == ["git-clean", "type-check", "boundary-rules"]
