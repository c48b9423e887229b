"""The variables of a step: where each comes from, which wins, how it reads (prompts.md §4, §6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prompt_parts import make_agent, make_facts, make_gate, make_state, make_step, variables_of

from stepflow.domain.agent.agent_settings import CompletionLabels, GitHubSettings, Labels
from stepflow.domain.agent.definition import StepInput
from stepflow.domain.words import ClosureAction, Intent, VerdictType
from stepflow.engine.prompt.variables import handoff_variable, value_text
from tests.golden import assert_golden


def test_the_run_variables_of_a_gated_step_are_all_supplied():
    step = make_step(gate=make_gate())
    facts = make_facts(repository="octo/shop")
    texts = variables_of(step, facts=facts).texts
    criteria = texts["verdict_criteria"]
    assert dict(texts) == {
        "iteration": "3",
        "completed_iterations": "2",
        "max_iterations": "10",
        "iterations": "10",
        "remaining": "7",
        "agent_name": "iterator",
        "agent_description": "Works on issues.",
        "step_id": "continuation.issue",
        "step_name": "Work on the issue",
        "allowed_intents": "next, repeat",
        "verdict_criteria": criteria,
        "completion_criteria": criteria,
        "repeat_reason": "",
        "previous_summary": "",
        "repeat_count": "0",
        "repository": "octo/shop",
    }


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (None, ""),
        (make_gate(Intent.NEXT, Intent.ABORT, lists_abort=True), "next, abort"),
        (make_gate(Intent.NEXT, Intent.ABORT), "next"),
    ],
    ids=["no gate", "abort in the schema", "abort not in the schema"],
)
def test_the_list_of_intents_is_what_the_gate_takes(gate, expected):
    assert variables_of(make_step(gate=gate)).texts["allowed_intents"] == expected


@pytest.mark.parametrize(
    ("verdict", "config", "expected"),
    [
        (VerdictType.COUNT_CHECK, {"maxChecks": 4}, {"max_checks": "4", "check_count": "3"}),
        (
            VerdictType.DETECT_KEYWORD,
            {"verdictKeyword": "ALL DONE"},
            {"completion_keyword": "ALL DONE", "verdict_keyword": "ALL DONE"},
        ),
        (
            VerdictType.DETECT_STRUCTURED,
            {"signalType": "finished", "requiredFields": {"größe": 1}},
            {"signal_type": "finished", "required_fields": '{"größe":1}'},
        ),
        (VerdictType.DETECT_STRUCTURED, {"signalType": "finished"}, {"required_fields": "[]"}),
    ],
)
def test_a_verdict_type_brings_its_own_variables(verdict, config, expected):
    texts = variables_of(agent=make_agent(verdict=verdict, config=config)).texts
    assert expected.items() <= texts.items()


def test_a_verdict_type_brings_no_variables_of_another():
    assert not {"max_checks", "completion_keyword", "signal_type"} & set(variables_of().texts)


SIGNAL = {"signalType": "ready"}
TWICE = {"type": "count:check", "config": {"maxChecks": 2}}
STOP = {"type": "detect:keyword", "config": {"verdictKeyword": "STOP"}}
FIVE = {"type": "count:iteration", "config": {"maxIterations": 5}}
VERDICTS = [
    (VerdictType.COUNT_ITERATION, {}),
    (VerdictType.COUNT_CHECK, {"maxChecks": 4}),
    (VerdictType.DETECT_KEYWORD, {"verdictKeyword": "DONE"}),
    (VerdictType.DETECT_STRUCTURED, {**SIGNAL, "requiredFields": ["a", "b"]}),
    (VerdictType.DETECT_STRUCTURED, {**SIGNAL, "requiredFields": {"ok": True}}),
    (VerdictType.DETECT_STRUCTURED, SIGNAL),
    (VerdictType.DETECT_GRAPH, {}),
    (VerdictType.META_COMPOSITE, {"operator": "or", "conditions": [FIVE, STOP, TWICE]}),
    (VerdictType.META_COMPOSITE, {"operator": "first", "conditions": [TWICE, STOP]}),
    (VerdictType.META_COMPOSITE, {}),
]
#: What becomes of a polled issue.
POLLED = [
    GitHubSettings(),
    GitHubSettings(
        default_closure_action=ClosureAction.LABEL_ONLY,
        labels=Labels(completion=CompletionLabels(add=("done", "ok"), remove=("todo",))),
    ),
    GitHubSettings(
        default_closure_action=ClosureAction.LABEL_AND_CLOSE, labels=Labels(completion=CompletionLabels(add=("done",)))
    ),
    GitHubSettings(enabled=False),
]


def test_the_verdict_criteria_say_when_the_work_is_done():
    agents = [make_agent(verdict=verdict, config=config) for verdict, config in VERDICTS]
    agents += [make_agent(verdict=VerdictType.POLL_STATE, github=github) for github in POLLED]
    criteria = [f"{agent.verdict.type}: {variables_of(agent=agent).texts['verdict_criteria']}\n" for agent in agents]
    assert_golden("engine/verdict-criteria.txt", "".join(criteria))


def test_a_very_long_value_is_cut_with_a_mark():
    assert value_text("x" * 50_000) == "x" * 50_000
    assert value_text("x" * 50_001) == "x" * 50_000 + "…[cut]"


def test_run_variables_beat_arguments_beat_extra_variables_beat_inputs_beat_handoff():
    step = make_step(inputs=(StepInput(name="c", step_id="initial.issue", key="plan"),))
    state = make_state(handoff={"initial.issue": {"plan": "input", "d": "handoff"}})
    facts = make_facts(
        args={"iteration": 99, "a": "argument", "initial_issue_d": "argument"},
        variables={"a": "extra", "b": "extra", "c": "extra"},
    )
    variables = variables_of(step, facts=facts, state=state)
    texts = variables.texts
    assert (texts["iteration"], texts["a"], texts["b"], texts["c"]) == ("3", "argument", "extra", "extra")
    assert texts["initial_issue_d"] == "argument"
    assert variables.hidden == (
        '"iteration": the run variable hides the run argument',
        '"a": the run argument hides the extra variable',
        '"c": the extra variable hides the input',
        '"initial_issue_d": the run argument hides the handoff value',
    )
    assert variables.arguments == {"a", "initial_issue_d"}


def test_a_null_argument_is_not_supplied_and_hides_nothing():
    facts = make_facts(args={"a": None}, variables={"a": "extra"})
    variables = variables_of(facts=facts)
    assert variables.texts["a"] == "extra"
    assert variables.hidden == ()


@pytest.mark.parametrize(
    ("step_id", "key", "name"),
    [
        ("initial.issue", "analysis.understanding", "initial_issue_understanding"),
        ("initial.issue", "plan", "initial_issue_plan"),
        ("s_review-2", "to-do list", "s_review_2_to-do_list"),
    ],
)
def test_a_stored_value_has_an_automatic_name(step_id, key, name):
    assert handoff_variable(step_id, key) == name


def test_handoff_is_known_to_later_steps_by_its_last_segment_only():
    state = make_state(handoff={"initial.issue": {"understanding": "U", "analysis.understanding": "U"}})
    variables = variables_of(state=state)
    assert variables.texts["initial_issue_understanding"] == "U"
    assert not [name for name in variables.texts if "." in name or "analysis" in name]
    assert variables.hidden == ()


@pytest.mark.parametrize("key", ["plan", "analysis.plan"])
def test_an_input_takes_a_stored_value_by_last_segment_or_full_path(key):
    step = make_step(inputs=(StepInput(name="wanted", step_id="initial.issue", key=key, required=True),))
    state = make_state(handoff={"initial.issue": {"plan": ["one"], "analysis.plan": ["one"]}})
    variables = variables_of(step, state=state)
    assert variables.texts["wanted"] == '["one"]'
    assert variables.texts["initial_issue_plan"] == '["one"]'
    assert variables.missing_inputs == ()


def test_a_missing_input_takes_its_default_under_both_names():
    step = make_step(inputs=(StepInput(name="wanted", step_id="a.b", key="plan", required=True, default=0),))
    variables = variables_of(step)
    assert (variables.texts["wanted"], variables.texts["a_b_plan"]) == ("0", "0")


def test_a_missing_required_input_is_reported_and_an_optional_one_is_just_not_supplied():
    step = make_step(
        inputs=(
            StepInput(name="must", step_id="a.b", key="plan", required=True),
            StepInput(name="may", step_id="a.b", key="note"),
        )
    )
    variables = variables_of(step)
    assert variables.missing_inputs == ("must",)
    assert not {"must", "may"} & set(variables.texts)


def test_a_command_step_has_variables_too():
    assert variables_of(replace(make_step(), prompt=None)).texts["step_id"] == "continuation.issue"
