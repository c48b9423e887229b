"""docs/scenarios.md names every key of a scenario, and no other."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from stepflow.model.scenario import Expect, Scenario, Turn
from tests.docs.readme import SCENARIOS_PAGE


@pytest.mark.parametrize(("heading", "model"), [("The file", Scenario), ("A turn", Turn), ("What is expected", Expect)])
def test_the_table_has_every_key(heading: str, model: type[BaseModel]) -> None:
    part = SCENARIOS_PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.M)) == set(model.model_fields)
