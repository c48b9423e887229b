"""What the engine says: system prompt and answer contract (prompts.md §3), first message (§7), corrections (§9.5)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_parts import NONCE, make_agent, make_facts, make_gate, make_state, make_step, texts, variables_of

from stepflow.domain.agent.agent_settings import Skill
from stepflow.domain.agent.definition import SourceText
from stepflow.domain.flow import FormatError
from stepflow.domain.words import Intent
from stepflow.engine.prompt.render import (
    correction_message,
    first_message_blocks,
    frame_as_data,
    render_system,
)
from stepflow.engine.prompt.variables import Variables
from tests.golden import assert_golden

SCHEMA = {"type": "object", "properties": {"stepId": {"type": "string"}}}


def rendered(text, variables, *, step=None, template=None, **agent):
    step = step or make_step()
    prompt = SourceText(text=text, file="system.md", template=template)
    return render_system(
        make_agent(step, make_step(step_id="closure.issue"), system_prompt=prompt, **agent), step, variables
    )


def system(*args, **more):
    return rendered(*args, **more).text


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


#: Steps, by what is special about their contract.
CONTRACTS = {
    "a gate and a schema": make_step(gate=make_gate(), schema=SCHEMA),
    "a schema without stepId": make_step(gate=make_gate(), schema={"type": "object"}),
    "abort, which the schema does not list": make_step(gate=make_gate(Intent.NEXT, Intent.ESCALATE, Intent.ABORT)),
    "abort, which the schema lists": make_step(gate=make_gate(Intent.CLOSING, lists_abort=True)),
    "a jump with a target field": make_step(gate=make_gate(Intent.JUMP, target_field="next_action.target")),
    "a jump by a rule": make_step(gate=make_gate(Intent.JUMP)),
    "neither gate nor schema": make_step(),
}


def test_the_contract_says_form_tools_and_data_and_then_what_the_step_may_answer():
    prompts = [f"=== {what}\n{system('Hi.', variables_of(step), step=step)}\n" for what, step in CONTRACTS.items()]
    assert_golden("engine/answer-contracts.txt", "".join(prompts))


def test_all_but_what_a_step_may_answer_is_shared_by_every_step():
    one, other = (rendered("Hi.", variables_of(), step=make_step(gate=make_gate(word))) for word in ("next", "handoff"))
    shared = one.text[: one.cacheable]
    assert shared == other.text[: other.cacheable]
    assert all(text in shared for text in ("Hi.\n\n## Answer contract", "pushes or changes anything", "BEGIN DATA"))
    assert one.text[one.cacheable :].startswith("Say in `next_action.action` what happens next:\n- `next`: ")
    assert "next" not in other.text[other.cacheable :].partition("\n")[2]


def test_a_step_without_a_schema_shares_what_the_others_are_told_of_theirs():
    steps = make_step(gate=make_gate()), make_step(step_id="closure.issue", schema=SCHEMA)
    agent = make_agent(*steps, system_prompt=SourceText(text="Hi.", file="system.md"))
    one, other = (render_system(agent, step, variables_of(step)) for step in steps)
    assert one.text[: one.cacheable] == other.text[: other.cacheable]
    assert "one JSON object" in one.text
    assert "`closure.issue`" in other.text
    assert "stepId" not in one.text


def test_guidance_and_skills_follow_the_agents_own_words_as_they_are_and_only_that_of_a_step_is_not_shared():
    variables = Variables(texts={"agent_name": "iterator"})
    root = SourceText(text="# House\n\n{uv-agent_name}\n\n## Answer contract\n\nNone.", file="AGENTS.md")
    skill = Skill(name="release", description="Cuts a release.", folder="docs/skills/release", files={"SKILL.md": ""})
    near = SourceText(text="Tabs.", file="api/AGENTS.md")
    words = {"guidance": (root,), "skills": (skill,)}
    plain, guided = (
        rendered("{uv-agent_name}.", variables, step=replace(make_step(), guidance=of_step), **words)
        for of_step in ((), (near,))
    )
    assert_golden("engine/guidance.txt", guided.text)
    shared = guided.text[: guided.cacheable]
    assert shared == plain.text[: plain.cacheable]
    assert root.text in shared
    assert near.text not in shared


# --- the first message ----------------------------------------------------------------------------------------------

MARKERS = [f"BEGIN DATA {NONCE}", f"END DATA {NONCE}"]


def blocks(prompt="Do it.", *, step=None, facts=None, state=None, variables=None):
    step = step or make_step()
    return first_message_blocks(
        prompt,
        agent=make_agent(step),
        step=step,
        facts=facts or make_facts(),
        state=state or make_state(),
        variables=variables or texts(),
    )


def test_without_context_there_is_the_prompt_alone():
    assert blocks("Do {it}.") == ("Do {it}.",)
    assert blocks(facts=make_facts(context_text=" \n")) == ("Do it.",)


def test_the_callers_context_is_a_second_block_between_markers_that_carry_the_nonce():
    prompt, context = blocks(facts=make_facts(context_text="# Broken till\n{uv-issue} stays"))
    assert prompt == "Do it."
    assert context.splitlines()[1:] == [MARKERS[0], "# Broken till", "{uv-issue} stays", MARKERS[1]]


def test_with_a_retry_prompt_the_usual_prompt_and_the_handoff_go_along():
    handoff = {"initial.issue": {"plan": "größer {uv-x}", "analysis.plan": "größer {uv-x}"}}
    prompt, context = blocks(
        "Commit first.",
        step=make_step("Work on #{uv-issue}."),
        facts=make_facts(context_text="The issue."),
        state=make_state(retry_prompt="Commit first.", handoff=handoff),
        variables=texts(issue="7"),
    )
    assert prompt == "Commit first."
    inside = [part.split(f"\n{MARKERS[1]}")[0] for part in context.split(f"{MARKERS[0]}\n")[1:]]
    assert inside[:2] == ["The issue.", "Work on #7."]
    assert json.loads(inside[2]) == {"initial.issue": {"plan": "größer {uv-x}"}}


def test_a_usual_prompt_that_fails_is_left_out():
    state = make_state(retry_prompt="Commit first.")
    assert blocks("Commit first.", step=make_step("{uv-issue}"), state=state) == ("Commit first.",)


def test_without_a_retry_prompt_neither_goes_along():
    assert blocks(state=make_state(handoff={"a": {"b": 1}})) == ("Do it.",)


@given(text=st.lists(st.sampled_from(["x", "\n", NONCE, NONCE.upper(), *MARKERS])).map("".join))
def test_a_text_cannot_break_out_of_its_frame(text):
    lines = frame_as_data("Said:", text, nonce=NONCE).split("\n")
    assert [line for line in lines if NONCE in line.lower()] == MARKERS
    assert (lines[1], lines[-1]) == (MARKERS[0], MARKERS[1])


# --- corrections ----------------------------------------------------------------------------------------------------


def errors_of(*pairs):
    return tuple(FormatError(path=path, message=message) for path, message in pairs)


def test_the_correction_lists_the_errors_sorted_by_path_and_asks_for_the_whole_object():
    errors = errors_of(
        ("next_action.action", 'must be one of "next", "repeat"'),
        ("", 'the key "stepId" is missing'),
        ("items[2].name", "must be\n a string"),
    )
    assert correction_message(errors) == (
        "Your answer does not fit the answer schema:\n\n"
        '(answer): the key "stepId" is missing\n'
        "items[2].name: must be a string\n"
        'next_action.action: must be one of "next", "repeat"\n\n'
        "Send the whole corrected JSON object again, and nothing else."
    )


@pytest.mark.parametrize(("count", "more"), [(20, None), (21, "… and 1 more error."), (23, "… and 3 more errors.")])
def test_more_than_twenty_errors_are_counted(count, more):
    text = correction_message(errors_of(*((f"items[{number:02}]", "wrong") for number in range(count))))
    assert text.count("items[") == 20
    assert (more in text) if more else ("more" not in text)
