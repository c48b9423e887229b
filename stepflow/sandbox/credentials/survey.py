"""Finds every credential that a checkout left behind, and what each file looks like without it (security.md)."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepflow.errors import IsolationError
from stepflow.sandbox.child.git import find_dot_git, folders_behind
from stepflow.sandbox.credentials.config import (
    Setting,
    hide,
    holds,
    read_settings,
    secret_forms,
    unknown_credential,
    write_settings,
)
from stepflow.sandbox.credentials.files import Budget, Node, opened_folder, read_tree
from stepflow.sandbox.credentials.rules import (
    is_needed,
    login_files_of,
    secrets_in,
    secrets_of,
    secrets_of_login,
    without_login,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Each is held open while the tools run.
_MOST_FOLDERS = 400
#: Git's own binary files: objects, and indexes whose checksum would break.
_OPAQUE_FOLDERS = frozenset({"objects", "lfs"})
_OPAQUE_FILES = frozenset({"index"})
_CONFIGS = ("config", "config.worktree")
_INCLUDES = ("include.path", "includeif.path")
#: actions/checkout writes such a file since its version 6 (security.md "What a Docker action is handed").
_LEFT_BY_CHECKOUT = "git-credentials-*.config"


def entry_of(checkout: Path) -> Path:
    """The `.git` that git finds in the checkout or above it; in the checkout where there is none."""
    return Path(find_dot_git(str(checkout)) or checkout / ".git")


def git_entries(checkout: Path) -> tuple[Path, ...]:
    """Every `.git`, the checkout's own first."""
    entries = {entry_of(checkout): None}
    for parent, folders, files in os.walk(checkout):
        if ".git" in (*folders, *files):
            entries[Path(parent) / ".git"] = None
        folders[:] = sorted(set(folders) - {".git"})
    return tuple(entries)


def git_folders(checkout: Path, entries: Iterable[Path]) -> tuple[Path, ...]:
    """Every git folder behind the entries, the checkout's own first, with those of submodules and worktrees."""
    folders: dict[Path, None] = {}
    for entry in entries:
        for folder in map(Path, folders_behind(str(entry))):
            if folder.is_dir():
                real = folder.resolve()
                folders.update(dict.fromkeys((real, *_inside(real))))
            if len(folders) > _MOST_FOLDERS:
                raise IsolationError(
                    f"{checkout} holds more than {_MOST_FOLDERS} git folders; not all of them can be watched.",
                    hint="Check out without submodules, or name one repository in `working-directory`.",
                )
    return tuple(folders)


def files_of(folder: Path) -> Iterator[Path]:
    """Every regular file of a git folder that git or people write as text, nested git folders' left out."""
    for parent, folders, files in os.walk(folder):
        nested = {"modules"} if Path(parent) == folder else set()
        folders[:] = sorted(set(folders) - _OPAQUE_FOLDERS - nested)
        for path in (Path(parent) / name for name in sorted(set(files) - _OPAQUE_FILES)):
            if path.is_file() and not path.is_symlink():
                yield path


def _inside(folder: Path) -> Iterator[Path]:
    """The git folders of submodules, whose names may have slashes, and of worktrees."""
    for parent, folders, files in os.walk(folder / "modules"):
        folders[:] = sorted(set(folders) - _OPAQUE_FOLDERS)
        if "HEAD" in files:
            yield Path(parent)
    for worktree in sorted((folder / "worktrees").glob("*/")):
        if not worktree.is_symlink():
            yield worktree.resolve()


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that tools see with the content `shown`. `folders` are the git folders that it lies in or that lead to it;
    `is_inside`: it lies in the checkout or in one of its git folders; `had_credential`: not only settings are away that
    tools do not need."""

    path: Path
    original: Node
    shown: str
    folders: tuple[Path, ...]
    is_inside: bool
    had_credential: bool

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """A change that was written as JSON."""
        folders = tuple(map(Path, record["folders"]))
        return cls(
            **{**record, "path": Path(record["path"]), "original": Node(**record["original"]), "folders": folders}
        )


class Survey:
    """What was found. `runner_temp` None: a person's own machine, where files outside the checkout stay as they are.
    `login_files`: what steps before left in the checkout to log in by, relative to it."""

    def __init__(self, checkout: Path, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        self.checkout = checkout.resolve()
        self.entries = git_entries(self.checkout)
        self.folders = git_folders(self.checkout, self.entries)
        #: Each configuration and each file that one names, with the git folders that lead to it.
        self.led_from: dict[Path, set[Path]] = {}
        #: How many credentials stand in which file.
        self.counts: Counter[Path] = Counter()
        self._temp = runner_temp.resolve() if runner_temp else None
        self._budget = Budget()
        self._secrets: set[str] = set()
        self._files: dict[Path, Node] = {}
        #: Which of the files are configurations, and which are nothing but a credential.
        self._settings: dict[Path, tuple[Setting, ...]] = {}
        self._logins: set[Path] = set()
        self._read_configurations()
        for path in map(self._real, login_files):
            # What lies elsewhere is closed to the tools, and other jobs may need it meanwhile.
            if self._is_inside(path) and _is_file(path):
                self._read_login(path, self.checkout)
                self._secrets |= secrets_of_login(self._files[path].content)
        self.changes = {change.path: change for change in self._find_changes()}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret that was found."""
        return tuple(sorted(self._secrets))

    @property
    def state(self) -> str:
        """For people: how many credentials stand where."""
        if not self.counts:
            return "none found"
        names = list(dict.fromkeys(map(self._name, self.counts)))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more files" if len(names) > 3 else "")
        return f"{self.counts.total()} taken out of {shown}"

    def _name(self, path: Path) -> str:
        if path.is_relative_to(self.checkout):
            return str(path.relative_to(self.checkout))
        return "runner_temp" if self._temp and path.is_relative_to(self._temp) else str(path)

    def _is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in (self.checkout, *self.folders))

    def _may_change(self, path: Path) -> bool:
        return self._temp is not None or self._is_inside(path)

    def _real(self, named: str | Path, folder: Path | None = None) -> Path:
        """A path as git reads it in a configuration: `~/` is HOME, everything else begins at the folder."""
        path = Path(named)
        with suppress(RuntimeError):
            path = path.expanduser()
        return Path(os.path.realpath((folder or self.checkout) / path))

    def _read_configurations(self) -> None:
        for folder in self.folders:
            for path in sorted(folder.glob("config*")):
                self._read_configuration(self._real(path), folder, must=path.name in _CONFIGS)
        for path in sorted(self._temp.glob(_LEFT_BY_CHECKOUT)) if self._temp else ():
            self._read_configuration(self._real(path), self.folders[0] if self.folders else self.checkout)

    def _read_configuration(self, path: Path, folder: Path, *, must: bool = False) -> None:
        """Read a configuration and everything that it leads to."""
        if folder in self.led_from.get(path, ()) or not _is_file(path):
            return
        if path not in self._settings:
            file = self._read(path)
            try:
                self._settings[path] = read_settings(file.content, str(path))
            except IsolationError:
                if must:
                    raise
                return
            self._files[path] = file
            for setting in self._settings[path]:
                secrets = secrets_of(setting)
                self._secrets |= secrets
                if secrets or login_files_of(setting):
                    self.counts[path] += 1
        self.led_from.setdefault(path, set()).add(folder)
        for setting in self._settings[path]:
            if setting.key in _INCLUDES and setting.value:
                self._read_configuration(self._real(setting.value, path.parent), folder)
            for named in login_files_of(setting):
                self._read_login(self._real(named), folder)

    def _read_login(self, path: Path, folder: Path) -> None:
        """Read a file of cookies, passwords or keys, which is nothing but a credential."""
        if not _is_file(path) or not self._may_change(path):
            return
        if path not in self._logins:
            self._logins.add(path)
            self._files[path] = self._read(path)
            self._secrets |= secrets_in(self._files[path].content)
            self.counts[path] += 1
        self.led_from.setdefault(path, set()).add(folder)

    def _read(self, path: Path) -> Node:
        try:
            with opened_folder(path.parent) as folder:
                (file,) = read_tree(folder, path.name, path, self._budget)
        except (OSError, ValueError) as exc:
            raise unknown_credential(str(path), getattr(exc, "strerror", "") or "it was replaced meanwhile") from exc
        return file

    def _find_changes(self) -> Iterator[Change]:
        """Now that all secrets are known: what was read without them, and every other file of git's with one."""
        forms = secret_forms(self._secrets)
        for path, file in self._files.items():
            shown = "" if path in self._logins else self._configuration_without(forms, path)
            if shown != file.content and self._may_change(path):
                yield self._change(path, file, shown)
        for path in dict.fromkeys(path for folder in self.folders for path in files_of(folder)) if forms else ():
            if path not in self._files and holds(path, forms):
                self.counts[path] = 1
                file = self._read(path)
                yield self._change(path, file, hide(file.content, forms))

    def _change(self, path: Path, file: Node, shown: str) -> Change:
        folders = {*self.led_from.get(path, ()), *(each for each in self.folders if path.is_relative_to(each))}
        return Change(
            path=path,
            original=file,
            shown=shown,
            folders=tuple(sorted(folders)),
            is_inside=self._is_inside(path),
            had_credential=path in self.counts,
        )

    def _configuration_without(self, forms: tuple[str, ...], path: Path) -> str:
        """A configuration with nothing but what tools need and may see; its own text where nothing has to go."""
        settings, text = self._settings[path], self._files[path].content

        def shown(part: str | None) -> str | None:
            return part and hide(without_login(part), forms)

        visible = tuple(
            replace(setting, subsection=shown(setting.subsection), value=shown(setting.value))
            for setting in settings
            if is_needed(setting) and self._is_reachable(setting, path.parent)
        )
        return text if visible == settings and hide(text, forms) == text else write_settings(visible)

    def _is_reachable(self, setting: Setting, folder: Path) -> bool:
        """Git dies on an include that it may not read, and what lies outside is nothing that the tools may read."""
        return setting.key not in _INCLUDES or self._is_inside(self._real(setting.value or "", folder))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # The way to it is closed to this process, and to the tools then too.
        return False
