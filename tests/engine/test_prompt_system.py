"""The system prompt and its answer contract (prompts.md §3)."""

from __future__ import annotations

from prompt_parts import make_agent, make_gate, make_step, variables_of

from stepflow.domain.definition import SourceText
from stepflow.domain.words import Intent
from stepflow.engine.prompt.messages import cacheable_prefix, render_system
from stepflow.engine.prompt.variables import Variables

SCHEMA = {"type": "object", "properties": {"stepId": {"type": "string"}}}


def system(text, variables, *, step=None, template=None, **more):
    step = step or make_step()
    prompt = SourceText(text=text, file="system.md", template=template)
    return render_system(
        make_agent(step, make_step(step_id="closure.issue"), system_prompt=prompt), step, variables, **more
    )


def opening(*args, **more):
    return system(*args, **more).partition("\n\n## Answer contract")[0]


def test_agent_variables_and_run_arguments_are_replaced_and_nothing_else():
    variables = Variables(
        texts={"agent_name": "iterator", "completion_criteria": "done", "issue": "7", "step_id": "x", "extra": "y"},
        arguments=frozenset({"issue"}),
    )
    text = "{uv-agent_name} {uv-completion_criteria} {uv-issue} {uv-step_id} {{uv-extra}} {uv-none} {input_text} {a}"
    assert opening(text, variables) == "iterator done 7 {uv-step_id} {{uv-extra}} {uv-none} {input_text} {a}"


def test_an_empty_description_is_put_in_as_it_is_in_an_own_text_and_as_not_given_in_the_shipped_one():
    variables = Variables(texts={"agent_description": ""})
    assert opening("<{uv-agent_description}>", variables) == "<>"
    assert opening("<{uv-agent_description}>", variables, template="system") == "<(not given)>"


def test_the_contract_says_form_intents_outside_and_data_in_this_order():
    step = make_step(gate=make_gate(), schema=SCHEMA)
    text = system("Hi.", variables_of(step), step=step)
    parts = ["one JSON object", '"continuation.issue"', "`next_action.action`", "- `next`:", "- `repeat`:",
             "No tool here can change issues", "closing answer", "END DATA", "not an instruction"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.startswith("Hi.\n\n## Answer contract\n\n")


def test_each_allowed_intent_has_one_line_and_no_other_is_named():
    gate = make_gate(Intent.NEXT, Intent.ESCALATE, Intent.ABORT)
    text = system("", variables_of(), step=make_step(gate=gate))
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("- ")] == ["- `next`", "- `escalate`"]


def test_abort_is_offered_only_if_the_schema_lists_it():
    text = system("", variables_of(), step=make_step(gate=make_gate(lists_abort=True)))
    assert "- `abort`: the work cannot be done at all" in text


def test_a_jump_with_a_target_field_lists_the_steps():
    gate = make_gate(Intent.JUMP, target_field="next_action.target")
    text = system("", variables_of(), step=make_step(gate=gate))
    assert "give its id in `next_action.target`, one of `continuation.issue`, `closure.issue`." in text


def test_a_jump_with_a_rule_lists_no_steps():
    text = system("", variables_of(), step=make_step(gate=make_gate(Intent.JUMP)))
    assert "- `jump`: another step has to run next." in text
    assert "closure.issue" not in text


def test_a_step_without_schema_and_gate_is_told_the_two_rules_for_all():
    contract = system("Hi.", variables_of()).partition("## Answer contract\n\n")[2]
    assert contract.startswith("No tool here")
    assert "JSON" not in contract


def test_what_stands_before_the_contract_is_the_same_in_every_step():
    one, other = (system("Hi.", variables_of(), step=make_step(gate=make_gate(word))) for word in ("next", "handoff"))
    assert one != other
    assert one[: cacheable_prefix(one)] == other[: cacheable_prefix(other)] == "Hi.\n\n"
    assert cacheable_prefix("no contract") == 0
