"""The repository's guidance: what each step is shown, what the digest covers, how much of a file is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, edit_json

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition, SourceText

ISSUE_FLOW = Case(folder=DEFINITIONS / "valid/issue-flow", data={})
CHECK_FLOW = Case(folder=DEFINITIONS / "valid/check-flow", data={})
AGENT, REGISTRY = ".agent/demo/agent.json", ".agent/demo/steps_registry.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ISSUE_FLOW.build(tmp_path)


def write(root: Path, texts: dict[str, str]) -> None:
    """An `AGENTS.md` in each of these folders."""
    for folder, text in texts.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "AGENTS.md").write_text(text, encoding="utf-8")


def load(root: Path) -> AgentDefinition:
    return load_agent("demo", root=root)


def shown(texts: tuple[SourceText, ...]) -> dict[str, str]:
    return {text.file: text.text for text in texts}


def test_the_file_at_the_root_is_shown_to_every_step_without_being_asked_for(root: Path) -> None:
    write(root, {".": "\ufeff# House\r\n\r\nBe brief.\r\n"})
    agent = load(root)
    assert shown(agent.guidance) == {"AGENTS.md": "# House\n\nBe brief."}
    assert not any(step.guidance for step in agent.steps.values())
    assert agent.problems == ()


def test_only_what_is_listed_is_shown_and_off_shows_nothing(root: Path) -> None:
    write(root, {".": "Be brief.", "docs": "Be long."})
    (root / "docs/STYLE.md").write_text("Be kind.")
    edit_json(root / AGENT, "set", "/guidance", ["docs/STYLE.md", "./docs/STYLE.md"])
    assert shown(load(root).guidance) == {"docs/STYLE.md": "Be kind."}
    for nothing in ("off", []):
        edit_json(root / AGENT, "set", "/guidance", nothing)
        assert load(root).guidance == ()


@pytest.mark.parametrize("case", [ISSUE_FLOW, CHECK_FLOW], ids=lambda case: case.name)
def test_a_step_is_shown_the_files_down_to_its_folders_the_nearest_last(case: Case, tmp_path: Path) -> None:
    root = case.build(tmp_path)
    write(
        root,
        {".": "Root.", "services": "Services.", "services/api/v1": "One.", "services/web": "Web.", "other": "Other."},
    )
    step_id = load(root).entry_step
    edit_json(root / REGISTRY, "set", f"/steps/{step_id}/guidance", ["services/api/v1", "services/web/", "services"])
    agent = load(root)
    assert list(shown(agent.guidance)) == ["AGENTS.md"]
    assert list(shown(agent.steps[step_id].guidance)) == [
        "services/AGENTS.md",
        "services/api/v1/AGENTS.md",
        "services/web/AGENTS.md",
    ]
    assert not any(step.guidance for step in agent.steps.values() if step.id != step_id)


def test_what_every_step_is_shown_is_not_shown_to_one_again(root: Path) -> None:
    write(root, {"services": "Services.", "services/api": "API."})
    edit_json(root / AGENT, "set", "/guidance", ["services/AGENTS.md"])
    edit_json(root / REGISTRY, "set", "/steps/initial.issue/guidance", ["services/api"])
    assert list(shown(load(root).steps["initial.issue"].guidance)) == ["services/api/AGENTS.md"]


def test_the_digest_covers_what_is_shown_and_nothing_else(root: Path) -> None:
    bare = load(root).digest
    write(root, {"services": "Not shown."})
    assert load(root).digest == bare
    write(root, {".": "Be brief."})
    brief = load(root).digest
    assert brief != bare
    write(root, {".": "Be briefer."})
    assert load(root).digest not in (bare, brief)
    write(root, {".": " \n"})
    assert load(root).digest == bare


def test_a_shipped_agent_is_shown_the_guidance_of_the_repository_that_it_works_on(tmp_path: Path) -> None:
    write(tmp_path, {".": "Be brief."})
    assert shown(load_agent("builtin/fix", root=tmp_path).guidance) == {"AGENTS.md": "Be brief."}


@pytest.mark.parametrize("text", ["a line of guidance\n" * 60_000, "é" * 600_000])
def test_of_a_long_file_the_beginning_is_shown_with_a_warning(root: Path, text: str) -> None:
    write(root, {".": text})
    agent = load(root)
    (only,) = agent.guidance
    begun, mark = only.text.split("\n\n")
    assert mark == "…[cut]"
    assert 65_000 < len(begun.encode()) <= 65_536
    assert text.startswith(begun + ("\n" if "\n" in text else ""))
    (problem,) = agent.problems
    assert (problem.code, problem.severity) == ("SF115", "warning")
    assert f"of {len(text.encode()):,} bytes" in problem.message


def test_all_files_together_have_a_limit_too(root: Path) -> None:
    names = ("a", "b", "c", "d")
    write(root, {name: f"{name}\n" * 25_000 for name in names})
    edit_json(root / AGENT, "set", "/guidance", [f"{name}/AGENTS.md" for name in names])
    agent = load(root)
    sizes = {file: len(text.encode()) for file, text in shown(agent.guidance).items()}
    assert sum(sizes.values()) < 128 * 1024 + 100
    assert list(sizes) == [f"{name}/AGENTS.md" for name in names]
    assert [problem.path for problem in agent.problems] == ["/guidance/2", "/guidance/3"]
