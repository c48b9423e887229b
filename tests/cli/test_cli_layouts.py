"""What `stepflow init` reads in a repository's files is what the tools themselves read there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepflow.cli import main
from stepflow.cli.layouts.find import find_checks, find_setup
from stepflow.sandbox.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAMS = tuple(map(Path, SYSTEM_PATH))
RUN = "python3 -c pass"
MAKEFILES: dict[str, dict[str, str]] = {
    "GNUmakefile": {"GNUmakefile": f"test:\n\t{RUN}\n"},
    "makefile": {"makefile": f"test:\n\t{RUN}\n"},
    "the first of two": {"GNUmakefile": f"test:\n\t{RUN}\n", "Makefile": "all:\n"},
    "the second of two": {"GNUmakefile": "all:\n", "Makefile": f"test:\n\t{RUN}\n"},
    "two targets": {"Makefile": f"lint test:\n\t{RUN}\n"},
    "a blank before the colon": {"Makefile": f"test :\n\t{RUN}\n"},
    "two colons": {"Makefile": f"test::\n\t{RUN}\n"},
    "targets together": {"Makefile": f"lint test &:\n\t{RUN}\n"},
    "a recipe on the line": {"Makefile": f"test: ; {RUN}\n"},
    "only needs": {"Makefile": f"test: unit\nunit:\n\t{RUN}\n"},
    "needs, and a recipe later": {"Makefile": f"test: all\nall:\ntest:\n\t{RUN}\n"},
    "continued": {"Makefile": f"lint \\\n  test:\n\t{RUN}\n"},
    "a comment and an empty line": {"Makefile": f"test: # all of them\n\t# first\n\n\t{RUN}\n"},
    "silent": {"Makefile": f"test:\n\t@-{RUN}\n"},
    "phony": {"Makefile": f".PHONY: test lint\ntest:\n\t{RUN}\n"},
    "a value for the target": {"Makefile": f"test: export MODE = 1\ntest:\n\t{RUN}\n"},
    "a variable only": {"Makefile": "test := 1\nlint = 2\ncheck ::= 3\n"},
    "a declaration only": {"Makefile": ".PHONY: test\n"},
    "a value only": {"Makefile": "test: MODE = 1\n"},
    "in a definition": {"Makefile": f"define recipes\ntest:\n\t{RUN}\nendef\nall:\n"},
    "indented by a condition": {"Makefile": f"ifndef NEVER\n  test:\n\t{RUN}\nendif\n"},
    "included": {"Makefile": "include more.mk\n", "more.mk": f"test:\n\t{RUN}\n"},
    "included by a pattern": {"Makefile": "include mk/*.mk\n", "mk/one.mk": f"test:\n\t{RUN}\n"},
    "included if it is there": {"Makefile": "-include more.mk none.mk\n", "more.mk": f"test:\n\t{RUN}\n"},
    "of an editor on Windows": {"Makefile": f"\ufefftest:\r\n\t{RUN}\r\n"},
    "another prefix": {"Makefile": f".RECIPEPREFIX = >\ntest:\n> {RUN}\n"},
}


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8", newline="")
    return root


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", MAKEFILES)
def test_a_target_is_found_where_make_itself_would_run_something_for_it(form: str, tmp_path: Path) -> None:
    root = write(tmp_path, MAKEFILES[form])
    made = subprocess.run(["make", "--dry-run", "test"], cwd=root, capture_output=True, text=True, check=False)
    runs = made.returncode == 0 and RUN in made.stdout
    assert ("make test" in [each.command for each in find_checks(root, PROGRAMS)]) is runs, made.stderr


TOX = "[tox]\nenv_list = py{311,313}\n[testenv]\nextras = test\ncommands = pytest {posargs}\n"
PROJECT = '[project]\nname = "sizes"\nversion = "1.0"\n[project.optional-dependencies]\ntest = ["pytest", "mpmath"]\n'
SHADOWING: dict[str, dict[str, str]] = {
    "tox.ini": {"tox.ini": TOX},
    "tox in pyproject.toml": {
        "pyproject.toml": PROJECT + '[tool.tox.env_run_base]\nextras = ["test"]\ncommands = [["pytest"]]\n'
    },
    "noxfile.py": {
        "noxfile.py": (
            "import nox\n\n@nox.session\ndef tests(session):\n    session.install('.[test]')\n    session.run('x')\n"
        )
    },
    "Makefile": {"Makefile": "test:\n\ttox\n", "tox.ini": TOX},
    "justfile": {"justfile": "test:\n  tox\n", "tox.ini": TOX},
    "pre-commit": {".pre-commit-config.yaml": "repos: []\n", "tox.ini": TOX},
    "package.json": {"package.json": '{"scripts": {"test": "jest"}}', "tox.ini": TOX},
}


@pytest.mark.parametrize("shadowing", SHADOWING)
@pytest.mark.parametrize("command", ["python3 -m pytest -q", "pytest", "python3 -m unittest"])
def test_a_given_check_has_the_project_and_its_extra_whatever_else_would_run_the_tests(
    shadowing: str, command: str, tmp_path: Path
) -> None:
    root = write(tmp_path, {"pyproject.toml": PROJECT, "src/sizes/__init__.py": "", **SHADOWING[shadowing]})
    assert main(["init", "fixer", "--repo", str(root), "--check", command]) == 0
    written = (root / ".github/workflows/stepflow.yml").read_text("utf-8")
    assert "--editable '.[test]'" in written
    assert "tox run" not in written


def test_what_runs_in_an_environment_of_its_own_installs_nothing_beside_it(tmp_path: Path) -> None:
    root = write(tmp_path, {"pyproject.toml": PROJECT, "uv.lock": 'name = "pytest"\n', "src/sizes/__init__.py": ""})
    (line,) = find_setup(root, ["uv run --locked --extra test --group dev pytest -q"]).setup
    assert line.endswith("uv sync --locked --quiet --extra test")


CASE = "import unittest\n\n\nclass Sizes(unittest.TestCase):\n    def test_one(self):\n        pass\n"
#: The files beside a test, and the command that runs it.
UNITTEST = {
    "alone": ({"test_sizes.py": CASE}, "python3 -m unittest"),
    "in a package": ({"tests/__init__.py": "", "tests/test_sizes.py": CASE}, "python3 -m unittest"),
    "locked": (
        {"test_sizes.py": CASE, "pyproject.toml": '[project]\nname = "a"\n', "uv.lock": ""},
        "uv run --locked python -m unittest",
    ),
    "below src": (
        {"test_sizes.py": CASE, "src/sizes/__init__.py": ""},
        "PYTHONPATH=src python3 -m unittest",
    ),
    "where Python does not find it": ({"tests/test_sizes.py": CASE}, "python3 -m pytest -q"),
    "beside a function": (
        {"test_sizes.py": CASE, "test_more.py": "def test_two():\n    pass\n"},
        "python3 -m pytest -q",
    ),
    "in a project that names pytest": (
        {"test_sizes.py": CASE, "requirements.txt": "pytest\n"},
        "python3 -m pytest -q",
    ),
}


@pytest.mark.parametrize("form", UNITTEST)
def test_tests_that_need_only_python_are_run_without_pytest(form: str, tmp_path: Path) -> None:
    files, command = UNITTEST[form]
    (check,) = find_checks(write(tmp_path, files), PROGRAMS)
    assert (check.command, check.can_run) == (command, True)


def test_tests_in_the_folder_of_a_project_are_run_there(tmp_path: Path) -> None:
    project = {"api/pyproject.toml": PROJECT, "api/src/sizes/__init__.py": "", "api/tests/test_sizes.py": ""}
    root = write(tmp_path, {"README.md": "", **project})
    (check,) = find_checks(root, PROGRAMS)
    assert check.command == "cd api && python3 -m pytest -q"
    assert find_setup(root, [check.command]).setup == (
        "(cd api && python3 -m pip install --user --quiet --editable '.[test]' pytest)",
    )


ENVIRONMENTS: dict[str, tuple[dict[str, str], str]] = {
    "Make": ({"Makefile": "test:\n\t.venv/bin/python -m pytest\n"}, ".venv"),
    "Make, activated": ({"Makefile": "test:\n\t. ./venv/bin/activate && pytest\n"}, "venv"),
    "a variable of Make": ({"Makefile": "VENV ?= env\ntest:\n\t$(VENV)/bin/pytest\n"}, "env"),
    "a variable in another": (
        {"Makefile": "VENV := $(CURDIR)/.venv\nPY = ${VENV}/bin/python3\ntest:\n\t$(PY) -m pytest\n"},
        ".venv",
    ),
    "just": ({"justfile": "venv := '.venv'\ntest:\n  {{ venv }}/bin/pytest\n"}, ".venv"),
    "a script of npm": ({"package.json": '{"scripts": {"test": ".venv/bin/pytest"}}'}, ".venv"),
    "a script": ({"script/test": "#!/bin/sh\nVENV=.venv\nexec $VENV/bin/python -m pytest\n"}, ".venv"),
    "the Makefile makes it": (
        {"Makefile": "test: .venv\n\t.venv/bin/pytest\n.venv:\n\tpython3 -m venv .venv\n"},
        ".venv",
    ),
    "none": ({"Makefile": "test:\n\tpython3 -m pytest\n"}, ""),
    "somebody's own": ({"Makefile": "test:\n\t/opt/venv/bin/python -m pytest\n"}, ""),
    "the system's": ({"Makefile": "test:\n\t/usr/bin/python3 -m pytest\n"}, ""),
}


@pytest.mark.parametrize("form", ENVIRONMENTS)
def test_the_setup_makes_the_environment_whose_python_the_checks_start(form: str, tmp_path: Path) -> None:
    files, folder = ENVIRONMENTS[form]
    root = write(tmp_path, {"pyproject.toml": PROJECT, "src/sizes/__init__.py": "", **files})
    lines = find_setup(root, [each.command for each in find_checks(root, PROGRAMS) if each.purpose == "test"]).setup
    python = [line for line in lines if " pip " in line and ".[test]" in line]
    if folder:
        assert python == [
            f"python3 -m venv {folder} && {folder}/bin/python -m pip install --quiet --editable '.[test]' pytest"
        ]
    else:
        assert python[0].startswith("python3 -m pip install --user --quiet --editable '.[test]'")


def test_what_runs_beside_the_environment_has_the_project_too(tmp_path: Path) -> None:
    makefile = {"Makefile": "test:\n\t.venv/bin/python -m pytest\n"}
    root = write(tmp_path, {"pyproject.toml": PROJECT + "[tool.mypy]\n", "src/sizes/__init__.py": "", **makefile})
    commands = [each.command for each in find_checks(root, PROGRAMS)]
    assert commands == ["make test", "python3 -m mypy ."]
    inside, outside = find_setup(root, commands).setup
    assert inside.startswith("python3 -m venv .venv && .venv/bin/python -m pip install --quiet --editable '.[test]'")
    assert outside.startswith("python3 -m pip install --user --quiet --editable '.[test]'")
    assert "mypy" in outside


def test_poetry_takes_the_environment_in_the_folder_of_the_project(tmp_path: Path) -> None:
    makefile = {"Makefile": "test:\n\t.venv/bin/pytest\n"}
    root = write(tmp_path, {"pyproject.toml": "[tool.poetry]\n", "poetry.lock": 'name = "pytest"\n', **makefile})
    (line,) = find_setup(root, ["make test"]).setup
    assert line.endswith("python3 -m venv .venv && poetry install --quiet")
