"""A small repository of a usual layout, with the line that breaks its tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.checkout import git

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCKS = Path(__file__).parents[1] / "locks"
IGNORED = "__pycache__/\n*.egg-info/\n.venv/\n.tox/\n.nox/\n.pdm-python\nnode_modules/\ntarget/\nbuild/\n.gradle/\n"


@dataclass(frozen=True, kw_only=True)
class SampleProject:
    """A repository, green once what it asks for is installed. `locks` are copied from the folder of its name below
    `locks/`, as the real tools wrote them; `checks` are what `init` finds."""

    name: str
    files: Mapping[str, str | bytes]
    checks: tuple[str, ...]
    #: A file, a text in it, and what to write in its place, so that a test fails.
    fault: tuple[str, str, str]
    locks: tuple[str, ...] = ()
    #: The folder that gets the agent.
    folder: str = ""
    #: Debian packages that stand for what the language's own registry would give.
    registry: str = ""
    #: What `init` says that it does not know.
    unknown: str = ""

    def write(self, root: Path) -> None:
        """Make the repository, with everything committed."""
        locks = {lock: (LOCKS / self.name / lock).read_bytes() for lock in self.locks}
        for name, content in {".gitignore": IGNORED, **self.files, **locks}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
        git("init", "--quiet", "--initial-branch=main", cwd=root)
        git("add", "--all", cwd=root)
        git("commit", "--quiet", "--message", "Begin", cwd=root)
