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

from stepflow.definition.loading import load_agent, validate_agent
from stepflow.domain.definition import AgentDefinition
from stepflow.domain.json import JsonValue
from stepflow.domain.problem import Problem, Severity
from stepflow.errors import DefinitionError
from tests.tried import tried

BASE = DEFINITIONS / "valid/issue-flow/.agent/demo"
FILES = ("agent.json", "steps_registry.json", "schemas/issue.schema.json", "schemas/common.schema.json")
DOCUMENTS = {file: json.loads((BASE / file).read_text()) for file in FILES}


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
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound agent, of which each example changes a file; made once: that takes longer than to load it."""
    root = tmp_path_factory.mktemp("repository")
    return Case(folder=DEFINITIONS / "valid/issue-flow", data={}).build(root) / ".agent/demo"


def assert_loads_or_reports(agent: Path, file: str, text: str, templates: Path, **options: bool) -> None:
    """Load; whatever is wrong must come out as problems that can be printed, sorted, with an error if it fails."""
    whole = (agent / file).read_bytes()
    (agent / file).write_bytes(text.encode(errors="surrogatepass"))
    try:
        loaded: AgentDefinition | DefinitionError = load_agent(agent, templates=templates, **options)
    except DefinitionError as error:
        loaded = error
    finally:
        (agent / file).write_bytes(whole)
    problems: list[Problem] = list(loaded.problems)
    assert isinstance(loaded, DefinitionError) == any(one.severity is Severity.ERROR for one in problems)
    assert "\n".join(str(problem) for problem in problems).encode() is not None
    assert problems == sorted(problems, key=lambda one: (one.file, one.line or 0, one.code))


@tried(30)
@given(
    file=st.sampled_from(FILES),
    values=st.lists(JSON, min_size=1, max_size=3),
    pick=st.randoms(use_true_random=False),
)
def test_a_mutated_agent_gives_a_definition_or_problems(
    file: str, values: list[JsonValue], pick: random.Random, agent: Path, templates: Path
) -> None:
    document = DOCUMENTS[file]
    for value in values:
        document = mutate(document, value, pick)
    assert_loads_or_reports(
        agent, file, json.dumps(document, indent=1), templates, allow_spec_violations=True, allow_custom_verdict=True
    )


@tried(25)
@given(file=st.sampled_from(FILES), value=JSON)
def test_any_json_gives_problems(file: str, value: JsonValue, agent: Path, templates: Path) -> None:
    assert_loads_or_reports(agent, file, json.dumps(value), templates)


@tried(25)
@given(
    file=st.sampled_from([*FILES, "prompts/system.md", "prompts/steps/initial/issue/f_default.md"]),
    text=st.text(max_size=60)
    | st.text(alphabet='-{}[]:",\n \tuv1a.!&*', max_size=60).map(lambda text: f"---\n{text}\n---\nx"),
)
def test_any_text_gives_problems(file: str, text: str, agent: Path, templates: Path) -> None:
    assert_loads_or_reports(agent, file, text, templates)


@pytest.mark.parametrize(
    "front", ["!!int ''", "!!bool x", "2024-13-45", "a: &a [*a]", "? [1]: 2", "[" * 1200, "a: b: c"]
)
def test_odd_front_matter_is_at_most_a_note(front: str, tmp_path: Path, templates: Path) -> None:
    root = Case(folder=DEFINITIONS / "valid/issue-flow", data={}).build(tmp_path)
    prompt = root / ".agent/demo/prompts/steps/closure/issue/f_default_label-and-close.md"
    prompt.write_text(f"---\n{front}\n---\n{{uv-issue}}\n")
    codes = {problem.code for problem in validate_agent("demo", root=root, templates=templates)}
    assert codes <= {"SF508"}
