"""Reading a skill: the frozen text of the definition, by an address that no file has."""

from __future__ import annotations

import pytest
from prompt_parts import make_agent, make_step

from stepflow.domain.agent.agent_settings import Skill
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.conversation import ToolUse
from stepflow.engine.conversation import read_skill

SKILL = Skill(name="release", description="Cuts one.", folder="docs/release", files={"SKILL.md": "one\r\ntwo\nthree\n"})


@pytest.fixture
def agent() -> AgentDefinition:
    return make_agent(make_step(), skills=(SKILL,))


def ask(agent: AgentDefinition, name: str = "read", **given: object) -> tuple[str, bool] | None:
    result = read_skill(
        agent, ToolUse(tool_use_id="t", name=name, input={"file_path": "skill://release/SKILL.md", **given})
    )
    return (result.output, result.is_error) if result else None


@pytest.mark.parametrize(
    ("view_range", "text"),
    [(None, "one\r\ntwo\nthree\n"), ([2, 3], "two\nthree\n"), ([0, 1], "one\r\n"), ([3, 0], "three\n"), ([7, 9], "")],
)
def test_the_text_is_given_as_it_is_whole_or_in_part(agent: AgentDefinition, view_range: object, text: str) -> None:
    assert ask(agent, view_range=view_range) == (text, False)


def test_of_an_address_that_is_none_it_is_said_which_there_are(agent: AgentDefinition) -> None:
    wrong = "skill://release/../SKILL.md"
    assert ask(agent, file_path=wrong) == (f"{wrong}: does not exist; the files are skill://release/SKILL.md", True)


def test_every_other_call_is_for_the_tools(agent: AgentDefinition) -> None:
    assert ask(agent, name="write") is None
    assert ask(agent, file_path="docs/release/SKILL.md") is None
    assert ask(agent, file_path=7) is None
    assert ask(make_agent(make_step())) is None
