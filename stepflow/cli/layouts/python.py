"""Python projects: pip, and the tools that keep a lock file and an environment of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from stepflow.cli.layouts.environment import split_by_environment
from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.layout import PIP_INSTALL, Check, ProjectLayout, program_of
from stepflow.cli.layouts.python_needs import (
    FOR_CHECKS,
    extras,
    groups,
    other_packages,
    project_words,
    requirement_files,
)
from stepflow.cli.layouts.tox import tests_elsewhere

_TOOLS = ("pytest", "ruff", "mypy")
_TEST_FILES = (
    "test_*.py",
    "*_test.py",
    "test*/**/test_*.py",
    "test*/**/*_test.py",
    "src/**/test_*.py",
    "*/tests/test_*.py",
    "*/test_*.py",
)
#: Where a project says that it uses pytest.
_SAY_PYTEST = (
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "noxfile.py",
    "Pipfile",
    "pixi.toml",
)


def _python_tools(repository: RepositoryFiles) -> Iterator[tuple[str, str, str]]:
    """Yield the tools that the repository is configured for: what each is for, its name, and its arguments."""
    tools = table_of(repository.pyproject, "tool")
    configured = "pytest" in tools or repository.setup_cfg.has_section("tool:pytest") or repository.find("pytest.ini")
    tested = configured or repository.find(*_TEST_FILES)
    if tested and not _tests_otherwise(repository) and not _needs_only_unittest(repository):
        yield "test", "pytest", "-q"
    if "ruff" in tools or repository.find("ruff.toml", ".ruff.toml"):
        yield "lint", "ruff", "check ."
    if "mypy" in tools or repository.setup_cfg.has_section("mypy") or repository.find("mypy.ini", ".mypy.ini"):
        named = {"files", "packages", "modules"} & table_of(tools, "mypy").keys()
        yield "types", "mypy", "" if named else "."


def _tests_otherwise(repository: RepositoryFiles) -> bool:
    """Return whether tox, nox or Django run the tests, and pytest is named nowhere."""
    runs = any(environment.commands for environment in tests_elsewhere(repository).values())
    if not (runs or repository.find("manage.py")):
        return False
    return not _names_pytest(repository)


def _names_pytest(repository: RepositoryFiles) -> bool:
    names = (*_SAY_PYTEST, *requirement_files(repository))
    return any("pytest" in repository.text(name) for name in names)


def _needs_only_unittest(repository: RepositoryFiles) -> bool:
    """Return whether Python itself can run the tests: all are cases of unittest, `python3 -m unittest` finds them, and
    pytest is named nowhere."""
    tests = [*repository.names("test*.py")]
    tests += repository.names("tests/test*.py") if repository.find("tests/__init__.py") else []
    if not tests or {name for pattern in _TEST_FILES for name in repository.names(pattern)} - {*tests}:
        return False
    texts = [repository.text(name) for name in tests]
    return all(map(_UNITTEST.search, texts)) and not any(map(_PYTEST.search, texts)) and not _names_pytest(repository)


#: A case of unittest, and what only pytest finds or provides.
_UNITTEST = re.compile(r"^class \w+\([^)\n]*TestCase\b", re.MULTILINE)
_PYTEST = re.compile(r"\bpytest\b|^(?:async )?def test", re.MULTILINE)


def pip_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """`python3 -m` finds what is in the repository and what pip installed, whatever else stands on the path."""
    if repository.find("manage.py") and _tests_otherwise(repository):
        yield "test", "python3 manage.py test"
    # Without a way to install them, the packages below src are found by the path alone.
    words = [*project_words(repository)]
    bare = repository.find("src/*.py", "src/*/*.py") and not any(word.startswith("--editable") for word in words)
    source = "PYTHONPATH=src " if bare else ""
    if _needs_only_unittest(repository) and not _tests_otherwise(repository):
        yield "test", f"{source}python3 -m unittest"
    for purpose, tool, arguments in _python_tools(repository):
        program = tool if tool == "ruff" else f"python3 -m {tool}"
        path = source if tool == "pytest" else ""
        yield purpose, f"{path}{program} {arguments}".strip()


def pip_setup(repository: RepositoryFiles, text: str) -> Iterator[str]:
    """Install what the checks need where they start their Python: in an environment, or for the user."""
    folder, inside, outside = split_by_environment(text)
    if folder:
        create = f"python3 -m venv {folder}"
        pip = f"{folder}/bin/python -m pip install --quiet"
        lines = [*_pip_lines(repository, pip, inside)]
        yield " && ".join((create, *lines[:1]))
        yield from lines[1:]
    if not folder or _STARTS_PYTHON.search(outside):
        yield from _pip_lines(repository, PIP_INSTALL, outside)


#: A command that starts with Python; an environment is made by one, too, and needs nothing.
_STARTS_PYTHON = re.compile(r"^(?:python3?|pytest|mypy)\b(?! -m (?:venv|pip)\b)", re.MULTILINE)


def _pip_lines(repository: RepositoryFiles, pip: str, text: str) -> Iterator[str]:
    """Requirement files come first and on a line of their own, because pip takes files with hashes only alone."""
    if required := [f"--requirement {name}" for name in requirement_files(repository)]:
        yield f"{pip} {' '.join(required)}"
    if words := dict.fromkeys((*project_words(repository), *other_packages(repository), *named_tools(text))):
        yield f"{pip} {' '.join(words)}"


def named_tools(text: str) -> list[str]:
    """Return the tools that the text of all that runs names."""
    return [tool for tool in _TOOLS if re.search(rf"(?<![\w./-]){tool}(?![\w./-])", text)]


def tools_setup(commands: Iterable[str]) -> Iterator[str]:
    """Install the tools that these commands run outside the project's environment."""
    programs = {program_of(command) for command in commands}
    if tools := [tool for tool in _TOOLS if tool in programs]:
        yield f"{PIP_INSTALL} {' '.join(tools)}"


def locked_checks(runner: str, lock: str, repository: RepositoryFiles) -> Iterator[Check]:
    """Run the tools that the lock file has in the project's environment. Ruff needs none."""
    if _needs_only_unittest(repository):
        yield "test", f"{runner} python -m unittest"
    locked = repository.text(repository.find(lock) or repository.find_above(lock))
    for purpose, tool, arguments in _python_tools(repository):
        if f'name = "{tool}"' in locked:
            yield purpose, f"{runner} {tool} {arguments}".strip()
        elif tool == "ruff":
            yield purpose, f"{tool} {arguments}"


def uv_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Name the extras and groups in each command, so that it also works before the first sync."""
    return locked_checks(" ".join(("uv run --locked", *_uv_flags(repository))), "uv.lock", repository)


def uv_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Sync what uv.lock locks, with what the checks need."""
    members = ["--all-packages"] if table_of(repository.pyproject, "tool", "uv", "workspace") else []
    yield f"{PIP_INSTALL} uv && {' '.join(('uv sync --locked --quiet', *members, *_uv_flags(repository)))}"


def _uv_flags(repository: RepositoryFiles) -> Iterator[str]:
    yield from (f"--extra {name}" for name in extras(repository))
    # The group `dev` is there by default.
    usual = () if "default-groups" in table_of(repository.pyproject, "tool", "uv") else ("dev",)
    yield from (f"--group {name}" for name in groups(repository) if name not in usual)


def poetry_setup(repository: RepositoryFiles, text: str) -> Iterator[str]:
    """Install what poetry.lock locks, with what the checks need. Poetry takes the environment `.venv` if it is there,
    and keeps its own elsewhere."""
    poetry = table_of(repository.pyproject, "tool", "poetry")
    named = [*(name for name in table_of(poetry, "group") if name in FOR_CHECKS), *groups(repository)]
    flags = (*(f"--extras {name}" for name in extras(repository)), *([f"--with {','.join(named)}"] if named else []))
    folder, _, _ = split_by_environment(text)
    create = ["python3 -m venv .venv"] if folder == ".venv" else []
    yield " && ".join((f"{PIP_INSTALL} poetry", *create, " ".join(("poetry install --quiet", *flags))))


PIP = ProjectLayout(
    "python",
    "pyproject.toml setup.py setup.cfg *requirements*.txt requirements/*.txt Pipfile pixi.toml tox.ini noxfile.py "
    "pytest.ini " + " ".join(_TEST_FILES),
    pip_checks,
    pip_setup,
    runs="python3?|pytest|mypy",
)
PYTHON = (
    ProjectLayout("python", "uv.lock", uv_checks, uv_setup, runs="uv", manifest="pyproject.toml"),
    ProjectLayout(
        "python",
        "poetry.lock",
        partial(locked_checks, "poetry run", "poetry.lock"),
        poetry_setup,
        runs="poetry",
        manifest="pyproject.toml",
    ),
    ProjectLayout(
        "python",
        "pdm.lock",
        partial(locked_checks, "pdm run", "pdm.lock"),
        # Without the bound pip takes hishel 2, with which pdm 2.29 does not start.
        f"{PIP_INSTALL} pdm 'hishel<2' && pdm sync --quiet --group :all",
        runs="pdm",
        manifest="pyproject.toml",
    ),
    PIP,
)
