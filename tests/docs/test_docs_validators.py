"""docs/how-to/validators.md: each entry loads, and its retry prompt tells what the real tool said."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stepflow.definition.builtin import agent_files
from stepflow.definition.loading import load_agent
from stepflow.domain.checkout import CommandResult
from stepflow.engine.extract import extract
from stepflow.engine.prompt.template import fill_template, parse_template
from tests.docs.page import DOCS, PageBlock, page_blocks
from tests.docs.workflows import check_workflow, with_lines

PAGE = DOCS / "how-to" / "validators.md"
OUTPUTS = Path(__file__).parents[1] / "engine" / "outputs"
LANGUAGES = re.findall(r"^## (Python|Node|Go|Rust|Deno)$", PAGE.read_text(encoding="utf-8"), re.M)
BLOCKS = page_blocks(PAGE)
#: A validator of the page → what its tool really printed, in tests/engine/outputs.
PRINTED = {
    ("Python", "tests"): "pytest",
    ("Python", "types"): "mypy",
    ("Python", "lint"): "ruff",
    ("Python", "format"): "ruff_format",
    ("Node", "types"): "tsc",
    ("Node", "lint"): "eslint",
    ("Node", "format"): "prettier",
    ("Go", "tests"): "go_test",
    ("Go", "format"): "gofmt",
    ("Deno", "tests"): "deno_test",
    ("Deno", "types"): "deno_check",
    ("Deno", "lint"): "deno_lint",
    ("Deno", "format"): "deno_fmt",
}


def noted(note: str) -> list[PageBlock]:
    return [block for block in BLOCKS if block.note.partition(":")[0] == note]


def entries(language: str) -> dict:
    return json.loads(noted("validators")[LANGUAGES.index(language)].text)


def test_every_language_has_its_entries_and_its_lines_for_the_workflow() -> None:
    assert LANGUAGES == ["Python", "Node", "Go", "Rust", "Deno"]
    assert len(noted("validators")) == len(noted("with")) == len(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_entries_of_a_language_load_without_any_problem(language: str, tmp_path: Path) -> None:
    folder = tmp_path / ".agent" / "fixer"
    for name, text in agent_files("fix", "fixer", ()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    registry = folder / "steps_registry.json"
    extracted = json.loads(registry.read_text(encoding="utf-8"))
    given = entries(language)
    for part in ("validators", "failurePatterns"):
        extracted[part] |= given[part]
    conditions = extracted["validationSteps"]["closure.default"]["validationConditions"]
    conditions += [{"validator": name} for name in given["validators"]]
    registry.write_text(json.dumps(extracted), encoding="utf-8")
    (prompt,) = noted("retry prompt")
    (folder / "prompts/steps/retry/default/f_failed.md").write_text(prompt.text, encoding="utf-8")
    assert load_agent(folder).problems == ()


@pytest.mark.parametrize(("language", "name"), PRINTED, ids=lambda part: part)
def test_the_retry_prompt_names_what_the_real_tool_found(language: str, name: str) -> None:
    case = OUTPUTS / PRINTED[language, name]
    stdout, stderr = (case / f"{stream}.txt" for stream in ("stdout", "stderr"))
    result = CommandResult(
        exit_code=json.loads((case / "expected.json").read_text(encoding="utf-8"))["exit_code"],
        stdout=stdout.read_text(encoding="utf-8") if stdout.exists() else "",
        stderr=stderr.read_text(encoding="utf-8") if stderr.exists() else "",
    )
    names = entries(language)["validators"][name]["extractParams"]
    extracted = extract(names, result, root="/srv/project", current_branch=lambda: "topic")
    (prompt,) = noted("retry prompt")
    text = fill_template(parse_template(prompt.text), {"validator": name, "attemptsLeft": 2, **extracted}).text
    ((variable, values),) = extracted.items()
    assert values, f"{variable} is empty"
    for value in values:
        expected = (
            [value] if isinstance(value, str) else [value[key] for key in ("file", "name", "message") if key in value]
        )
        assert any(words in text for words in expected), text


@pytest.mark.sample(2)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lines_for_the_workflow_are_inputs_of_the_action(language: str, tmp_path: Path) -> None:
    given = yaml.safe_load(noted("with")[LANGUAGES.index(language)].text)
    assert set(given) <= {"setup", "apt-packages"}
    packages = tuple(given.get("apt-packages", "").split())
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package) for package in packages)
    check_workflow(with_lines(given), tmp_path)
    if "setup" in given:
        assert subprocess.run(["bash", "-n", "-c", given["setup"]], check=False).returncode == 0


def test_what_a_build_leaves_behind_is_ignored_by_the_lines_of_the_page(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    for block in noted("ignored"):
        (tmp_path / ".gitignore").write_text(block.text, encoding="utf-8")
        for path in block.note.partition(": ")[2].split():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
        left = subprocess.run(
            ["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert left == "?? .gitignore\n"
        subprocess.run(["git", "clean", "-ffdxq"], cwd=tmp_path, check=True)
