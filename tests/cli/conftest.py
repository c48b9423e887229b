"""A checkout to stand in, with an agent and a scenario for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stepflow.sandbox.environment import SYSTEM_PATH
from tests.checkout import git

SOURCE = Path(__file__).parents[1] / "action" / "checkout"
SCENARIO = """
turns:
  - expect_step: initial.issue
    output: { stepId: initial.issue, next_action: { action: next, reason: it is clear }, understanding: x }
  - expect_step: continuation.issue
    tools:
      - bash: { command: "echo 'hello, world' > greeting.txt && git commit -qam 'Greet the world'" }
  - output: { stepId: continuation.issue, next_action: { action: handoff, reason: it is done }, summary: y }
  - expect_step: closure.issue
    output: { stepId: closure.issue, next_action: { action: closing, reason: the world is greeted } }
"""


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as it is copied for each test."""
    folder = shutil.copytree(SOURCE, tmp_path_factory.mktemp("repository") / "checkout")
    git("init", "--quiet", "--template=", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--message", "Begin", cwd=folder)
    return folder


@pytest.fixture
def checkout(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, as the current folder; its scenario stands beside it."""
    folder = shutil.copytree(repository, tmp_path / "checkout")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    monkeypatch.chdir(folder)
    for name in (
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
        "GITHUB_REPOSITORY",
        "GITHUB_ACTOR",
        "GITHUB_API_URL",
        "GITHUB_SERVER_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    # Else what this machine has besides would show.
    monkeypatch.setenv("PATH", ":".join(SYSTEM_PATH))
    return folder
