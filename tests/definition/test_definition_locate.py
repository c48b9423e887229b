"""Which folder is meant: names, paths, links, and registries without an agent.json."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from load_cases import DEFINITIONS

from stepflow.definition.folder import find_agents
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.errors import DefinitionError

REGISTRY = "steps_registry.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    shutil.copytree(DEFINITIONS / "valid/issue-flow/.agent", root / ".agent")
    return root


def codes(path: str | Path, **options: object) -> list[str]:
    return [problem.code for problem in validate_agent(path, **options)]  # type: ignore[arg-type]


def test_the_agents_of_a_repository_are_the_folders_with_an_agent_file(root: Path) -> None:
    (root / ".agent/other").mkdir()
    (root / ".agent/abc").mkdir()
    (root / ".agent/abc/agent.json").write_text("{}")
    assert find_agents(root) == ("abc", "demo")
    assert find_agents(root / "nowhere") == ()


def test_a_name_is_looked_up_below_the_current_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert load_agent("demo").folder == ".agent/demo"
    assert load_agent(".agent/demo").folder == ".agent/demo"
    monkeypatch.chdir(root / ".agent/demo")
    assert load_agent(".").folder == ".agent/demo"
    monkeypatch.chdir(root / ".agent/demo/schemas")
    assert load_agent("..").folder == ".agent/demo"


@pytest.mark.parametrize("given", ["demo", ".agent/demo", "ABSOLUTE"])
def test_a_name_and_paths_mean_the_same_folder(given: str, root: Path) -> None:
    path = given.replace("ABSOLUTE", str(root / ".agent/demo"))
    assert load_agent(path, root=root).folder == ".agent/demo"
    assert load_agent(root / ".agent/demo").folder == ".agent/demo"


def test_a_folder_outside_dot_agent_is_relative_to_its_parent(root: Path) -> None:
    shutil.copytree(root / ".agent/demo", root / "examples/demo")
    assert load_agent(root / "examples/demo").folder == "demo"


@pytest.mark.parametrize(
    "name", ["../demo", "../../etc", "a/../../x", "", "..", "Demo", "1x", "dem\0o", "a\\b", "\udc80"]
)
def test_names_that_are_no_names_are_refused(name: str, root: Path) -> None:
    assert codes(name, root=root) == ["SF101"]


def test_an_absolute_path_outside_the_root_is_refused(root: Path) -> None:
    shutil.copytree(root / ".agent/demo", root.parent / "elsewhere/.agent/demo")
    assert codes(root.parent / "elsewhere/.agent/demo", root=root) == ["SF109"]


def test_a_symbolic_link_out_of_the_repository_is_refused(root: Path) -> None:
    shutil.copytree(root / ".agent/demo", root.parent / "outside/demo")
    (root / ".agent/linked").symlink_to(root.parent / "outside/demo")
    assert codes("linked", root=root) == ["SF109"]
    assert codes(root / ".agent/linked") == ["SF109"]


@pytest.mark.parametrize("linked", [".agent", ".agent/demo", ".agent/demo/agent.json", ".agent/demo/prompts"])
def test_a_symbolic_link_is_refused_wherever_it_stands_and_leads(root: Path, linked: str) -> None:
    """The folder that it leads to is no protected path: a run could change its own agent there."""
    moved = root / "kept" / Path(linked).name
    moved.parent.mkdir()
    shutil.move(root / linked, moved)
    (root / linked).symlink_to(moved)
    with pytest.raises(DefinitionError) as raised:
        load_agent("demo", root=root)
    assert "SF109" in {problem.code for problem in raised.value.problems}
    assert linked in str(raised.value)
    assert "symbolic link" in str(raised.value)
    assert "SF109" in codes(root / ".agent/demo", root=root)


@pytest.mark.parametrize("name", ["agent.json", "steps_registry.json"])
def test_a_pipe_or_a_socket_in_the_place_of_a_file_is_refused_at_once(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / ".agent/demo" / name
    monkeypatch.chdir(file.parent)
    file.unlink()
    os.mkfifo(file)
    assert "SF102" in codes("demo", root=root)
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        assert "SF102" in codes("demo", root=root)


def test_a_link_to_itself_is_no_folder(root: Path) -> None:
    (root / ".agent/loop").symlink_to("loop")
    assert codes("loop", root=root) == ["SF109"]
    assert codes(root / ".agent/loop") == ["SF101"]
    (root / "circle").symlink_to("circle")
    assert codes(root / "circle/.agent/demo") == ["SF101"]


def test_the_error_holds_all_problems_and_names_the_neighbors(root: Path) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_agent("dmo", root=root)
    assert raised.value.exit_code == 2
    assert len(raised.value.problems) == 1
    assert 'did you mean "demo"?' in str(raised.value)
    assert raised.value.message == "The agent definition has 1 error."


def test_a_name_too_long_for_the_file_system_is_unreadable(root: Path) -> None:
    file = root / ".agent/demo/agent.json"
    document = json.loads(file.read_text())
    document["runner"]["flow"]["systemPromptPath"] = "x" * 5000
    file.write_text(json.dumps(document))
    assert codes("demo", root=root) == ["SF102"]


@pytest.mark.parametrize("form", ["folder", "file", "name in folder"])
def test_a_bare_registry_is_checked_without_an_agent_file(
    form: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / ".agent/demo"
    (folder / "agent.json").unlink()
    monkeypatch.chdir(folder)
    path = {"folder": folder, "file": folder / REGISTRY, "name in folder": REGISTRY}[form]
    assert codes(path, bare_registry=True) == []
    registry = folder / REGISTRY
    registry.write_text(registry.read_text().replace('"closure.issue"\n', '"closure.isue"\n', 1))
    assert codes(path, bare_registry=True) == ["SF343"]


def test_a_bare_registry_needs_some_entry(root: Path) -> None:
    folder = root / ".agent/demo"
    (folder / "agent.json").unlink()
    registry = folder / REGISTRY
    registry.write_text(registry.read_text().replace('"entryStepMapping"', '"begins"'))
    assert codes(folder, bare_registry=True) == ["SF303", "SF108"]


def test_control_characters_do_not_reach_a_log(root: Path) -> None:
    file = root / ".agent/demo" / REGISTRY
    file.write_text(file.read_text().replace('"closure.issue"\n', '"x\\n::error::y"\n', 1))
    problems = validate_agent("demo", root=root)
    assert "x\\u000a::error::y" in problems[0].message
    assert all("\n" not in str(problem) for problem in problems)
