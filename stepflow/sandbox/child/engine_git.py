"""Git for the engine, on a folder of its own: it borrows the checkout's objects and files, and nothing else counts.

No hook, monitor, filter, alias, remote or setting of the checkout can have a say in it (security.md case 34).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .commands import HeadTail
from .footing import find_dot_git, pointed_to
from .git import git, said
from .paths import Refusal, below, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .family import Family, Sink

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(rb"refs/[^\0-\x20\x7f~^:?*\[\\]{1,1000}")
_LISTING_BYTES = 32 * 1024 * 1024
_SMALL_FILE = 4096
_PACKED_REFS = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where the checkout's repository lies: the work tree, the folder with HEAD, the one with branches and objects;
    and its history's `shallow` ends as they were when it was located."""

    top: str
    folder: str
    common: str
    shallow: bytes = b""

    @classmethod
    def locate(cls, checkout: str) -> Repository | None:
        """Looks as git does, without git and before any tool has run; None where there is no repository."""
        dot_git = find_dot_git(checkout)
        if dot_git is None:
            return None
        is_file = stat.S_ISREG(os.lstat(dot_git).st_mode)
        folder = pointed_to(dot_git, os.path.dirname(dot_git)) if is_file else dot_git
        common = pointed_to(os.path.join(folder, "commondir"), folder)
        return cls(
            top=os.path.dirname(dot_git), folder=folder, common=common, shallow=_small(common, b"shallow", _PACKED_REFS)
        )

    @property
    def objects(self) -> str:
        """The folder that holds its objects."""
        return os.path.join(self.common, "objects")

    def head(self) -> str:
        """The commit that HEAD stands on, read without git and without following a link. Raises `Refusal`."""
        said_by_head = _small(self.folder, b"HEAD", _SMALL_FILE).strip()
        name = said_by_head.removeprefix(b"ref: ")
        if name != said_by_head:
            found = self._branch(name) if _REF.fullmatch(name) and b".." not in name else b""
        else:
            found = said_by_head
        commit = found.decode("ascii", "replace")
        if not COMMIT.fullmatch(commit):
            raise Refusal("there is no commit yet")
        return commit

    def _branch(self, name: bytes) -> bytes:
        if loose := _small(self.common, name, _SMALL_FILE).strip():
            return loose
        lines = (line.split(b" ") for line in _small(self.common, b"packed-refs", _PACKED_REFS).splitlines())
        return next((words[0] for words in lines if words[1:] == [name]), b"")


@dataclass(frozen=True, kw_only=True)
class EngineGit:
    """Git that knows one repository, one commit as HEAD, and the settings and rules that it is given."""

    family: Family
    folder: str
    environment: dict[str, str]
    top: str

    def ask(self, *arguments: str) -> list[str]:
        """What git prints, cut at its NUL characters. Raises `Refusal`."""
        kept = HeadTail(_LISTING_BYTES)
        self.stream(*arguments, sink=kept)
        if kept.left_out:
            raise Refusal(f"git {arguments[0]} prints more than {_LISTING_BYTES} bytes")
        return [record for record in kept.text().split("\0") if record]

    def line(self, *arguments: str) -> str:
        """The one line that git prints. Raises `Refusal`."""
        return "".join(self.ask(*arguments)).strip()

    def stream(self, *arguments: str, sink: Sink) -> None:
        """Hand on what git prints. Raises `Refusal`."""
        said(git(self.family, "-C", self.top, *arguments, stdout=sink, extra_env=self.environment))

    def refresh_index(self) -> None:
        """Let the index know the times of the files that are as it says."""
        git(self.family, "-C", self.top, "update-index", "-q", "--refresh", extra_env=self.environment)

    def read(self, name: str) -> bytes:
        """A file in the engine's folder."""
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> str:
        """A file in the engine's folder; gives its path."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path


@contextmanager
def engine_git(
    family: Family,
    repository: Repository,
    commit: str,
    *,
    settings: Iterable[tuple[str, str]] = (),
    attributes: bytes = b"",
) -> Iterator[EngineGit]:
    """Open it for the block. `settings` and `attributes` decide how files of the work tree are compared."""
    folder = tempfile.mkdtemp(prefix="engine-git-")
    try:
        for name in ("refs", "info", "objects"):
            os.mkdir(os.path.join(folder, name))
        opened = EngineGit(
            family=family,
            folder=folder,
            environment=_environment(repository, folder, settings),
            top=repository.top,
        )
        opened.write("HEAD", f"{commit}\n".encode())
        opened.write("config", _CONFIG[len(commit)])
        opened.write("info/attributes", attributes)
        if repository.shallow:
            opened.write("shallow", repository.shallow)
        yield opened
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(repository: Repository, folder: str, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    given = [
        *settings,
        ("core.attributesFile", os.devnull),
        ("core.excludesFile", os.devnull),
        ("core.hooksPath", os.devnull),
        ("core.fsmonitor", "false"),
        ("core.untrackedCache", "false"),
        ("core.preloadIndex", "true"),
    ]
    named = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(given)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(given)}
    return {
        "HOME": folder,
        "XDG_CONFIG_HOME": folder,
        "GIT_DIR": folder,
        "GIT_WORK_TREE": repository.top,
        "GIT_OBJECT_DIRECTORY": repository.objects,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": str(len(given)),
        **named,
        **values,
    }


def _small(folder: str, path: bytes, limit: int) -> bytes:
    """A regular file below the folder, empty where there is none; no link on the way is followed."""
    try:
        with below(folder) as tree:
            found = read_regular(tree, path, limit)
    except OSError:
        return b""
    return found[0] if found else b""


_CONFIG = {
    40: b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    64: b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
}
