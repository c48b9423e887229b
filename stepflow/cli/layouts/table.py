"""Every layout that is known, in the order in which their checks are preferred."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.layout import NPM_INSTALL, PIP_INSTALL, Check, ProjectLayout
from stepflow.cli.layouts.node import NODE
from stepflow.cli.layouts.python import PYTHON
from stepflow.cli.layouts.runners import JUST, MAKE, TASK
from stepflow.cli.layouts.tox import NOX, TOX


def _deno_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """A task for tests has the permissions that they need."""
    tasks = table_of(repository.json(repository.find("deno.json", "deno.jsonc")), "tasks")
    yield "test", "deno task test" if "test" in tasks else "deno test"
    yield "lint", "deno lint"


def _go_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """At the root of a workspace, `./...` alone is none of its modules."""
    used = re.findall(r"^(?:use)?[ \t]+(\.[\w./-]*)", repository.text("go.work"), re.M)
    packages = " ".join(f"{name.rstrip('/')}/..." for name in used) or "./..."
    yield "test", f"go test {packages}"
    yield "lint", f"go vet {packages}"


def _go_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    if not repository.find("vendor/modules.txt"):
        yield "go mod download"


def _cargo(command: str, repository: RepositoryFiles) -> str:
    """Without `--workspace` a root package's tests alone run."""
    whole = " --workspace" if "workspace" in repository.toml("Cargo.toml") and command.startswith("test") else ""
    locked = " --locked" if repository.find("Cargo.lock") or repository.find_above("Cargo.lock") else ""
    return f"cargo {command} --quiet{whole}{locked}"


def _wrapper(name: str, repository: RepositoryFiles) -> str:
    """Return how to start a wrapper, which is not executable if it was committed on Windows."""
    return f"./{name}" if os.access(repository.root / name, os.X_OK) else f"sh {name}"


_MAVEN = "--batch-mode --quiet"
_GRADLE = "--no-daemon --quiet"


def _ruby_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield RSpec's tests or the Rakefile's, and RuboCop if it is locked."""
    bundled = "bundle exec " if repository.find("Gemfile") else ""
    rakefile = repository.text(repository.find("Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb"))
    if repository.find("bin/rails") and repository.find("test/**/*_test.rb"):
        yield "test", "bundle exec rails test"
    elif repository.find(".rspec", "spec/**/*_spec.rb"):
        yield "test", f"{bundled}rspec"
    elif re.search(r"TestTask|\btask\W+test\b", rakefile):
        yield "test", f"{bundled}rake test"
    elif rakefile:
        yield "test", f"{bundled}rake"
    elif repository.find("test/**/*_test.rb", "test/**/test_*.rb"):
        files = "Dir['./test/**/{*_test,test_*}.rb'].sort.each { |file| require file }"
        yield "test", f'{bundled}ruby -Ilib -Itest -e "{files}"'
    if re.search(r"^ +rubocop \(", repository.text("Gemfile.lock"), re.M):
        yield "lint", "bundle exec rubocop"


def _ruby_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Without a path of its own, Bundler writes where only root may."""
    if repository.find("Gemfile"):
        yield "bundle config set --global path ~/.local/share/bundle && bundle install --quiet"


def _php_checks(repository: RepositoryFiles) -> Iterator[Check]:
    composer = repository.json("composer.json")
    needed = table_of(composer, "require-dev").keys() | table_of(composer, "require").keys()
    if "test" in table_of(composer, "scripts"):
        yield "test", "composer test"
    elif "phpunit/phpunit" in needed:
        yield "test", "vendor/bin/phpunit"
    elif repository.find("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"):
        yield "test", "phpunit"


def _php_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    if repository.find("composer.json"):
        yield "composer install --no-interaction --quiet"


def _elixir_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Without dependencies, mix needs no package manager."""
    if re.search(r"^[ \t]+\{:", repository.text("mix.exs"), re.M):
        yield "mix local.hex --force && mix local.rebar --force && mix deps.get"


def _cmake_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Build in a folder of its own, so that nothing is left in the tree."""
    if re.search(r"\b(?:enable_testing|add_test|include\s*\(\s*CTest)", _cmake_text(repository), re.I):
        build = 'build=$(mktemp -d) && cmake -S . -B "$build" && cmake --build "$build"'
        yield "test", f'{build} && ctest --test-dir "$build" --output-on-failure --no-tests=error'


def _cmake_text(repository: RepositoryFiles) -> str:
    names = (*repository.names("CMakeLists.txt"), *repository.names("*/CMakeLists.txt"))
    return "\n".join(map(repository.text, names))


def _perl_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    if repository.find("cpanfile"):
        yield "cpanm --quiet --notest --local-lib ~/perl5 --installdeps ."


_SCRIPTS = (
    *("script/test", "script/cibuild", "bin/test", "scripts/test", "scripts/test.sh", "ci/test.sh"),
    *("test.sh", "tests.sh", "run_tests.sh", "run-tests.sh", "runtests.sh", "tests/run.sh", "test/run.sh"),
)


def _script_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the script that runs the tests."""
    if name := repository.find(*_SCRIPTS):
        yield "test", f"./{name}" if os.access(repository.root / name, os.X_OK) else f"bash {name}"


_JDK = "default-jdk-headless"


def _program(language: str, files: str, command: str) -> ProjectLayout:
    """A tool that none of the registries that the image reaches has: it counts where it is on the machine."""
    return ProjectLayout(language, files, {"test": command}, is_installed=False)


LAYOUTS = (
    # What people run.
    MAKE,
    JUST,
    TASK,
    ProjectLayout(
        "pre-commit",
        ".pre-commit-config.yaml .pre-commit-config.yml",
        {"lint": "pre-commit run --all-files"},
        f"{PIP_INSTALL} pre-commit && pre-commit install-hooks",
        runs="pre-commit",
        is_runner=True,
    ),
    NODE,
    *PYTHON,
    TOX,
    NOX,
    ProjectLayout("deno", "deno.json deno.jsonc deno.lock", _deno_checks, f"{NPM_INSTALL} deno"),
    ProjectLayout("go", "go.work go.mod", _go_checks, _go_setup, "golang-go"),
    ProjectLayout(
        "rust",
        "Cargo.toml",
        lambda repository: (("test", _cargo("test", repository)),),
        lambda repository, _text: (_cargo("fetch", repository),),
        "cargo",
    ),
    ProjectLayout(
        "java",
        "mvnw",
        lambda repository: (("test", f"{_wrapper('mvnw', repository)} {_MAVEN} test"),),
        lambda repository, _text: (f"{_wrapper('mvnw', repository)} {_MAVEN} test-compile",),
        _JDK,
    ),
    ProjectLayout("java", "pom.xml", {"test": f"mvn {_MAVEN} test"}, f"mvn {_MAVEN} test-compile", f"{_JDK} maven"),
    ProjectLayout(
        "java",
        "gradlew",
        lambda repository: (("test", f"{_wrapper('gradlew', repository)} {_GRADLE} test"),),
        lambda repository, _text: (f"{_wrapper('gradlew', repository)} {_GRADLE} testClasses",),
        _JDK,
    ),
    _program("java", "build.gradle build.gradle.kts settings.gradle settings.gradle.kts", f"gradle {_GRADLE} test"),
    ProjectLayout("ruby", "Gemfile.lock Gemfile", _ruby_checks, _ruby_setup, "bundler ruby-dev build-essential"),
    ProjectLayout("ruby", ".rspec spec/**/*_spec.rb", _ruby_checks, debian="ruby-rspec"),
    ProjectLayout(
        "ruby",
        "Rakefile rakefile Rakefile.rb rakefile.rb test/**/*_test.rb test/**/test_*.rb",
        _ruby_checks,
        debian="rake ruby-minitest",
    ),
    ProjectLayout("php", "composer.json", _php_checks, _php_setup, "composer php-cli php-mbstring php-xml unzip"),
    ProjectLayout("php", "phpunit.xml phpunit.xml.dist phpunit.dist.xml", _php_checks, debian="phpunit"),
    ProjectLayout("elixir", "mix.exs", {"test": "mix test"}, _elixir_setup, "elixir erlang-dev"),
    ProjectLayout("c", "CMakeLists.txt", _cmake_checks, debian="cmake g++ make"),
    ProjectLayout(
        "c",
        "meson.build",
        {"test": 'build=$(mktemp -d) && meson setup "$build" && meson test -C "$build" --print-errorlogs'},
        debian="meson ninja-build g++",
    ),
    ProjectLayout(
        "perl", "cpanfile Makefile.PL Build.PL t/*.t", {"test": "prove -lr t"}, _perl_setup, "perl cpanminus make"
    ),
    ProjectLayout(
        "bats", "test/*.bats tests/*.bats *.bats", lambda files: (("test", f"bats {_bats(files)}"),), debian="bats"
    ),
    _program("dotnet", "*.sln *.slnx *.csproj *.fsproj *.vbproj", "dotnet test"),
    _program("swift", "Package.swift", "swift test"),
    _program("dart", "pubspec.yaml", "dart test"),
    _program("scala", "build.sbt", "sbt test"),
    _program("haskell", "stack.yaml", "stack test"),
    _program("haskell", "*.cabal cabal.project", "cabal test all"),
    _program("bazel", "MODULE.bazel WORKSPACE", "bazel test //..."),
    _program("zig", "build.zig", "zig build test"),
    _program("nix", "flake.nix", "nix flake check"),
    ProjectLayout("script", " ".join(_SCRIPTS), _script_checks),
)


def _bats(repository: RepositoryFiles) -> str:
    name = repository.find("test/*.bats", "tests/*.bats")
    return f"--recursive {name.split('/')[0]}" if name else "."


#: Files that ask for something that nothing here installs.
UNKNOWN = ("environment.yml", "environment.yaml", "rust-toolchain.toml", "flake.nix")
