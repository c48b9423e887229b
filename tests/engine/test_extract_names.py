"""The named extractors are those of the specification, no more and no fewer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepflow.engine.completion.extract import EXTRACTORS

SPEC = Path(__file__).parents[2].parent / "shared" / "spec" / "prompts.md"


def test_every_extractor_of_the_specification_is_there_and_no_other() -> None:
    if not SPEC.exists():
        pytest.skip("the specification lies beside the repository only where it is written")
    section = SPEC.read_text(encoding="utf-8").partition("\n## 10. Extractors\n")[2].partition("\n## 11")[0]
    names = {name for row in re.findall(r"^\| (`[^|]+) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert names == set(EXTRACTORS)


def test_the_names_of_one_extractor_give_one_value() -> None:
    pairs = {"failedTests": "parseTestOutput", "errors": "parseTypeErrors", "files": "extractFiles"}
    pairs |= {"lintErrors": "parseLintErrors", "formatFiles": "parseFormatOutput", "diff": "generateDiff"}
    assert all(EXTRACTORS[short] is EXTRACTORS[long] for short, long in pairs.items())
