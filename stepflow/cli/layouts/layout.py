"""One way to keep a project: the files that give it away, what checks it, and what installs what the checks need."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stepflow.cli.layouts.files import RepositoryFiles

#: What a check is for, and its command.
Check = tuple[str, str]
PIP_INSTALL = "python3 -m pip install --user --quiet"
NPM_INSTALL = "npm install --global --prefix ~/.local"


@dataclass(frozen=True)
class ProjectLayout:
    """A layout is known by one of `files`. Of the layouts of one language, those are installed that a command needs, or
    else the first."""

    language: str
    files: str
    #: By purpose.
    checks: Mapping[str, str] | Callable[[RepositoryFiles], Iterable[Check]]
    #: Also gets the text of all that runs: the commands, and what they start from files such as a Makefile.
    setup: str | Callable[[RepositoryFiles, str], Iterable[str]] = ""
    #: The packages of a toolchain that the image lacks.
    debian: str = ""
    #: A pattern for what the setup installs, in the text of all that runs.
    runs: str = ""
    #: A manifest at the root for which a file above the root counts, too: a workspace has one lock file.
    manifest: str = ""
    #: Whether it only runs what others install: it is installed where a command needs it.
    is_runner: bool = False
    #: Whether the image, `setup` and Debian bring the program. Without them it must be on the machine.
    is_installed: bool = True

    def applies(self, repository: RepositoryFiles) -> str:
        """Return the file that gives the layout away; empty if the repository does not have it."""
        names = self.files.split()
        name = repository.find(*names)
        if not name and self.manifest and repository.find(self.manifest):
            name = repository.find_above(*names)
        return name

    def find_checks(self, repository: RepositoryFiles) -> Mapping[str, str]:
        """Return the checks by purpose."""
        return dict(self.checks(repository)) if callable(self.checks) else self.checks

    def find_setup(self, repository: RepositoryFiles, text: str) -> Iterable[str]:
        """Return the commands that install what the checks need."""
        return self.setup(repository, text) if callable(self.setup) else filter(None, (self.setup,))

    def is_used(self, text: str) -> bool:
        """Return whether what runs needs this layout's programs."""
        return bool(self.runs) and bool(re.search(rf"(?<![\w./-])(?:{self.runs})(?![\w-])", text))


def program_of(command: str) -> str:
    """Return the program that a command starts, or the module that Python runs if it does not come with Python."""
    command = re.sub(r"\A(?:cd \S+ && )?(?:[A-Z_]+=\S+ )*", "", command)
    module = (command.removeprefix("python3 -m ").split() or [""])[0]
    return "python3" if module in sys.stdlib_module_names and command.startswith("python3 -m ") else module
