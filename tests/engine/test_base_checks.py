"""What a check says of a program or a project that is missing, and what it merely prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.engine.judge import MISSING, find_uninstalled
from tests.checkout import git


@pytest.mark.parametrize(
    "said",
    [
        "sh: 1: ruff: not found",
        "/bin/sh: line 1: ruff: command not found",
        "bash: line 3: jest: command not found",
        "/usr/bin/python3: No module named pytest",
        "/opt/python3.12: No module named mypy.api",
        "make: *** [Makefile:3: test] Error 127",
        "make[2]: *** [check] Error 127",
        "error: Failed to spawn: `pytest`",
        "error: Failed to spawn: pytest",
        "Command not found: pytest",
        "[PdmUsageError]: Command 'pytest' is not found in your PATH.",
        "definition.rb:7:in `materialize': Could not find rake-13.2.1 in locally installed gems (Bundler::GemNotFound)",
    ],
)
def test_shells_and_the_programs_that_start_others_say_that_a_program_is_missing(said: str) -> None:
    assert MISSING.search(f"building\n{said}\n")


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'app'",
        "ImportError: page not found",
        "GET /users: 404 not found",
        "E  assert 'sh: 1: ruff: not found' in out",
        "make: *** [Makefile:3: test] Error 2",
        "test_shell.py: command not found is told",
    ],
)
def test_what_a_test_prints_is_no_missing_program(said: str) -> None:
    assert MISSING.search(f"{said}\n") is None


class Workspace:
    """Runs commands in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run_command(self, request: CommandRequest) -> CommandResult:
        done = subprocess.run(request.argv, cwd=self.root, capture_output=True, text=True, check=False)
        return CommandResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("workspace")
    for name in ("src/sizes/__init__.py", "flat.py", "libs/a/src/deep/x.py", "docs/other/__init__.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "package.json").write_text('{"devDependencies": {"ms": "2", "@acme/x": "1", "there": "1"}}')
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    (root / "node_modules/there").mkdir(parents=True)
    return Workspace(root)


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("ModuleNotFoundError: No module named 'sizes'", "sizes"),
        ("E   ModuleNotFoundError: No module named 'flat'", "flat"),
        ("E   ModuleNotFoundError: No module named 'deep'", "deep"),
        ("Error: Cannot find module 'ms'\nRequire stack:", "ms"),
        ("# Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@acme/x' imported from /w/a.test.js", "@acme/x"),
        ("    Cannot find module 'ms' from 'src/a.test.js'", "ms"),
        # A package or a file that the agent may be asked for, one of another folder, and what a test prints.
        ("ModuleNotFoundError: No module named 'requests'", ""),
        ("ModuleNotFoundError: No module named 'sizes.new'", ""),
        ("ModuleNotFoundError: No module named 'other'", ""),
        ("E   assert \"ModuleNotFoundError: No module named 'sizes'\" == ''", ""),
        ("Error: Cannot find module './new'", ""),
        ("Error: Cannot find module 'lodash'", ""),
        ("Error: Cannot find module 'there'", ""),
        ("a.ts(1,1): error TS2307: Cannot find module 'ms' or its corresponding type declarations.", ""),
    ],
)
def test_a_module_of_the_project_or_one_that_it_declares_is_not_installed(
    workspace: Workspace, said: str, missing: str
) -> None:
    explanation = find_uninstalled(CommandResult(exit_code=1, stdout=f"collected\n{said}\n"), workspace)
    assert (f"`{missing}`" in explanation) if missing else explanation == ""
