"""The extractors read what the tools really print: one folder of `outputs/` is one test (prompts.md §10)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.engine.completion.extract import extract

OUTPUTS = Path(__file__).parent / "outputs"
CASES = sorted(folder for folder in OUTPUTS.iterdir() if folder.is_dir())


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_extractors_find_what_the_tool_said(case):
    expected = json.loads(read(case / "expected.json"))
    result = CommandResult(
        exit_code=expected["exit_code"], stdout=read(case / "stdout.txt"), stderr=read(case / "stderr.txt")
    )
    names = {name: name for name in expected["extracted"]}
    extracted = extract(names, result, root="/srv/project", current_branch=lambda: "topic")
    assert extracted == expected["extracted"]


def test_there_is_an_output_of_every_tool():
    tools = {case.name.split("_")[0] for case in CASES}
    assert tools == {
        "black", "deno", "eslint", "flake8", "git", "go", "gofmt", "mypy", "prettier", "pyright", "pytest", "ruff",
        "tsc", "unittest",
    }  # fmt: skip
