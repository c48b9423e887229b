"""docs/tutorial.md: a reader who does what it says, line by line, sees what it shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.page import DOCS, ROOT, Reader, is_shown, page_steps

BIN = Path(sys.executable).parent
TUTORIAL = DOCS / "tutorial.md"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Stands in what `make` needs of a clone that is set up; GitHub is a repository on this disk."""
    clone = tmp_path / "work" / "clone"
    (clone / ".venv").mkdir(parents=True)
    for name in ("Makefile", "requirements/run.txt", "pyproject.toml"):
        (clone / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / ".venv" / "bin").symlink_to(BIN)
    (clone / ".venv" / ".run").touch()
    remote = tmp_path / "github" / "hello.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    settings = {
        "user.name": "Ada",
        "user.email": "ada@example.com",
        f"url.{remote.parent}/.insteadOf": "https://github.com/YOU/",
    }
    home = tmp_path / "home"
    home.mkdir()
    git_config = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_CONFIG_NOSYSTEM": "1"}
    for number, (key, value) in enumerate(settings.items()):
        git_config |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    plain = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Reader(folder=clone, environment=plain | git_config)


@pytest.mark.whole
def test_a_reader_who_does_what_the_tutorial_says_sees_what_it_shows(reader: Reader, tmp_path: Path) -> None:
    steps = page_steps(TUTORIAL)
    for step, got in reader.follow(steps):
        if step.shown:
            assert is_shown(step.shown, got), f"{step.commands}\nshown:\n{step.shown}\ncame:\n{got}"
    on_the_path = Path(reader.environment["PATH"].split(":")[0])
    assert [program.name for program in on_the_path.iterdir()] == ["stepflow"]
    hello = tmp_path / "work" / "hello"
    assert (tmp_path / "work" / "fixer.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "work" / "rehearsal/fixer/forgets-to-commit/report.html").is_file()
    scenario = yaml.safe_load((hello / ".agent/fixer/scenarios/forgets-to-commit.yaml").read_text(encoding="utf-8"))
    steps_walked = ["initial.default", *["continuation.default", "closure.default"] * 2]
    assert scenario["expect"] == {"outcome": "completed", "steps": steps_walked}
    pushed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "main"],
        cwd=tmp_path / "github" / "hello.git",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ".github/workflows/stepflow.yml" in pushed.splitlines()


def test_the_tutorial_uses_every_command_that_it_promises() -> None:
    said = " ".join(step.commands for step in page_steps(TUTORIAL)).split()
    used = {said[at + 1] for at, word in enumerate(said) if word == "stepflow"}
    assert used == {"init", "validate", "graph", "rehearse", "show"}


def test_a_python_that_cannot_make_environments_is_refused_before_half_of_one_is_left_behind(tmp_path: Path) -> None:
    """Debian's Python comes without; what a failed set-up leaves would be taken for a whole one the next time."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = "import ensurepip" ] && exit 1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "run.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    command = ["make", "demo", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "apt-get install python3-venv" in done.stdout
    assert not (tmp_path / ".venv").exists()
