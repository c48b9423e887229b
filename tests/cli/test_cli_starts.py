"""`stepflow init` says what would start two workflows of a repository at once, and how to prevent it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git

ROOT_WORKFLOW = ".github/workflows/stepflow.yml"
RENAME = "Give one of the two agents another name."
#: Agents in the order in which they are written, by folder and name, and what is said of the last one. One that
#: reviews or triages is called what it does.
TOLD = {
    "a root's, then a folder's": (
        (".", "helper"),
        ("api", "fixer"),
        "The label agent:fixer or the comment `/stepflow run fixer` starts .github/workflows/stepflow.yml as well as "
        ".github/workflows/stepflow-api-fixer.yml. Leave it out of .github/workflows/stepflow.yml: write its `if` as "
        "`github.event.label.name != 'agent:fixer' && !startsWith(github.event.comment.body, '/stepflow run fixer') "
        "&& (…)`.",
    ),
    "a folder's, then a root's": (
        ("api", "fixer"),
        (".", "helper"),
        "starts .github/workflows/stepflow-api-fixer.yml as well as .github/workflows/stepflow.yml. Leave it out of "
        ".github/workflows/stepflow.yml",
    ),
    "one name at the root and in a folder": (
        (".", "fixer"),
        ("api", "fixer"),
        RENAME,
    ),
    "one name in a folder and at the root": (
        ("api", "fixer"),
        (".", "fixer"),
        RENAME,
    ),
    "one name in two folders": (
        ("api", "fixer"),
        ("web", "fixer"),
        f"The label agent:fixer or the comment `/stepflow run fixer` starts .github/workflows/stepflow-api-fixer.yml "
        f"as well as .github/workflows/stepflow-web-fixer.yml. {RENAME}",
    ),
    "a review beside the root's": (
        (".", "fixer"),
        (".", "review"),
        "The comment `/stepflow run review` starts .github/workflows/stepflow.yml as well as "
        ".github/workflows/stepflow-review.yml. Leave it out of .github/workflows/stepflow.yml",
    ),
    "two reviews of one name": (("api", "review"), ("web", "review"), "The label agent:review or the comment"),
}
QUIET = {
    "two at the root": ((".", "fixer"), (".", "helper")),
    "two in one folder": (("api", "fixer"), ("api", "helper")),
    "a triage": ((".", "fixer"), (".", "triage")),
    "a review and a folder's": (("api", "fixer"), (".", "review")),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for folder in ("api", "web"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Makefile").write_text("test:\n\ttest -d .\n")
    (tmp_path / "Makefile").write_text("test:\n\ttest -d .\n")
    git("init", "--quiet", cwd=tmp_path)
    return tmp_path


def init(repository: Path, capsys: pytest.CaptureFixture[str], folder: str, name: str) -> str:
    template = [f"--from=builtin/{name}"] if name in ("review", "triage") else []
    assert main(["init", name, "--repo", str(repository / folder), *template]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("case", TOLD)
def test_what_would_start_two_workflows_is_told_with_a_remedy(case: str, repository: Path, capsys) -> None:
    first, second, told = TOLD[case]
    assert "as well as" not in init(repository, capsys, *first)
    assert told in init(repository, capsys, *second)


@pytest.mark.parametrize("case", QUIET)
def test_nothing_is_told_of_workflows_that_start_by_themselves(case: str, repository: Path, capsys) -> None:
    for agent in QUIET[case]:
        assert "as well as" not in init(repository, capsys, *agent)


def test_an_agent_that_is_left_out_as_told_is_not_told_again(repository: Path, capsys) -> None:
    init(repository, capsys, ".", "helper")
    told = init(repository, capsys, "api", "fixer")
    (condition,) = re.findall(r"write its `if` as `(.+) && \(…\)`", told)
    file = repository / ROOT_WORKFLOW
    text = file.read_text("utf-8")
    file.write_text(re.sub(r"(?m)^(    if: )(.+)$", rf"\1{condition} && (\2)", text, count=1), "utf-8")
    assert "as well as" not in init(repository, capsys, ".", "third")


def test_two_workflows_for_any_agent_are_one_too_many(repository: Path, capsys) -> None:
    init(repository, capsys, ".", "fixer")
    (repository / ROOT_WORKFLOW).rename(repository / ".github/workflows/agents.yaml")
    assert (
        "The label agent:… or the comment `/stepflow` starts .github/workflows/agents.yaml as well as "
        ".github/workflows/stepflow.yml. Keep one of the two."
    ) in init(repository, capsys, ".", "helper")
