"""Whatever a model answers, the gate decides: any JSON, any text, any gate."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.decision import Decided, Undecided
from stepflow.domain.definition import Gate
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import INTENT_ALIASES, Intent
from stepflow.engine.gate.answer import correct_step_id, find_object
from stepflow.engine.gate.decision import canonical_answer, read_gate
from tests.tried import tried

KEYS = ("next_action", "action", "reason", "stepId", "0", "1", "", "a.b", "message", "plan")
WORDS = [*Intent, *INTENT_ALIASES, "Next", " next", "CLOSING", "other", ""]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -0.0, 1e308])
    | st.sampled_from(WORDS)
    | st.text(max_size=6)
)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
PATHS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(".".join)
GATES = st.builds(
    Gate,
    allowed=st.lists(st.sampled_from(Intent), min_size=1, unique=True).map(tuple),
    intent_field=st.just("next_action.action") | PATHS,
    target_field=st.none() | PATHS,
    handoff_fields=st.lists(PATHS, max_size=3, unique=True).map(tuple),
    fail_fast=st.booleans(),
    fallback_intent=st.none() | st.sampled_from(Intent),
)
ANSWERS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5) | st.builds(
    lambda word, rest: {**rest, "next_action": {"action": word}},
    st.sampled_from(WORDS),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3),
)


@tried(60)
@given(gate=GATES, answer=ANSWERS)
def test_any_structured_output_gives_a_decision_of_an_allowed_intent(gate: Gate, answer: JsonObject) -> None:
    before = json.dumps(answer)
    decision = read_gate(gate, answer)
    assert isinstance(decision, Decided | Undecided)
    assert decision.reason
    if isinstance(decision, Decided):
        assert decision.intent in {*gate.allowed, Intent.ABORT, gate.fallback_intent}
        assert decision.target is None or (decision.intent is Intent.JUMP and decision.target != "")
        assert None not in decision.handoff.values()
        assert set(decision.missing) <= set(gate.handoff_fields)
        if decision.violation is None:
            corrected = canonical_answer(gate, answer, decision.intent)
            again = read_gate(gate, corrected)
            assert isinstance(again, Decided)
            assert again.intent is decision.intent
    assert json.dumps(answer) == before


@tried(60)
@given(
    text=st.text(max_size=40)
    | st.builds(
        lambda before, value, after: f"{before}{json.dumps(value)}{after}",
        st.sampled_from(["", "I think: ", "```json\n", "{", "[" * 99, '{"a": ']),
        JSON,
        st.sampled_from(["", "\n```", "}", " and so on", '", {"b": 1}']),
    )
)
def test_any_text_is_read_to_an_object_or_to_none(text: str) -> None:
    answer_object = find_object(text)
    assert answer_object is None or isinstance(answer_object, dict)
    if answer_object is not None:
        answer, got = correct_step_id(answer_object, "initial.issue")
        assert got is None or (answer["stepId"], answer_object["stepId"]) == ("initial.issue", got)
