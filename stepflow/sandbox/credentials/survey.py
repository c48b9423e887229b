"""Finds every credential that a checkout left behind, and what each file looks like without it (security.md)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError
from stepflow.sandbox.credentials.config import Setting, clean_config, hide, holds, read_settings, secret_forms
from stepflow.sandbox.credentials.files import Budget, File, opened_folder, take_node
from stepflow.sandbox.credentials.rules import Judged, judge_setting, secrets_in, secrets_of_login

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


#: Each is held open while the tools run.
_MOST_FOLDERS = 400
#: A `.git` file or a `commondir` is one line with a path.
_LONGEST_POINTER = 8192
#: Git's own binary files: objects, and indexes whose checksum would break.
_OPAQUE_FOLDERS = frozenset({"objects", "lfs"})
_OPAQUE_FILES = frozenset({"index"})
_CONFIGS = ("config", "config.worktree")
#: actions/checkout writes such a file since its version 6 (security.md "What a Docker action is handed").
_LEFT_BY_CHECKOUT = "git-credentials-*.config"


def entry_of(checkout: Path) -> Path:
    """The `.git` that git finds in the checkout or above it; in the checkout where there is none."""
    candidates = (folder / ".git" for folder in (checkout, *checkout.parents))
    return next((entry for entry in candidates if os.path.lexists(entry)), checkout / ".git")


def git_entries(checkout: Path) -> tuple[Path, ...]:
    """Every `.git`, the checkout's own first."""
    return tuple(dict.fromkeys((entry_of(checkout), *_nested(checkout))))


def git_folders(checkout: Path, entries: Iterable[Path]) -> tuple[Path, ...]:
    """Every git folder behind the entries, the checkout's own first, with those of submodules and worktrees."""
    folders: dict[Path, None] = {}
    for entry in entries:
        for folder in _led_to(entry):
            folders.update(dict.fromkeys((folder, *_inside(folder))))
            if len(folders) > _MOST_FOLDERS:
                raise IsolationError(
                    f"{checkout} holds more than {_MOST_FOLDERS} git folders; not all of them can be watched.",
                    hint="Check out without submodules, or name one repository in `working-directory`.",
                )
    return tuple(folders)


def files_of(folder: Path) -> Iterator[Path]:
    """Every regular file of a git folder that git or people write as text, nested git folders' left out."""
    for parent, folders, files in os.walk(folder):
        nested = Path(parent) == folder
        folders[:] = sorted(name for name in folders if name not in _OPAQUE_FOLDERS)
        if nested:
            folders[:] = [name for name in folders if name != "modules"]
        for path in (Path(parent) / name for name in sorted(files) if name not in _OPAQUE_FILES):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _nested(checkout: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(checkout):
        if ".git" in folders or ".git" in files:
            yield Path(parent) / ".git"
        folders[:] = sorted(name for name in folders if name != ".git")


def _led_to(entry: Path) -> Iterator[Path]:
    """The git folder behind a `.git`, and the one that a worktree shares with others."""
    folder = _pointed(entry, "gitdir: ") if entry.is_file() else entry
    if folder is None or not folder.is_dir():
        return
    yield folder.resolve()
    shared = _pointed(folder / "commondir", "")
    if shared and shared.is_dir():
        yield shared.resolve()


def _pointed(file: Path, prefix: str) -> Path | None:
    try:
        text = os.fsdecode(file.read_bytes()[:_LONGEST_POINTER]).rstrip("\r\n")
    except OSError:
        return None
    return file.parent / text.removeprefix(prefix) if text.startswith(prefix) else None


def _inside(folder: Path) -> Iterator[Path]:
    """The git folders of submodules, whose names may have slashes, and of worktrees."""
    for parent, folders, files in os.walk(folder / "modules"):
        folders[:] = sorted(name for name in folders if name not in _OPAQUE_FOLDERS)
        if "HEAD" in files:
            yield Path(parent)
    for worktree in sorted((folder / "worktrees").glob("*/")):
        if not worktree.is_symlink():
            yield worktree.resolve()


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that holds a credential, as it is and as the tools may see it."""

    original: File
    clean: File


@dataclass(kw_only=True)
class _Source:
    """A configuration on its way through the survey. `folders` are the git folders that lead to it."""

    file: File
    settings: tuple[Setting, ...]
    judged: tuple[Judged, ...] = ()
    folders: set[Path] = field(default_factory=set)

    @property
    def visible(self) -> tuple[Setting, ...]:
        """What the tools see of it."""
        return tuple(judged.visible for judged in self.judged if judged.visible)


class Survey:
    """What was found. `runner_temp` None: a person's own machine, where files outside the checkout stay as they are.
    `login_files`: what steps before left in the checkout to log in by, relative to it."""

    def __init__(self, checkout: Path, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        self.checkout = checkout.resolve()
        self.entries = git_entries(self.checkout)
        self.folders = git_folders(self.checkout, self.entries)
        self.secrets: set[str] = set()
        self.changes: dict[Path, Change] = {}
        #: File → the git folders whose configuration leads to it.
        self.led_from: dict[Path, set[Path]] = {}
        self._temp = runner_temp.resolve() if runner_temp else None
        self._budget = Budget()
        self._sources: dict[Path, _Source] = {}
        self._visited: set[tuple[Path, Path | None]] = set()
        self._counts: dict[Path, int] = {}
        self._blank: dict[Path, File] = {}
        self._read_all()
        self._note_logins(login_files)
        self._judge_files()

    @property
    def state(self) -> str:
        """For people: how many credentials stand where."""
        if not self._counts:
            return "none found"
        names = dict.fromkeys(self._name(path) for path in self._counts)
        shown = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more files" if len(names) > 3 else "")
        return f"{sum(self._counts.values())} taken out of {shown}"

    def is_inside(self, path: Path) -> bool:
        """Whether the path lies in the checkout or in a git folder that belongs to it."""
        return any(path.is_relative_to(folder) for folder in (self.checkout, *self.folders))

    def _name(self, path: Path) -> str:
        if path.is_relative_to(self.checkout):
            return str(path.relative_to(self.checkout))
        return "runner_temp" if self._temp and path.is_relative_to(self._temp) else str(path)

    def _read_all(self) -> None:
        for folder in self.folders:
            for path in sorted(folder.glob("config*")):
                self._read(path, folder, must=path.name in _CONFIGS)
        left = sorted(self._temp.glob(_LEFT_BY_CHECKOUT)) if self._temp else []
        for path in left:
            self._read(path, self.folders[0] if self.folders else None, must=False)

    def _read(self, path: Path, folder: Path | None, *, must: bool) -> None:
        """Read a configuration and everything that it leads to, each file once."""
        real = _real(path)
        if (real, folder) in self._visited or not _is_file(real):
            return
        self._visited.add((real, folder))
        source = self._sources.get(real) or self._new_source(real, must=must)
        if source:
            source.folders |= {folder} if folder else set()
            source.judged = tuple(self._judged(setting, real, folder) for setting in source.settings)

    def _new_source(self, real: Path, *, must: bool) -> _Source | None:
        file = self._file(real)
        try:
            settings = read_settings(file.data, str(real))
        except IsolationError:
            if must:
                raise
            return None
        self._sources[real] = _Source(file=file, settings=settings)
        return self._sources[real]

    def _file(self, path: Path) -> File:
        try:
            with opened_folder(path.parent) as parent:
                node = take_node(parent, path.name, path, self._budget)
        except OSError as exc:
            raise _unread(path, str(exc.strerror)) from exc
        if not isinstance(node, File):
            raise _unread(path, "it was replaced meanwhile")
        return node

    def _judged(self, setting: Setting, source: Path, folder: Path | None) -> Judged:
        if setting.section in ("include", "includeif") and setting.name == "path":
            return self._judged_include(setting, source, folder)
        judged = judge_setting(setting)
        self.secrets |= judged.secrets
        for named in judged.paths:
            self._note_pointed(_absolute(named, self.checkout), folder)
        return judged

    def _judged_include(self, setting: Setting, source: Path, folder: Path | None) -> Judged:
        """What lies outside is nothing that the tools may read, and git dies on an include that it may not read."""
        target = _absolute(setting.value or "", source.parent)
        if setting.value:
            self._read(target, folder, must=False)
        return Judged(visible=setting if self.is_inside(_real(target)) else None)

    def _note_pointed(self, path: Path, folder: Path | None) -> None:
        """A file of cookies, passwords or keys is nothing but a credential."""
        real = _real(path)
        if not _is_file(real) or not self._may_change(real):
            return
        if real not in self._blank:
            self._blank[real] = self._file(real)
            self.secrets |= secrets_in(self._blank[real].data.decode("utf-8", "surrogateescape"))
        self.led_from.setdefault(real, set()).update({folder} if folder else ())

    def _note_logins(self, files: tuple[Path, ...]) -> None:
        """What lies elsewhere is closed to the tools, and other jobs may need it meanwhile."""
        for path in files:
            real = _real(self.checkout / path)
            if self.is_inside(real) and _is_file(real):
                self._note_pointed(real, None)
                self.secrets |= secrets_of_login(self._blank[real].data.decode("utf-8", "surrogateescape"))

    def _may_change(self, path: Path) -> bool:
        return self._temp is not None or self.is_inside(path)

    def _judge_files(self) -> None:
        """Now that all secrets are known: the configurations without them, and every other file that repeats one."""
        forms = secret_forms(self.secrets)
        for path, source in self._sources.items():
            if self._may_change(path):
                self.led_from.setdefault(path, set()).update(source.folders)
                self._change(
                    path,
                    source.file,
                    clean_config(source.file.data, source.settings, source.visible, self.secrets, forms),
                )
            self._count(path, source)
        for path, file in self._blank.items():
            self._counts[path] = self._counts.get(path, 0) + 1
            self._change(path, file, b"")
        for folder in self.folders if forms else ():
            for path in files_of(folder):
                if path not in self._sources and path not in self._blank and holds(path, forms):
                    file = self._file(path)
                    self._counts[path] = 1
                    self._change(path, file, hide(file.data, forms))

    def _count(self, path: Path, source: _Source) -> None:
        changed = sum(
            judged.visible != setting and not setting.section.startswith("include")
            for judged, setting in zip(source.judged, source.settings, strict=True)
        )
        if changed:
            self._counts[path] = changed

    def _change(self, path: Path, file: File, data: bytes) -> None:
        if data != file.data:
            self.changes[path] = Change(original=file, clean=replace(file, data=data, names=1))


def _absolute(named: str, folder: Path) -> Path:
    """A path as git reads it in a configuration: `~/` is HOME, everything else begins at the folder."""
    try:
        return folder / Path(named).expanduser()
    except RuntimeError:
        return folder / named


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # The way to it is closed to this process, and to the tools then too.
        return False


def _unread(path: Path, reason: str) -> IsolationError:
    return IsolationError(
        f"It cannot be known whether {path} holds a credential: {reason}.",
        hint="Correct the file's rights, or check the repository out anew.",
    )
