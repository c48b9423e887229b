"""Whatever stands in the files: a definition or problems come out, never another exception."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_cases import DEFINITIONS, Case

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.json import JsonValue
from stepflow.errors import DefinitionError, Problem, Severity
from tests.tried import tried

FILES = ("agent.json", "steps_registry.json", "schemas/issue.schema.json", "schemas/common.schema.json")
#: A sound agent of each dialect, and its files that are changed.
AGENTS = {"issue-flow": FILES, "check-flow": FILES[:2]}
DOCUMENTS = {
    (agent, file): json.loads((DEFINITIONS / "valid" / agent / ".agent/demo" / file).read_text())
    for agent, files in AGENTS.items()
    for file in files
}


def words(value: JsonValue) -> set[str]:
    """Every key and text of a document: what a mutation that matters is made of."""
    if isinstance(value, dict):
        return set(value).union(*(words(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(words(item) for item in value))
    return {value} if isinstance(value, str) else set()


WORDS = sorted(
    set().union(*(words(one) for one in DOCUMENTS.values())) | {"", "#", "#/", "..", "a/b", "\0", "{", "$ref"}
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([10**400, -(10**30), 1e300, 0.5])
    | st.sampled_from(WORDS)
    | st.text(max_size=4)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)


def mutate(document: JsonValue, value: JsonValue, pick: random.Random) -> JsonValue:
    """Put a value somewhere into a copy of the document: in place of another, beside others, or remove one."""
    document = copy.deepcopy(document)
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return document
        key = pick.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and pick.random() < 0.8:
            node = node[key]
            continue
        match pick.randrange(4):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[pick.choice(WORDS)] = value
            case _:
                node[key] = value
        return document


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The agents, of which each example changes a file; made once: that takes longer than to load one."""
    roots = {name: tmp_path_factory.mktemp(name) for name in AGENTS}
    return {
        name: Case(folder=DEFINITIONS / "valid" / name, data={}).build(root) / ".agent/demo"
        for name, root in roots.items()
    }


def assert_loads_or_reports(agent: Path, file: str, text: str, **options: bool) -> None:
    """Load; whatever is wrong must come out as problems that can be printed, sorted, with an error if it fails."""
    whole = (agent / file).read_bytes()
    (agent / file).write_bytes(text.encode(errors="surrogatepass"))
    try:
        loaded: AgentDefinition | DefinitionError = load_agent(agent, **options)
    except DefinitionError as error:
        loaded = error
    finally:
        (agent / file).write_bytes(whole)
    problems: list[Problem] = list(loaded.problems)
    assert isinstance(loaded, DefinitionError) == any(one.severity is Severity.ERROR for one in problems)
    assert "\n".join(str(problem) for problem in problems).encode() is not None
    assert problems == sorted(problems, key=lambda one: (one.file, one.line or 0, one.code))


@tried(130)
@given(
    document=st.sampled_from(list(DOCUMENTS)),
    values=st.lists(JSON, min_size=1, max_size=3),
    pick=st.randoms(use_true_random=False),
)
def test_a_mutated_agent_gives_a_definition_or_problems(
    document: tuple[str, str], values: list[JsonValue], pick: random.Random, agents: dict[str, Path]
) -> None:
    agent, file = document
    mutated = DOCUMENTS[document]
    for value in values:
        mutated = mutate(mutated, value, pick)
    options = {"allow_spec_violations": True}
    assert_loads_or_reports(agents[agent], file, json.dumps(mutated, indent=1), **options)


@tried(25)
@given(
    file=st.sampled_from([*FILES, "prompts/system.md", "prompts/steps/initial/issue/f_default.md"]),
    text=st.text(max_size=60)
    | st.text(alphabet='-{}[]:",\n \tuv1a.!&*', max_size=60).map(lambda text: f"---\n{text}\n---\nx"),
)
def test_any_text_gives_problems(file: str, text: str, agents: dict[str, Path]) -> None:
    assert_loads_or_reports(agents["issue-flow"], file, text)
