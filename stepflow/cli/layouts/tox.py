"""What tox and nox are told: how the tests run, and what their environments install."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.layout import PIP_INSTALL, Check, ProjectLayout

#: The name of the environment that tox makes from `[testenv]` alone.
_BASE = "py"
#: Names of environments and sessions that run the tests.
TESTING = ("test", "tests", "unit", "unittest", "unit-tests", "unit_tests", "pytest")
#: A line for some environments only, such as `py311: tomli`.
_CONDITIONAL = re.compile(r"[\w{},.!-]+:(?:\s|$)")


@dataclass(frozen=True, kw_only=True)
class TestEnvironment:
    """What one environment installs and runs. `installs` are words for pip."""

    installs: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def tox_environments(repository: RepositoryFiles) -> Mapping[str, TestEnvironment]:
    """Return tox's environments by their names, wherever they are configured."""
    native = table_of(repository.pyproject, "tool", "tox")
    legacy = native.get("legacy_tox_ini")
    sections: dict[str, Mapping[str, Any]] = {}
    for name, text in (
        ("tox.ini", repository.text("tox.ini")),
        ("setup.cfg", repository.text("setup.cfg") if repository.setup_cfg.has_section("tox:tox") else ""),
        ("pyproject.toml", legacy if isinstance(legacy, str) else ""),
    ):
        ini = repository.parse_ini(name, text)
        for section in ini.sections():
            if section == "testenv" or section.startswith("testenv:"):
                lines = {key: value.strip().split("\n") for key, value in ini.items(section)}
                sections.setdefault(section.removeprefix("testenv").removeprefix(":") or _BASE, lines)
    for toml in (native, repository.toml("tox.toml")):
        if base := table_of(toml, "env_run_base"):
            sections.setdefault(_BASE, base)
        for name, environment in table_of(toml, "env").items():
            if isinstance(environment, dict):
                sections.setdefault(name, environment)
    return {name: _tox_environment(section) for name, section in sections.items()}


def _tox_environment(section: Mapping[str, Any]) -> TestEnvironment:
    return TestEnvironment(
        installs=tuple(word for line in _lines(section, "deps") for word in _requirement(line)),
        extras=tuple(re.split(r"[\s,]+", ",".join(_lines(section, "extras")))),
        groups=tuple(re.split(r"[\s,]+", ",".join(_lines(section, "dependency_groups")))),
        commands=tuple(_lines(section, "commands")),
    )


def _lines(section: Mapping[str, Any], key: str) -> Iterator[str]:
    value = section.get(key, [])
    for line in value if isinstance(value, list) else []:
        text = " ".join(map(str, line)) if isinstance(line, list) else str(line)
        text = re.sub(r"\{(?:toxinidir|tox_root)\}/?", "", re.sub(r"(?:^|\s)#.*", "", text)).strip()
        if text and not _CONDITIONAL.match(text):
            yield text


def _requirement(line: str) -> Iterator[str]:
    if file := re.fullmatch(r"(?:-r|--requirement)[ =]?\s*(\S+)", line):
        yield f"--requirement {file[1]}"
    elif "{" not in line and not line.startswith("-"):
        yield line


def tests_of(environments: Mapping[str, TestEnvironment]) -> Mapping[str, TestEnvironment]:
    """Return those that run tests, the best first."""
    names = (_BASE, *TESTING, *(name for name in environments if re.match(r"py\d*$", name)))
    return {name: environments[name] for name in names if name in environments}


def tox_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the environment that runs the tests with the Python that is there. One that runs nothing would pass."""
    testing = tests_of(tox_environments(repository))
    if name := next((name for name, environment in testing.items() if environment.commands), ""):
        yield "test", f"tox run -e {name}"
    elif any(repository.find("tox.ini", "tox.toml")) and re.search(r"^\[tox\b", repository.text("tox.ini"), re.M):
        yield "test", "tox run --skip-missing-interpreters true"


def tox_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Make the environment, so that a check only installs what changed."""
    command = dict(tox_checks(repository)).get("test")
    yield f"{PIP_INSTALL} tox" + (f" && {command} --notest" if command else "")


def nox_sessions(repository: RepositoryFiles) -> Mapping[str, TestEnvironment]:
    """Return nox's sessions by their names, read from the text of the noxfile."""
    try:
        tree = ast.parse(repository.text("noxfile.py"))
    except (SyntaxError, ValueError, RecursionError) as exc:
        repository.faults["noxfile.py"] = f"is not valid Python: {exc}"
        return {}
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list)
    return {name: _nox_session(function) for function in functions if (name := _session_name(function))}


def _session_name(function: ast.FunctionDef) -> str:
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if ast.unparse(call.func if call else decorator) in ("nox.session", "session", "nox_uv.session"):
            named = {each.arg: each.value for each in call.keywords} if call else {}
            name = named.get("name")
            return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else function.name
    return ""


def _nox_session(function: ast.FunctionDef) -> TestEnvironment:
    installs, extras, commands = list[str](), list[str](), list[str]()
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "run":
            commands.append(" ".join(words))
        if method == "install":
            files = [f"--requirement {file}" for flag, file in pairwise(words) if flag == "-r"]
            extras += [extra for word in words for extra in re.findall(r"[\w.-]+", _extras_of(word))]
            plain = (word for word in words if not word.startswith(("-", ".")) and f"--requirement {word}" not in files)
            installs += [*files, *plain]
    return TestEnvironment(installs=tuple(installs), extras=tuple(extras), commands=tuple(commands))


def _extras_of(word: str) -> str:
    match = re.fullmatch(r"(?:-e)?\.\[([^\]]*)\]", word)
    return match[1] if match else ""


def nox_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the session that runs the tests, with the Python that is there. Without one of the versions that a session
    names nox would skip it, and pass."""
    sessions = nox_sessions(repository)
    if name := next((name for name in TESTING if name in sessions), ""):
        yield "test", f"nox --session {name} --force-python python3 --reuse-venv yes"


def nox_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Make the session's environment."""
    command = dict(nox_checks(repository)).get("test")
    yield f"{PIP_INSTALL} nox" + (f" && {command} --install-only" if command else "")


def tests_elsewhere(repository: RepositoryFiles) -> Mapping[str, TestEnvironment]:
    """Return the environments and sessions that run the tests."""
    sessions = nox_sessions(repository)
    return {
        **tests_of(tox_environments(repository)),
        **{f"nox {name}": sessions[name] for name in TESTING if name in sessions},
    }


TOX = ProjectLayout(
    "tox", "tox.ini tox.toml pyproject.toml setup.cfg", tox_checks, tox_setup, runs="tox", is_runner=True
)
NOX = ProjectLayout("nox", "noxfile.py", nox_checks, nox_setup, runs="nox", is_runner=True)
