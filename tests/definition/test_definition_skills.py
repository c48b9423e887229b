"""Skills: what is frozen of their folders, and what the digest covers."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, edit_json

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.errors import DefinitionError

ISSUE_FLOW = Case(folder=DEFINITIONS / "valid/issue-flow", data={})
TEXT = "---\nname: release\ndescription: >\n  Cuts a release.\n  Use it for versions.\nlicense: MIT\n---\n\nTag it.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = ISSUE_FLOW.build(tmp_path)
    write(root, "SKILL.md", TEXT.encode())
    edit_json(root / ".agent/demo/agent.json", "set", "/skills", ["docs/skills/release/"])
    return root


def write(root: Path, name: str, content: bytes) -> None:
    file = root / "docs/skills/release" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def load(root: Path) -> AgentDefinition:
    return load_agent("demo", root=root)


def test_a_skill_is_its_name_its_description_and_every_text_of_its_folder(root: Path) -> None:
    write(root, "references/tags.md", b"v1.2.3\n")
    write(root, "assets/logo.png", b"\x89PNG\xff")
    agent = load(root)
    (skill,) = agent.skills
    assert (skill.name, skill.folder) == ("release", "docs/skills/release")
    assert skill.description == "Cuts a release. Use it for versions."
    assert skill.files == {"SKILL.md": TEXT, "references/tags.md": "v1.2.3\n"}
    assert skill.address() == "skill://release/SKILL.md"
    assert agent.problems == ()


def test_the_digest_covers_every_text_of_a_skill(root: Path) -> None:
    digests = {load(root).digest}
    for text in (b"one", b"two"):
        write(root, "scripts/tag.sh", text)
        digests.add(load(root).digest)
    edit_json(root / ".agent/demo/agent.json", "remove", "/skills")
    digests.add(load(root).digest)
    assert len(digests) == 4


def test_files_and_bytes_of_a_skill_have_a_limit(root: Path) -> None:
    for number in range(5):
        write(root, f"{number}.md", b"x" * 250_000)
    with pytest.raises(DefinitionError) as raised:
        load(root)
    assert ["is too much" in str(problem) for problem in raised.value.problems] == [True]
    for number in range(100):
        write(root, f"{number}.md", b"x")
    with pytest.raises(DefinitionError) as raised:
        load(root)
    assert ["more than 100 files" in str(problem) for problem in raised.value.problems] == [True]
