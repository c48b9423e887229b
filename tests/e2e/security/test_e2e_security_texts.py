"""What outsiders, authors and the model write does not lead the parent astray: links, patterns, aliases, Markdown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.security.attacked import Attacked

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
ROOT_ONLY = "canary-of-a-file-that-only-root-may-read"


@pytest.mark.sample(1)
@pytest.mark.parametrize("linked", [".agent", ".agent/fixer"])
def test_an_agent_behind_a_link_is_not_loaded(attacked: Attacked, linked: str) -> None:
    """Its real folder would be no protected path, and the model could change what reviews it."""
    path = attacked.world.checkout / linked
    path.rename(attacked.world.checkout / "elsewhere")
    path.symlink_to("elsewhere" if linked == ".agent" else "../elsewhere")
    attacked.commit("Link the agent")
    ended = attacked.run("sed -i s/fixer/fixed/ elsewhere/*.json elsewhere/fixer/*.json; git commit -qam change")
    assert ended.outputs["outcome"] == "invalid_definition", ended.log
    assert linked in ended.log
    assert attacked.world.model_bodies() == []
    assert attacked.pushed() == []


def test_a_scenario_behind_a_link_shows_nothing_of_what_it_leads_to(attacked: Attacked) -> None:
    (attacked.world.checkout / "scenario.yaml").symlink_to("/github/runner_temp/closed")
    attacked.commit("Rehearse")
    ended = attacked.run(planted={"temp/closed": f"{ROOT_ONLY}: 1\n"}, scenario="scenario.yaml")
    assert ended.outputs["outcome"] == "misconfigured", ended.log
    assert ROOT_ONLY not in ended.log + ended.summary + "".join(ended.outputs.values())


@pytest.mark.weekly
def test_aliases_that_stand_for_a_billion_words_are_refused_at_once(attacked: Attacked) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    begun = time.monotonic()
    ended = attacked.run(parameters="\n".join(lines))
    assert ended.outputs["outcome"] == "misconfigured", ended.log
    assert "parameters" in ended.outputs["reason"]
    assert time.monotonic() - begun < 30
