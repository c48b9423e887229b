"""What a sound agent becomes: every part of `AgentDefinition` that the flow reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from difflib import unified_diff
from enum import Enum
from pathlib import Path

import pytest
import yaml
from load_cases import DEFINITIONS, Case, cases
from pydantic import BaseModel

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition, SourceText
from stepflow.errors import Problem
from tests.golden import assert_golden

AGENT, REGISTRY = "agent.json", "steps_registry.json"
ISSUE_FLOW = Case(folder=DEFINITIONS / "valid/issue-flow", data={})


def load(root: Path) -> AgentDefinition:
    return load_agent("demo", root=root, allow_spec_violations=True)


def changes(before: str, after: str) -> str:
    """The lines that differ, each with the names of what it stands in."""
    lines = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@"))) + "\n"


def definition_text(agent: AgentDefinition) -> str:
    """YAML, in the order of the fields. The digest is left out: any change of a file changes it. So are the texts of
    shipped templates: their words have tests of their own."""
    shown = replace(agent, digest="")
    return yaml.safe_dump(_plain(shown), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Problem):
        return f"{value.code}: {value.message}"
    if isinstance(value, SourceText) and value.template:
        value = replace(value, text="")
    if is_dataclass(value):
        shown = [field for field in fields(value) if getattr(value, field.name) != _default(field)]
        return {type(value).__name__: {field.name: _plain(getattr(value, field.name)) for field in shown}}
    if isinstance(value, BaseModel):
        return {type(value).__name__: {name: _plain(getattr(value, name)) for name in _said(value)}}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _said(model: BaseModel) -> list[str]:
    return [name for name, info in type(model).model_fields.items() if getattr(model, name) != info.default]


def _default(field: Field) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@pytest.mark.sample(7)
@pytest.mark.parametrize("case", [*cases("valid"), *cases("changed")], ids=lambda case: case.name)
def test_each_valid_agent_becomes_the_golden_definition(case: Case, tmp_path: Path) -> None:
    text = definition_text(load_agent("demo", root=case.build(tmp_path / "case"), **case.options))
    if base := case.data.get("base"):
        base_case = next(each for each in cases("valid") if each.name == base)
        base_text = definition_text(load(base_case.build(tmp_path / "base")))
        assert_golden(f"definition/{case.name}.diff", changes(base_text, text))
    else:
        assert_golden(f"definition/{case.name}.yaml", text)


def test_the_digest_covers_every_file_that_is_read_and_no_other(tmp_path: Path) -> None:
    digest = load(ISSUE_FLOW.build(tmp_path / "a")).digest
    root = ISSUE_FLOW.build(tmp_path / "b")
    assert load(root).digest == digest
    folder = root / ".agent/demo"
    (folder / "README.md").write_text("not read")
    assert load(root).digest == digest
    for file in ("prompts/system.md", "prompts/steps/retry/issue/f_failed.md", "schemas/common.schema.json"):
        before = (folder / file).read_text()
        (folder / file).write_text(before + " ")
        assert load(root).digest != digest
        (folder / file).write_text(before)


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    root = ISSUE_FLOW.build(tmp_path)
    before = definition_text(load(root))
    folder = root / ".agent/demo"
    for file in [folder / AGENT, folder / REGISTRY, folder / "prompts/steps/initial/issue/f_default.md"]:
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert definition_text(load(root)) == before


def test_a_retry_template_that_cannot_be_parsed_counts_as_missing(tmp_path: Path) -> None:
    root = ISSUE_FLOW.build(tmp_path)
    for prompt in (root / ".agent/demo/prompts/steps/retry/issue").glob("*.md"):
        prompt.write_text("{{#each changedFiles}}- {{this}}")
    agent = load(root)
    entry = agent.steps["closure.issue"].validation
    assert entry
    assert (entry.retry_prompts, entry.any_retry_prompt) == ({}, None)
    assert [problem.code for problem in agent.problems] == ["SF516", "SF516"]
    assert '"{{#each changedFiles}}" is never closed' in agent.problems[0].message
