"""The files at a repository's root, and what those of Python, npm, pnpm and Yarn projects say about their checks."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

MOST_BYTES = 1024 * 1024
#: What a check is for, and its command.
Check = tuple[str, str]


@dataclass(frozen=True)
class RepositoryFiles:
    """The files at the root, read once. A file that cannot be read is empty, and one that cannot be parsed has no
    keys."""

    root: Path
    _texts: dict[str, str] = field(default_factory=dict)

    def find(self, *patterns: str) -> str:
        """Return the first file that matches one of the patterns; empty without one."""
        return next((name for pattern in patterns for name in self.names(pattern)), "")

    def names(self, pattern: str) -> list[str]:
        """Return the files that match, by their paths relative to the root."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if path.is_file())

    def text(self, name: str) -> str:
        """Return the beginning of a file."""
        if name not in self._texts:
            try:
                with (self.root / name).open("rb") as stream:
                    self._texts[name] = stream.read(MOST_BYTES).decode("utf-8", "replace")
            except OSError:
                self._texts[name] = ""
        return self._texts[name]

    @cached_property
    def pyproject(self) -> Mapping[str, Any]:
        """What `pyproject.toml` says."""
        try:
            return tomllib.loads(self.text("pyproject.toml"))
        except tomllib.TOMLDecodeError:
            return {}

    @cached_property
    def package(self) -> Mapping[str, Any]:
        """What `package.json` says."""
        return self.json("package.json")

    def json(self, name: str) -> Mapping[str, Any]:
        """Return what a JSON file says."""
        try:
            value = json.loads(self.text(name))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @cached_property
    def setup_cfg(self) -> configparser.ConfigParser:
        """What `setup.cfg` says."""
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(self.text("setup.cfg"))
        except configparser.Error:
            return configparser.ConfigParser()
        return parser


def table_of(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the nested table; an empty one if there is none."""
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


_SCRIPTS = ("test", "lint", "typecheck", "type-check")
#: The text that `npm init` writes if there are no tests.
_NO_TESTS = "no test specified"
NPM_INSTALL = "npm install --global --prefix ~/.local"
#: How a package manager runs a script in each package that has it.
_IN_PACKAGES = {"npm": "npm run {} --workspaces --if-present", "pnpm": "pnpm --recursive --if-present run {}"}
#: The format of a lock file → the version of the package manager that reads and writes it.
_PNPM_OF_LOCK = {"5": "7", "6": "8"}
#: Yarn 4.18 refuses format 8 with `--immutable`, and 4.9.1 takes it.
_YARN_OF_LOCK = {"4": "2", "6": "3", "8": "4.9.1"}


def node_checks(program: str, repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the scripts of the root's `package.json`, or those of the packages of a workspace."""
    own = _scripts(repository.package)
    shared = [_scripts(repository.json(name)) for name in _member_manifests(repository)]
    for name in _SCRIPTS:
        purpose = name.replace("typecheck", "types").replace("type-check", "types")
        if name in own:
            yield purpose, f"{program} run {name}"
        elif program in _IN_PACKAGES and any(name in scripts for scripts in shared):
            yield purpose, _IN_PACKAGES[program].format(name)


def _scripts(package: Mapping[str, Any]) -> set[str]:
    scripts = table_of(package, "scripts")
    return {name for name in _SCRIPTS if isinstance(scripts.get(name), str) and _NO_TESTS not in scripts[name]}


def _member_manifests(repository: RepositoryFiles) -> list[str]:
    """Return the manifests of the packages in the repository, if it has a workspace."""
    if not (repository.package.get("workspaces") or repository.find("pnpm-workspace.yaml")):
        return []
    names = [*repository.names("*/package.json"), *repository.names("*/*/package.json")]
    return [name for name in names if "node_modules" not in name.split("/")]


def _manager(repository: RepositoryFiles, name: str) -> str:
    """Return the version that `packageManager` in `package.json` names, such as `9.1.0`."""
    match = re.match(rf"{name}@([0-9][^+\s]*)", str(repository.package.get("packageManager", "")))
    return match[1] if match else ""


def pnpm_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Install the pnpm that the repository names, or the one that reads its lock file."""
    format_ = re.search(r"^lockfileVersion: '?(\d+)", repository.text("pnpm-lock.yaml"), re.M)
    version = _manager(repository, "pnpm") or _PNPM_OF_LOCK.get(format_[1] if format_ else "", "")
    yield f"{NPM_INSTALL} {_versioned('pnpm', version)} && pnpm install --frozen-lockfile"


def yarn_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Yarn 2 and later is another package in npm's registry. One that is committed (`yarnPath`) takes over."""
    format_ = re.search(r"^__metadata:\s+version: (\d+)", repository.text("yarn.lock"), re.M)
    version = _manager(repository, "yarn")
    if format_ or version[:1] > "1":
        package = _versioned("@yarnpkg/cli-dist", version or _YARN_OF_LOCK.get(format_[1] if format_ else "", ""))
        yield f"{NPM_INSTALL} {package} && yarn install --immutable"
    else:
        yield f"{NPM_INSTALL} {_versioned('yarn', version)} && yarn install --frozen-lockfile"


def _versioned(package: str, version: str) -> str:
    return f"{package}@{version}" if version else package


def npm_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Without a lock file, npm must not leave one, which would make the tree dirty."""
    if repository.find("package-lock.json", "npm-shrinkwrap.json"):
        yield "npm ci"
    elif any(repository.package.get(key) for key in ("dependencies", "devDependencies", "workspaces")):
        yield "npm install --no-package-lock"


_TARGETS = re.compile(r"^(test|lint|check)[ \t]*::?(?!=)", re.M)


def make_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the targets of a Makefile that check something."""
    return ((name, f"make {name}") for name in dict.fromkeys(_TARGETS.findall(repository.text("Makefile"))))


PIP_INSTALL = "python3 -m pip install --user --quiet"
#: Extras, groups and requirement files with these names hold what the checks need.
_FOR_CHECKS = frozenset(
    ("test", "tests", "testing", "dev", "develop", "development", "lint", "linting", "typing", "types", "check", "ci")
)
_BASE = frozenset(("base", "main", "requirements", "txt"))
_TOOLS = ("pytest", "ruff", "mypy")


def _python_tools(repository: RepositoryFiles) -> Iterator[tuple[str, str, str]]:
    """Yield the tools that the repository is configured for: what each is for, its name, and its arguments."""
    tools = table_of(repository.pyproject, "tool")
    tested = "pytest" in tools or repository.setup_cfg.has_section("tool:pytest") or repository.find("pytest.ini")
    if tested or (repository.root / "tests").is_dir() or repository.find("test_*.py"):
        yield "test", "pytest", "-q"
    if "ruff" in tools or repository.find("ruff.toml", ".ruff.toml"):
        yield "lint", "ruff", "check ."
    if "mypy" in tools or repository.setup_cfg.has_section("mypy") or repository.find("mypy.ini", ".mypy.ini"):
        named = {"files", "packages", "modules"} & table_of(tools, "mypy").keys()
        yield "types", "mypy", "" if named else "."


def pip_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """`python3 -m` finds what is in the repository and what pip installed, whatever else stands on the path."""
    for purpose, tool, arguments in _python_tools(repository):
        program = tool if tool == "ruff" else f"python3 -m {tool}"
        yield purpose, f"{program} {arguments}".strip()


def locked_checks(runner: str, lock: str, repository: RepositoryFiles) -> Iterator[Check]:
    """Run the tools that the lock file has in the project's environment. Ruff needs none."""
    for purpose, tool, arguments in _python_tools(repository):
        if f'name = "{tool}"' in repository.text(lock):
            yield purpose, f"{runner} {tool} {arguments}".strip()
        elif tool == "ruff":
            yield purpose, f"{tool} {arguments}"


def named_tools(repository: RepositoryFiles, commands: Iterable[str]) -> list[str]:
    """Return the tools that the commands run, or that the Makefile mentions if one of them is `make`."""
    commands = list(commands)
    uses_make = any(program_of(command) == "make" for command in commands)
    text = "\n".join((*commands, *((repository.text("Makefile"),) if uses_make else ())))
    return [tool for tool in _TOOLS if re.search(rf"(?<![\w./-]){tool}(?![\w./-])", text)]


def program_of(command: str) -> str:
    """Return the program that a command starts, or the module that Python runs."""
    return (command.removeprefix("python3 -m ").split() or [""])[0]


def tools_setup(commands: Iterable[str]) -> Iterator[str]:
    """Install the tools that these commands run outside the project's environment."""
    programs = {program_of(command) for command in commands}
    if tools := [tool for tool in _TOOLS if tool in programs]:
        yield f"{PIP_INSTALL} {' '.join(tools)}"


def pip_setup(repository: RepositoryFiles, commands: Sequence[str]) -> Iterator[str]:
    """Requirement files come first and on a line of their own, because pip takes files with hashes only alone."""
    if required := [f"--requirement {name}" for name in _requirement_files(repository)]:
        yield f"{PIP_INSTALL} {' '.join(required)}"
    project = _project(repository)
    if words := [*project, *named_tools(repository, commands)]:
        yield f"{PIP_INSTALL} {' '.join(words)}"


def _project(repository: RepositoryFiles) -> Iterator[str]:
    """Install the project as editable, so that checks see what the agent changes."""
    extras = [*_extras(repository)]
    if repository.pyproject.keys() & {"project", "build-system"} or repository.find("setup.py", "setup.cfg"):
        yield f"--editable '.[{','.join(extras)}]'" if extras else "--editable ."
    yield from (f"--group {name}" for name in _groups(repository))


def _extras(repository: RepositoryFiles) -> Iterator[str]:
    declared = dict.fromkeys(table_of(repository.pyproject, "project", "optional-dependencies"))
    if repository.setup_cfg.has_section("options.extras_require"):
        declared |= dict.fromkeys(repository.setup_cfg.options("options.extras_require"))
    declared |= dict.fromkeys(re.findall(r"""["'](\w+)["']\s*:\s*\[""", repository.text("setup.py")))
    return (name for name in declared if name.lower() in _FOR_CHECKS)


def _groups(repository: RepositoryFiles) -> Iterator[str]:
    return (name for name in table_of(repository.pyproject, "dependency-groups") if name.lower() in _FOR_CHECKS)


def _requirement_files(repository: RepositoryFiles) -> Iterator[str]:
    """Return `requirements.txt` and the files beside it for tests and development, such as `requirements/test.txt`."""
    names = ("*requirements*.txt", "requirements/*.txt")
    for name in dict.fromkeys(name for pattern in names for name in repository.names(pattern)):
        if {*re.split(r"[-_/.]", name.lower())} <= _FOR_CHECKS | _BASE:
            yield name


def uv_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Name the extras and groups in each command, so that it also works before the first sync."""
    return locked_checks(" ".join(("uv run --locked", *_uv_flags(repository))), "uv.lock", repository)


def uv_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Sync what uv.lock locks, with what the checks need."""
    members = ["--all-packages"] if table_of(repository.pyproject, "tool", "uv", "workspace") else []
    yield f"{PIP_INSTALL} uv && {' '.join(('uv sync --locked --quiet', *members, *_uv_flags(repository)))}"


def _uv_flags(repository: RepositoryFiles) -> Iterator[str]:
    yield from (f"--extra {name}" for name in _extras(repository))
    # The group `dev` is there by default.
    usual = () if "default-groups" in table_of(repository.pyproject, "tool", "uv") else ("dev",)
    yield from (f"--group {name}" for name in _groups(repository) if name not in usual)


def poetry_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Install what poetry.lock locks, with what the checks need."""
    poetry = table_of(repository.pyproject, "tool", "poetry")
    extras = [*_extras(repository), *(name for name in table_of(poetry, "extras") if name in _FOR_CHECKS)]
    groups = [*(name for name in table_of(poetry, "group") if name in _FOR_CHECKS), *_groups(repository)]
    flags = (*(f"--extras {name}" for name in extras), *([f"--with {','.join(groups)}"] if groups else []))
    yield f"{PIP_INSTALL} poetry && {' '.join(('poetry install --quiet', *flags))}"


def pdm_setup(_repository: RepositoryFiles) -> Iterator[str]:
    """Install every group that pdm.lock locks."""
    # Without the bound pip takes hishel 2, with which pdm 2.29 does not start.
    yield f"{PIP_INSTALL} pdm 'hishel<2' && pdm sync --quiet --group :all"


def uses_tox(repository: RepositoryFiles) -> bool:
    """A Makefile with tests that does not start tox tests in another way, and `tox.ini` may hold settings of others."""
    configured = re.search(r"^\[(tox|testenv)\b", repository.text("tox.ini"), re.M) or repository.find("tox.toml")
    tests = "test" in dict(make_checks(repository))
    return bool(configured) and (not tests or "tox" in repository.text("Makefile"))
