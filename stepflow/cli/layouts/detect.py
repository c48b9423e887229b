"""Finds a repository's checks, and what a job needs before they can run, by one table of layouts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stepflow.cli.layouts.ecosystems import (
    NPM_INSTALL,
    PIP_INSTALL,
    Check,
    RepositoryFiles,
    locked_checks,
    make_checks,
    node_checks,
    npm_setup,
    pdm_setup,
    pip_checks,
    pip_setup,
    pnpm_setup,
    poetry_setup,
    program_of,
    tools_setup,
    uses_tox,
    uv_checks,
    uv_setup,
    yarn_setup,
)
from stepflow.domain.proof import TESTS_PLACEHOLDER
from stepflow.sandbox.host_git import ask_git


def _cargo_locked(repository: RepositoryFiles) -> str:
    return " --locked" if repository.find("Cargo.lock") else ""


def _maven(repository: RepositoryFiles) -> str:
    return f"{'./mvnw' if repository.find('mvnw') else 'mvn'} --batch-mode --quiet"


_GRADLE = "./gradlew --no-daemon --quiet"


def _bundler_checks(repository: RepositoryFiles) -> Iterator[Check]:
    locked = repository.text("Gemfile.lock")
    if repository.find(".rspec") or (repository.root / "spec").is_dir():
        yield "test", "bundle exec rspec"
    elif repository.find("Rakefile"):
        yield "test", "bundle exec rake"
    if re.search(r"^ +rubocop \(", locked, re.M):
        yield "lint", "bundle exec rubocop"


@dataclass(frozen=True, kw_only=True)
class ProjectLayout:
    """One way to keep and install what a project needs, known by a file. `setup` gets the commands of the checks too.
    `debian` names the packages of a toolchain that the image lacks."""

    files: tuple[str, ...]
    #: Of the layouts of one language only the first counts.
    language: str
    checks: Callable[[RepositoryFiles], Iterable[Check]] = lambda _repository: ()
    setup: Callable[[RepositoryFiles, Sequence[str]], Iterable[str]] = lambda _repository, _commands: ()
    debian: Callable[[RepositoryFiles], str] = lambda _repository: ""
    applies: Callable[[RepositoryFiles], bool] = lambda _repository: True


def _always(*lines: str) -> Callable[[RepositoryFiles, Sequence[str]], Iterable[str]]:
    return lambda _repository, _commands: lines


def _alone(
    setup: Callable[[RepositoryFiles], Iterable[str]],
) -> Callable[[RepositoryFiles, Sequence[str]], Iterable[str]]:
    return lambda repository, _commands: setup(repository)


def _fixed_checks(**checks: str) -> Callable[[RepositoryFiles], Iterable[Check]]:
    return lambda _repository: checks.items()


#: In the order in which checks are taken, one for each purpose: the Makefile comes first, which is what people run.
LAYOUTS = (
    ProjectLayout(files=("Makefile",), language="make", checks=make_checks),
    ProjectLayout(
        files=(".pre-commit-config.yaml",),
        language="pre-commit",
        checks=_fixed_checks(lint="pre-commit run --all-files"),
        setup=_always(f"{PIP_INSTALL} pre-commit && pre-commit install-hooks"),
    ),
    ProjectLayout(
        files=("pnpm-lock.yaml",), language="node", checks=partial(node_checks, "pnpm"), setup=_alone(pnpm_setup)
    ),
    ProjectLayout(files=("yarn.lock",), language="node", checks=partial(node_checks, "yarn"), setup=_alone(yarn_setup)),
    ProjectLayout(
        files=("bun.lock", "bun.lockb"),
        language="node",
        checks=partial(node_checks, "bun"),
        setup=_always(f"{NPM_INSTALL} bun && bun install --frozen-lockfile"),
    ),
    ProjectLayout(
        files=("package.json",), language="node", checks=partial(node_checks, "npm"), setup=_alone(npm_setup)
    ),
    ProjectLayout(
        files=("tox.ini", "tox.toml"),
        language="python",
        applies=uses_tox,
        checks=_fixed_checks(test="tox run --skip-missing-interpreters true"),
        setup=_always(f"{PIP_INSTALL} tox && tox run --notest --skip-missing-interpreters true"),
    ),
    ProjectLayout(
        files=("uv.lock",),
        language="python",
        checks=uv_checks,
        setup=_alone(uv_setup),
    ),
    ProjectLayout(
        files=("poetry.lock",),
        language="python",
        checks=partial(locked_checks, "poetry run", "poetry.lock"),
        setup=_alone(poetry_setup),
    ),
    ProjectLayout(
        files=("pdm.lock",),
        language="python",
        checks=partial(locked_checks, "pdm run", "pdm.lock"),
        setup=_alone(pdm_setup),
    ),
    ProjectLayout(
        files=("pyproject.toml", "setup.py", "setup.cfg", "*requirements*.txt", "requirements/*.txt"),
        language="python",
        checks=pip_checks,
        setup=pip_setup,
    ),
    ProjectLayout(
        files=("deno.json", "deno.jsonc"),
        language="deno",
        checks=_fixed_checks(test="deno test", lint="deno lint"),
        setup=_always(f"{NPM_INSTALL} deno"),
    ),
    ProjectLayout(
        files=("go.mod",),
        language="go",
        checks=_fixed_checks(test="go test ./...", lint="go vet ./..."),
        setup=_alone(lambda repository: () if repository.find("vendor/modules.txt") else ("go mod download",)),
        debian=lambda _repository: "golang-go",
    ),
    ProjectLayout(
        files=("Cargo.toml",),
        language="rust",
        checks=lambda repository: [("test", f"cargo test --quiet{_cargo_locked(repository)}")],
        setup=_alone(lambda repository: [f"cargo fetch --quiet{_cargo_locked(repository)}"]),
        debian=lambda _repository: "cargo",
    ),
    ProjectLayout(
        files=("pom.xml",),
        language="java",
        checks=lambda repository: [("test", f"{_maven(repository)} test")],
        setup=_alone(lambda repository: [f"{_maven(repository)} test-compile"]),
        debian=lambda repository: f"default-jdk-headless{'' if repository.find('mvnw') else ' maven'}",
    ),
    ProjectLayout(
        files=("gradlew",),
        language="java",
        checks=_fixed_checks(test=f"{_GRADLE} test"),
        setup=_always(f"{_GRADLE} testClasses"),
        debian=lambda _repository: "default-jdk-headless",
    ),
    ProjectLayout(
        files=("Gemfile.lock", "Gemfile"),
        language="ruby",
        checks=_bundler_checks,
        # Without a path of its own, Bundler writes where only root may.
        setup=_always("bundle config set --global path ~/.local/share/bundle && bundle install --quiet"),
        debian=lambda _repository: "bundler ruby-dev build-essential",
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
        name = repository.find(*layout.files)
        if name and layout.language not in languages and layout.applies(repository):
            languages.add(layout.language)
            yield name, layout


def find_checks(root: Path, programs: Sequence[Path]) -> tuple[DetectedCheck, ...]:
    """Return every check, but only one for each purpose. `programs` are the folders in which the tools look for
    programs."""
    path = ":".join(map(str, programs))
    repository, detected = RepositoryFiles(root), dict[str, DetectedCheck]()
    for source, layout in find_layouts(repository):
        for purpose, command in layout.checks(repository):
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
    lines = [line for layout in layouts.values() for line in layout.setup(repository, commands)]
    if not any(layout.setup is pip_setup for layout in layouts.values()):
        lines += tools_setup(commands)
    debian = " ".join(layout.debian(repository) for layout in layouts.values()).split()
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
    tested = any("test" in dict(layout.checks(repository)) for layout in layouts.values())
    if layouts and not (tested or commands):
        named.append(f"how this repository is tested; {', '.join(layouts)} does not say so")
    yield from (f"Not known: {what}." for what in named)
