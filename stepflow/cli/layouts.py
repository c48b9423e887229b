"""Finds a repository's checks, and what a job needs before they can run, by one table: which file gives a kind of
project away, and how it is checked and installed."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from stepflow.domain.proof import TESTS_PLACEHOLDER
from stepflow.sandbox.host_git import ask_git

MOST_BYTES = 1024 * 1024
#: What a check is for, and its command.
Check = tuple[str, str]


@dataclass(frozen=True)
class RepositoryFiles:
    """The files at the root. A file that cannot be read is empty, and one that cannot be parsed has no keys."""

    root: Path

    def find(self, *patterns: str) -> str:
        """Return the first file that matches one of the patterns; empty without one."""
        return next((name for pattern in patterns for name in self.names(pattern)), "")

    def names(self, pattern: str) -> list[str]:
        """Return the files that match, by their paths relative to the root."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if path.is_file())

    def text(self, name: str) -> str:
        """Return the beginning of a file."""
        try:
            with (self.root / name).open("rb") as stream:
                return stream.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

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


def pnpm_setup(repository: RepositoryFiles, _commands: Sequence[str]) -> Iterator[str]:
    """Install the pnpm that the repository names, or the one that reads its lock file."""
    format_ = re.search(r"^lockfileVersion: '?(\d+)", repository.text("pnpm-lock.yaml"), re.M)
    version = _manager(repository, "pnpm") or _PNPM_OF_LOCK.get(format_[1] if format_ else "", "")
    yield f"{NPM_INSTALL} {'@'.join(filter(None, ('pnpm', version)))} && pnpm install --frozen-lockfile"


def yarn_setup(repository: RepositoryFiles, _commands: Sequence[str]) -> Iterator[str]:
    """Yarn 2 and later is another package in npm's registry. One that is committed (`yarnPath`) takes over."""
    format_ = re.search(r"^__metadata:\s+version: (\d+)", repository.text("yarn.lock"), re.M)
    version = _manager(repository, "yarn")
    if format_ or version[:1] > "1":
        wanted = version or _YARN_OF_LOCK.get(format_[1] if format_ else "", "")
        package = "@".join(filter(None, ("@yarnpkg/cli-dist", wanted)))
        yield f"{NPM_INSTALL} {package} && yarn install --immutable"
    else:
        yield f"{NPM_INSTALL} {'@'.join(filter(None, ('yarn', version)))} && yarn install --frozen-lockfile"


def npm_setup(repository: RepositoryFiles, _commands: Sequence[str]) -> Iterator[str]:
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


def uv_setup(repository: RepositoryFiles, _commands: Sequence[str]) -> Iterator[str]:
    """Sync what uv.lock locks, with what the checks need."""
    members = ["--all-packages"] if table_of(repository.pyproject, "tool", "uv", "workspace") else []
    yield f"{PIP_INSTALL} uv && {' '.join(('uv sync --locked --quiet', *members, *_uv_flags(repository)))}"


def _uv_flags(repository: RepositoryFiles) -> Iterator[str]:
    yield from (f"--extra {name}" for name in _extras(repository))
    # The group `dev` is there by default.
    usual = () if "default-groups" in table_of(repository.pyproject, "tool", "uv") else ("dev",)
    yield from (f"--group {name}" for name in _groups(repository) if name not in usual)


def poetry_setup(repository: RepositoryFiles, _commands: Sequence[str]) -> Iterator[str]:
    """Install what poetry.lock locks, with what the checks need."""
    poetry = table_of(repository.pyproject, "tool", "poetry")
    extras = [*_extras(repository), *(name for name in table_of(poetry, "extras") if name in _FOR_CHECKS)]
    groups = [*(name for name in table_of(poetry, "group") if name in _FOR_CHECKS), *_groups(repository)]
    flags = (*(f"--extras {name}" for name in extras), *([f"--with {','.join(groups)}"] if groups else []))
    yield f"{PIP_INSTALL} poetry && {' '.join(('poetry install --quiet', *flags))}"


def uses_tox(repository: RepositoryFiles) -> bool:
    """A Makefile with tests that does not start tox tests in another way, and `tox.ini` may hold settings of others."""
    configured = re.search(r"^\[(tox|testenv)\b", repository.text("tox.ini"), re.M) or repository.find("tox.toml")
    tests = "test" in dict(make_checks(repository))
    return bool(configured) and (not tests or "tox" in repository.text("Makefile"))


def ruby_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield RSpec's tests or the Rakefile's, and RuboCop if it is locked."""
    if repository.find(".rspec") or (repository.root / "spec").is_dir():
        yield "test", "bundle exec rspec"
    elif repository.find("Rakefile"):
        yield "test", "bundle exec rake"
    if re.search(r"^ +rubocop \(", repository.text("Gemfile.lock"), re.M):
        yield "lint", "bundle exec rubocop"


@dataclass(frozen=True)
class ProjectLayout:
    """One way to keep and install what a project needs, known by one of `files`. Of the layouts of one language only
    the first counts."""

    language: str
    files: str
    #: By purpose.
    checks: Mapping[str, str] | Callable[[RepositoryFiles], Iterable[Check]]
    #: Gets the commands of the checks, too.
    setup: str | Callable[[RepositoryFiles, Sequence[str]], Iterable[str]] = ""
    #: The packages of a toolchain that the image lacks.
    debian: str = ""

    def applies(self, repository: RepositoryFiles) -> str:
        """Return the file that gives the layout away; empty if the repository does not have it."""
        name = repository.find(*self.files.split())
        return name if not name.startswith("tox.") or uses_tox(repository) else ""

    def find_checks(self, repository: RepositoryFiles) -> Mapping[str, str]:
        """Return the checks by purpose."""
        return dict(self.checks(repository)) if callable(self.checks) else self.checks

    def find_setup(self, repository: RepositoryFiles, commands: Sequence[str]) -> Iterable[str]:
        """Return the commands that install what the checks need."""
        return self.setup(repository, commands) if callable(self.setup) else filter(None, (self.setup,))


_TOX = "tox run --skip-missing-interpreters true"
_MAVEN = "--batch-mode --quiet"
_JDK = "default-jdk-headless"
#: In the order in which checks are taken, one for each purpose: the Makefile comes first, which is what people run.
LAYOUTS = (
    ProjectLayout("make", "Makefile", make_checks),
    ProjectLayout(
        "pre-commit",
        ".pre-commit-config.yaml",
        {"lint": "pre-commit run --all-files"},
        f"{PIP_INSTALL} pre-commit && pre-commit install-hooks",
    ),
    ProjectLayout("node", "pnpm-lock.yaml", partial(node_checks, "pnpm"), pnpm_setup),
    ProjectLayout("node", "yarn.lock", partial(node_checks, "yarn"), yarn_setup),
    ProjectLayout(
        "node",
        "bun.lock bun.lockb",
        partial(node_checks, "bun"),
        f"{NPM_INSTALL} bun && bun install --frozen-lockfile",
    ),
    ProjectLayout("node", "package.json", partial(node_checks, "npm"), npm_setup),
    ProjectLayout("python", "tox.ini tox.toml", {"test": _TOX}, f"{PIP_INSTALL} tox && {_TOX} --notest"),
    ProjectLayout("python", "uv.lock", uv_checks, uv_setup),
    ProjectLayout("python", "poetry.lock", partial(locked_checks, "poetry run", "poetry.lock"), poetry_setup),
    ProjectLayout(
        "python",
        "pdm.lock",
        partial(locked_checks, "pdm run", "pdm.lock"),
        # Without the bound pip takes hishel 2, with which pdm 2.29 does not start.
        f"{PIP_INSTALL} pdm 'hishel<2' && pdm sync --quiet --group :all",
    ),
    ProjectLayout(
        "python", "pyproject.toml setup.py setup.cfg *requirements*.txt requirements/*.txt", pip_checks, pip_setup
    ),
    ProjectLayout("deno", "deno.json deno.jsonc", {"test": "deno test", "lint": "deno lint"}, f"{NPM_INSTALL} deno"),
    ProjectLayout(
        "go",
        "go.mod",
        {"test": "go test ./...", "lint": "go vet ./..."},
        lambda repository, _commands: () if repository.find("vendor/modules.txt") else ("go mod download",),
        "golang-go",
    ),
    ProjectLayout(
        "rust", "Cargo.lock", {"test": "cargo test --quiet --locked"}, "cargo fetch --quiet --locked", "cargo"
    ),
    ProjectLayout("rust", "Cargo.toml", {"test": "cargo test --quiet"}, "cargo fetch --quiet", "cargo"),
    ProjectLayout("java", "mvnw", {"test": f"./mvnw {_MAVEN} test"}, f"./mvnw {_MAVEN} test-compile", _JDK),
    ProjectLayout("java", "pom.xml", {"test": f"mvn {_MAVEN} test"}, f"mvn {_MAVEN} test-compile", f"{_JDK} maven"),
    ProjectLayout(
        "java",
        "gradlew",
        {"test": "./gradlew --no-daemon --quiet test"},
        "./gradlew --no-daemon --quiet testClasses",
        _JDK,
    ),
    ProjectLayout(
        "ruby",
        "Gemfile.lock Gemfile",
        ruby_checks,
        # Without a path of its own, Bundler writes where only root may.
        "bundle config set --global path ~/.local/share/bundle && bundle install --quiet",
        "bundler ruby-dev build-essential",
    ),
)
#: Files that tell what a project is made with, while nothing here knows how to install it.
UNKNOWN = (
    *("Pipfile", "environment.yml", "flake.nix", "composer.json", "mix.exs", "*.sln", "*.csproj", "CMakeLists.txt"),
    *("meson.build", "Package.swift", "pubspec.yaml", "build.sbt", "stack.yaml", "*.cabal", "rust-toolchain.toml"),
)


@dataclass(frozen=True, kw_only=True)
class DetectedCheck:
    """A command and the file in which it was found. `installed` is true if the tools would find its program on this
    machine."""

    command: str
    source: str
    installed: bool
    #: What it checks, such as `test`.
    purpose: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a job needs before its checks can run. `apt_packages` and `setup` are the inputs with these names,
    `checkout` the inputs of `actions/checkout`, and `unknown` the sentences about what the files do not tell."""

    apt_packages: str = ""
    setup: tuple[str, ...] = ()
    checkout: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def find_layouts(repository: RepositoryFiles) -> Iterator[tuple[str, ProjectLayout]]:
    """Yield the layouts that apply, each with the file that gives it away."""
    languages = set[str]()
    for layout in LAYOUTS:
        if layout.language not in languages and (name := layout.applies(repository)):
            languages.add(layout.language)
            yield name, layout


def find_checks(root: Path, programs: Sequence[Path]) -> tuple[DetectedCheck, ...]:
    """Return every check, but only one for each purpose. `programs` are the folders in which the tools look for
    programs."""
    path = ":".join(map(str, programs))
    repository, detected = RepositoryFiles(root), dict[str, DetectedCheck]()
    for source, layout in find_layouts(repository):
        for purpose, command in layout.find_checks(repository).items():
            if purpose not in detected:
                program = program_of(command)
                installed = shutil.which(program, path=path) is not None or (root / program).is_file()
                detected[purpose] = DetectedCheck(command=command, source=source, installed=installed, purpose=purpose)
    return tuple(detected.values())


#: Commands of test runners that take the names of files.
_TAKES_FILES = re.compile(r".*\b(?:pytest|rspec|deno test)(?: -\S+)*", re.DOTALL)


def find_proof_command(root: Path, programs: Sequence[Path]) -> str:
    """Return the command that runs the tests of a change: the check for tests, with the changed test files if its
    runner takes files. Empty if no file says how the repository is tested."""
    tests = (check.command for check in find_checks(root, programs) if check.purpose == "test")
    command = next(tests, "")
    return f"{command} {TESTS_PLACEHOLDER}" if _TAKES_FILES.fullmatch(command) else command


def find_setup(root: Path, commands: Sequence[str]) -> Setup:
    """Return what the repository and these commands need in addition to the image."""
    repository = RepositoryFiles(root)
    layouts = dict(find_layouts(repository))
    lines = [line for layout in layouts.values() for line in layout.find_setup(repository, commands)]
    if not any(layout.setup is pip_setup for layout in layouts.values()):
        lines += tools_setup(commands)
    debian = " ".join(layout.debian for layout in layouts.values()).split()
    return Setup(
        apt_packages=" ".join(dict.fromkeys(debian)),
        setup=tuple(lines),
        checkout=tuple(_find_checkout(repository)),
        unknown=tuple(_find_unknown(repository, layouts, commands)),
    )


def _find_checkout(repository: RepositoryFiles) -> Iterator[str]:
    """Git reads which files Git LFS keeps, and only those that are tracked count."""
    if repository.find(".gitmodules"):
        yield "submodules: recursive"
    attributes = ask_git(repository.root, "ls-files", "-z", "--", ":(glob)**/.gitattributes", may_fail=True)
    if any("filter=lfs" in repository.text(name) for name in attributes.split("\0") if name):
        yield "lfs: true"


def _find_unknown(
    repository: RepositoryFiles, layouts: Mapping[str, ProjectLayout], commands: Sequence[str]
) -> Iterator[str]:
    named = [f"how to install what {name} asks for" for name in filter(None, map(repository.find, UNKNOWN))]
    if (name := repository.find("build.gradle", "build.gradle.kts")) and not repository.find("gradlew"):
        named.append(f"which Gradle {name} needs, since the repository has no `gradlew`")
    if not (layouts or commands or named):
        named.append("how this repository is installed and tested; no file at its root says so")
    tested = any("test" in layout.find_checks(repository) for layout in layouts.values())
    if layouts and not (tested or commands):
        named.append(f"how this repository is tested; {', '.join(layouts)} does not say so")
    yield from (f"Not known: {what}." for what in named)
