"""Finds a repository's checks, and what a job needs before they can run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.cli.layouts.files import RepositoryFiles
from stepflow.cli.layouts.layout import ProjectLayout, program_of
from stepflow.cli.layouts.python import PIP, tools_setup
from stepflow.cli.layouts.runners import running_text
from stepflow.cli.layouts.table import LAYOUTS, UNKNOWN
from stepflow.domain.proof import TESTS_PLACEHOLDER
from stepflow.sandbox.host_git import ask_git

#: What a check is for if it runs the project's tests.
TEST = "test"


@dataclass(frozen=True, kw_only=True)
class DetectedCheck:
    """A command and the file in which it was found."""

    command: str
    source: str
    #: What it checks, such as `test`.
    purpose: str
    #: Whether the tools would find its program on this machine.
    is_here: bool
    #: Whether a job can have its program: the image has it, or the setup installs it.
    is_installed: bool

    @property
    def can_run(self) -> bool:
        """Return whether there is a place where the check can run."""
        return self.is_here or self.is_installed


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a job needs before its checks can run. `apt_packages` and `setup` are the inputs with these names,
    `checkout` the inputs of `actions/checkout`, and `unknown` the sentences about what the files do not tell."""

    apt_packages: str = ""
    setup: tuple[str, ...] = ()
    checkout: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Project:
    """A folder with a project: the repository's root, or a folder right below it."""

    folder: str
    files: RepositoryFiles
    #: The file that gives a layout away → the layout.
    layouts: tuple[tuple[str, ProjectLayout], ...]

    def find_checks(self, path: str) -> tuple[DetectedCheck, ...]:
        """Return the best check for each purpose: the first that can run."""
        best = dict[str, DetectedCheck]()
        for source, layout in self.layouts:
            for purpose, command in layout.find_checks(self.files).items():
                program = program_of(command)
                is_here = shutil.which(program, path=path) is not None or (self.files.root / program).is_file()
                found = DetectedCheck(
                    command=self.enter(command),
                    source=f"{self.folder}/{source}" if self.folder else source,
                    purpose=purpose,
                    is_here=is_here,
                    is_installed=layout.is_installed,
                )
                if purpose not in best or (found.can_run and not best[purpose].can_run):
                    best[purpose] = found
        return tuple(best.values())

    def enter(self, command: str) -> str:
        """Return the command as it is at the repository's root."""
        return f"cd {shlex.quote(self.folder)} && {command}" if self.folder else command

    def find_setup(self, commands: Sequence[str]) -> tuple[tuple[str, ProjectLayout], ...]:
        """Return the layouts that are installed for these commands."""
        text = self.text(commands)
        needed = [layout for _, layout in self.layouts if layout.is_used(text)]
        served = {layout.language for layout in needed}
        for _, layout in self.layouts:
            if layout.language not in served and not layout.is_runner:
                needed.append(layout)
                served.add(layout.language)
        return tuple((name, layout) for name, layout in self.layouts if layout in needed)

    def text(self, commands: Sequence[str]) -> str:
        """Return all that these commands run, as far as files tell."""
        text = running_text(self.files, commands)
        # What runs inside an environment needs nothing beside it.
        return re.sub(r"\b(uv|poetry|pdm|pipenv|hatch) run(?: -\S+(?: [^-\s]\S*)?)* +\S+", r"\1", text)


def _projects(root: Path) -> Iterator[_Project]:
    """Yield the project at the root; if nothing there says how it is tested, those right below it, too."""
    files = RepositoryFiles(root, _top(root))
    whole = _project("", files)
    purposes = {purpose for _, layout in whole.layouts for purpose in layout.find_checks(files)}
    yield whole
    if TEST in purposes:
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
        inner = RepositoryFiles(folder, files.top or root)
        project = _project(folder.name, inner)
        marked = [(name, layout) for name, layout in project.layouts if "/" not in name and layout.language != "script"]
        if any(inner.find(*_MANIFESTS)) and folder.name not in ("node_modules", "vendor") and marked:
            yield project


#: Files that make a folder a project of its own.
_MANIFESTS = (
    *("pyproject.toml", "setup.py", "requirements.txt", "package.json", "go.mod", "Cargo.toml", "pom.xml", "gradlew"),
    *("Gemfile", "composer.json", "mix.exs", "Makefile", "makefile", "GNUmakefile", "justfile", "deno.json"),
)


def _top(root: Path) -> Path | None:
    """Return the root of the repository around a folder."""
    above = ask_git(root, "rev-parse", "--show-cdup", may_fail=True)
    return (root / above).resolve() if above else None


def _project(folder: str, files: RepositoryFiles) -> _Project:
    found = ((layout.applies(files), layout) for layout in LAYOUTS)
    layouts = tuple((name, layout) for name, layout in found if name and not _is_of_another(files, name))
    return _Project(folder=folder, files=files, layouts=layouts)


def _is_of_another(files: RepositoryFiles, name: str) -> bool:
    """Return whether a file is in a folder that is a project of its own, which its tests alone do not make it."""
    folder, is_below, _ = name.partition("/")
    own = folder != ".." and not re.match(r"tests?$|spec$|requirements", folder)
    return bool(is_below) and own and bool(files.find(*(f"{folder}/{manifest}" for manifest in _MANIFESTS)))


def find_checks(root: Path, programs: Sequence[Path]) -> tuple[DetectedCheck, ...]:
    """Return every check, but only one for each purpose and project. `programs` are the folders in which the tools look
    for programs."""
    path = ":".join(map(str, programs))
    return tuple(check for project in _projects(root) for check in project.find_checks(path))


#: Commands of test runners that take the names of files.
_TAKES_FILES = re.compile(r"(?!cd ).*\b(?:pytest|rspec|deno test)(?: -\S+)*", re.DOTALL)


def find_proof_command(root: Path, programs: Sequence[Path]) -> str:
    """Return the command that runs the tests of a change: the check for tests, with the changed test files if its
    runner takes files. Empty if no file says how the repository is tested."""
    tests = (check.command for check in find_checks(root, programs) if check.purpose == TEST)
    command = next(tests, "")
    return f"{command} {TESTS_PLACEHOLDER}" if _TAKES_FILES.fullmatch(command) else command


def find_setup(root: Path, commands: Sequence[str]) -> Setup:
    """Return what the repository and these commands need in addition to the image."""
    lines, debian, unknown = list[str](), list[str](), list[str]()
    projects = [*_projects(root)]
    inner = tuple(project.enter("") for project in projects if project.folder)
    for project in projects:
        entered = (project.enter(""),) if project.folder else ()
        own = [each for each in commands if (each.startswith(entered) if entered else not each.startswith(inner))]
        if project.folder and not own:
            continue
        layouts = project.find_setup(own)
        for _, layout in layouts:
            debian += layout.debian.split()
            setup = layout.find_setup(project.files, project.text(own))
            lines += (f"({project.enter(line)})" if project.folder else line for line in setup)
        if not any(layout is PIP for _, layout in layouts):
            lines += tools_setup(own)
        unknown += _unknown(project, layouts)
    repository = RepositoryFiles(root, _top(root))
    if not commands and not unknown:
        unknown += _untested(_project("", repository))
    return Setup(
        apt_packages=" ".join(dict.fromkeys(debian)),
        setup=tuple(dict.fromkeys(lines)),
        checkout=tuple(_find_checkout(repository)),
        unknown=tuple(unknown),
    )


def _find_checkout(repository: RepositoryFiles) -> Iterator[str]:
    """Git reads which files Git LFS keeps, and only those that are tracked count."""
    repository = replace(repository, root=repository.top or repository.root)
    if repository.find(".gitmodules"):
        yield "submodules: recursive"
    attributes = ask_git(repository.root, "ls-files", "-z", "--", ":(glob)**/.gitattributes", may_fail=True)
    if any("filter=lfs" in repository.text(name) for name in attributes.split("\0") if name):
        yield "lfs: true"


def _unknown(project: _Project, layouts: Sequence[tuple[str, ProjectLayout]]) -> Iterator[str]:
    """Yield what the files do not tell, and which of them could not be read."""
    for name, fault in dict.fromkeys(project.files.faults.items()):
        yield f"Not read: {name} {fault}."
    missing = [project.files.find(name) for name in UNKNOWN]
    missing += [name for name, layout in layouts if not layout.is_installed]
    for name in dict.fromkeys(filter(None, missing)):
        if name.startswith(("build.gradle", "settings.gradle")):
            yield f"Not known: which Gradle {name} needs, since the repository has no `gradlew`."
        else:
            yield f"Not known: how to install what {name} asks for."


def _untested(project: _Project) -> Iterator[str]:
    names = ", ".join(dict.fromkeys(name for name, layout in project.layouts))
    if not names:
        yield "Not known: how this repository is installed and tested; no file at its root says so."
    elif not any(TEST in layout.find_checks(project.files) for _, layout in project.layouts):
        yield f"Not known: how this repository is tested; {names} does not say so."
