"""Find a repository's checks, and what a job needs before they can run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepflow.cli.layouts.files import RepositoryFiles
from stepflow.cli.layouts.python import pip_setup, program_of, tools_setup
from stepflow.cli.layouts.table import LAYOUTS, UNKNOWN, ProjectLayout
from stepflow.domain.proof import TESTS_PLACEHOLDER
from stepflow.sandbox.host_git import ask_git


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
