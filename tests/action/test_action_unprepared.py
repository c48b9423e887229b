"""A run that cannot even be prepared tells the issue, in one comment that the next such run updates."""

from __future__ import annotations

import pytest

from tests.world import World, solve


def test_a_missing_key_is_told_on_the_issue_once(world: World) -> None:
    for _ in range(2):
        done = world.run([], anthropic_api_key="")
        assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert world.wrote_nothing(but_comments=1)
    (comment,) = world.comments()
    assert "### ❌ fixer on issue #7: a setting is missing or wrong" in comment
    assert "There is no API key" in comment


def test_a_broken_definition_is_told_with_its_first_problems(world: World) -> None:
    world.edit("steps_registry.json", lambda registry: registry.update(entryStep="initial.isue"))
    done = world.run([])
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition")
    assert world.wrote_nothing(but_comments=1)
    assert "initial.isue" in world.comments()[0]


@pytest.mark.whole
@pytest.mark.parametrize(
    "github", [{"enabled": False}, {"comment": {"enabled": False}}, {"allowedEffects": ["labels"]}], ids=str
)
def test_an_agent_that_wants_no_comment_gets_none(world: World, github: dict[str, object]) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(github))
    done = world.run([], anthropic_api_key="")
    assert done.outputs["outcome"] == "misconfigured"
    assert world.wrote_nothing()


def test_somebody_who_may_only_read_causes_no_comment(world: World) -> None:
    world.github.state.permissions["bob"] = "read"
    assert world.run([], anthropic_api_key="").outputs["outcome"] == "misconfigured"
    assert world.wrote_nothing()


def test_a_dry_run_and_on_failure_nothing_write_no_comment(world: World) -> None:
    for inputs in ({"boundary": "dry-run"}, {"on_failure": "nothing"}):
        assert world.run([], anthropic_api_key="", **inputs).outputs["outcome"] == "misconfigured"
        assert world.requests_made() == 0


@pytest.mark.whole
def test_the_run_after_a_missing_key_takes_its_comment_over(world: World) -> None:
    world.run([], anthropic_api_key="")
    assert world.run(solve()).outputs["outcome"] == "completed"
    (comment,) = world.comments()
    assert "There is no API key" not in comment
