"""The first message: the prompt unchanged, context framed as data (prompts.md §7)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from prompt_parts import NONCE, make_agent, make_facts, make_state, make_step, texts

from stepflow.engine.prompt.messages import first_message_blocks, frame_as_data

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
