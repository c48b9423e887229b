"""Whatever stands in a registry of the check dialect: a definition or problems come out, never another exception."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from load_cases import DEFINITIONS, Case
from test_definition_anything import mutate, words

from stepflow.definition.loading import load_agent, validate_agent
from stepflow.domain.definition import AgentDefinition
from stepflow.domain.json import JsonValue
from stepflow.domain.problem import Severity
from stepflow.errors import DefinitionError

BASE = DEFINITIONS / "valid/check-flow/.agent/demo"
FILES = ("agent.json", "steps_registry.json")
DOCUMENTS = {file: json.loads((BASE / file).read_text()) for file in FILES}
WORDS = sorted(words(DOCUMENTS["steps_registry.json"]) | {"handoff", "key", "path", "", "..", "a/b", "\0"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    file=st.sampled_from(FILES),
    values=st.lists(VALUES, min_size=1, max_size=3),
    pick=st.randoms(use_true_random=False),
)
def test_a_mutated_check_agent_gives_a_definition_or_problems(
    file: str, values: list[JsonValue], pick: random.Random, templates: Path
) -> None:
    document = DOCUMENTS[file]
    for value in values:
        document = mutate(document, value, pick)
    with tempfile.TemporaryDirectory() as name:
        root = Case(folder=DEFINITIONS / "valid/check-flow", data={}).build(Path(name))
        (root / ".agent/demo" / file).write_text(json.dumps(document, indent=1))
        problems = validate_agent("demo", root=root, templates=templates)
        try:
            loaded: AgentDefinition | DefinitionError = load_agent("demo", root=root, templates=templates)
        except DefinitionError as error:
            loaded = error
    assert loaded.problems == problems
    assert isinstance(loaded, DefinitionError) == any(one.severity is Severity.ERROR for one in problems)
