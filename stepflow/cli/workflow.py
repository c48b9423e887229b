"""The workflow that starts an agent: which one its template needs, where it stands, and what it installs first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Self

from stepflow.cli.layouts.find import Setup
from stepflow.cli.starts import started_together
from stepflow.definition.builtin import READ_ONLY
from stepflow.sandbox.host_git import ask_git

WORKFLOWS = ".github/workflows"
#: Starts any agent whose label is put on an issue.
WORKFLOW = f"{WORKFLOWS}/stepflow.yml"
#: How the step after the action's begins.
_AFTER_ACTION = "      - if: always()"
#: What the workflow's checkout always says, and what `init` tells about what it does not know.
_CREDENTIALS = "persist-credentials: false"
WHAT_TO_DO = "Write it here, as `apt-packages` or `setup`."
#: The conditions that let any agent start → those for one.
_ANY_AGENT = {
    "startsWith(github.event.label.name, 'agent:')": "github.event.label.name == 'agent:{}'",
    "startsWith(github.event.comment.body, '/stepflow')": "startsWith(github.event.comment.body, '/stepflow run {}')",
}


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """The workflow for an agent of a folder of a repository, whose root is `top`."""

    top: Path
    #: The folder, relative to the root; empty for the root itself.
    folder: str
    path: str
    text: str
    setup: Setup

    @classmethod
    def place(cls, root: Path, name: str, builtin: str, setup: Setup) -> Self:
        """Return the workflow for an agent below `root`. GitHub finds workflows at the repository's root only."""
        above = ask_git(root, "rev-parse", "--show-cdup", may_fail=True)
        top = (root / above).resolve() if above else root
        folder = "" if top == root else root.relative_to(top).as_posix()
        slug = "-".join((*re.findall(r"[a-z0-9]+", folder.lower()), name))
        path = f"{WORKFLOWS}/stepflow-{slug}.yml" if folder or builtin in READ_ONLY else WORKFLOW
        return cls(top=top, folder=folder, path=path, text=workflow_text(builtin, name, setup, folder), setup=setup)

    @property
    def file(self) -> Path:
        """Where it is written."""
        return self.top / self.path

    def rivals(self) -> Iterator[str]:
        """Yield what starts this workflow and another one of the repository, and how to prevent it."""
        files_there = sorted(self.file.parent.glob("*.y*ml"))
        texts = {f"{WORKFLOWS}/{file.name}": file.read_text("utf-8", "replace") for file in files_there}
        agents = {folder.name for folder in (self.top / ".agent").glob("*") if folder.is_dir()}
        yield from started_together(self.path, texts, agents)

    def missing(self) -> Iterator[str]:
        """Yield the lines that the existing workflow lacks of what the setup needs."""
        existing = self.file.read_text("utf-8", "replace") if self.file.is_file() else ""
        packages = self.setup.apt_packages.split()
        if any(package not in existing for package in packages) or any(
            line not in existing for line in self.setup.setup
        ):
            yield from _install_lines(self.setup)


def workflow_text(builtin: str = "fix", name: str = "", setup: Setup | None = None, folder: str = "") -> str:
    """Return the workflow that starts agents, with the setup that a job needs first."""
    template = f"{builtin}.yml" if builtin in READ_ONLY else "stepflow.yml"
    text = (files("stepflow.cli") / "templates" / template).read_text(encoding="utf-8")
    if builtin in READ_ONLY:
        text = text.replace("AGENT", name)
    if setup is None:
        return text
    if folder:
        for condition, narrow in _ANY_AGENT.items():
            text = text.replace(condition, narrow.format(name))
    text = text.replace(_CREDENTIALS, ", ".join((_CREDENTIALS, *setup.checkout)))
    before, next_step, after = text.partition(_AFTER_ACTION)
    lines = [*([f"working-directory: {folder}"] if folder else []), *_setup_lines(setup)]
    return before + "".join(f"          {line}\n" for line in lines) + next_step + after


def _setup_lines(setup: Setup) -> Iterator[str]:
    yield from (f"# {sentence} {WHAT_TO_DO}" for sentence in setup.unknown)
    yield from _install_lines(setup)


def _install_lines(setup: Setup) -> Iterator[str]:
    if setup.apt_packages:
        yield f"apt-packages: {setup.apt_packages}"
    if setup.setup:
        yield "setup: |"
        yield from (f"  {command}" for command in setup.setup)
