"""One table of layouts: the file that gives one away, its checks, and what a job installs first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from stepflow.cli.layouts.files import Check, RepositoryFiles
from stepflow.cli.layouts.node import NPM_INSTALL, node_checks, npm_setup, pnpm_setup, yarn_setup
from stepflow.cli.layouts.python import (
    PIP_INSTALL,
    locked_checks,
    make_checks,
    pdm_setup,
    pip_checks,
    pip_setup,
    poetry_setup,
    uses_tox,
    uv_checks,
    uv_setup,
)


def _go_setup(repository: RepositoryFiles) -> Iterator[str]:
    if not repository.find("vendor/modules.txt"):
        yield "go mod download"


def _cargo_checks(repository: RepositoryFiles) -> Iterator[Check]:
    yield "test", f"cargo test --quiet{_locked(repository)}"


def _cargo_setup(repository: RepositoryFiles) -> Iterator[str]:
    yield f"cargo fetch --quiet{_locked(repository)}"


def _locked(repository: RepositoryFiles) -> str:
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


def _fixed(**checks: str) -> Callable[[RepositoryFiles], Iterable[Check]]:
    return lambda _repository: checks.items()


#: In the order in which checks are taken, one for each purpose: the Makefile comes first, which is what people run.
LAYOUTS = (
    ProjectLayout(files=("Makefile",), language="make", checks=make_checks),
    ProjectLayout(
        files=(".pre-commit-config.yaml",),
        language="pre-commit",
        checks=_fixed(lint="pre-commit run --all-files"),
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
        checks=_fixed(test="tox run --skip-missing-interpreters true"),
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
        checks=_fixed(test="deno test", lint="deno lint"),
        setup=_always(f"{NPM_INSTALL} deno"),
    ),
    ProjectLayout(
        files=("go.mod",),
        language="go",
        checks=_fixed(test="go test ./...", lint="go vet ./..."),
        setup=_alone(_go_setup),
        debian=lambda _repository: "golang-go",
    ),
    ProjectLayout(
        files=("Cargo.toml",),
        language="rust",
        checks=_cargo_checks,
        setup=_alone(_cargo_setup),
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
        checks=_fixed(test=f"{_GRADLE} test"),
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
