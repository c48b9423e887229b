"""Takes every credential out of a checkout while tools live in it, and gives all back (security.md "At the end")."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.errors import IsolationError
from stepflow.sandbox.credentials.files import (
    Budget,
    File,
    Folder,
    Link,
    opened_folder,
    put_node,
    remove_unfinished,
    take_node,
)
from stepflow.sandbox.credentials.git_dir_backup import GitDirBackup, GitDirState, put_if_untouched
from stepflow.sandbox.credentials.new_git import GitEntries, shown
from stepflow.sandbox.credentials.record import from_record, to_record
from stepflow.sandbox.credentials.survey import Change, Survey, entry_of
from stepflow.sandbox.tree_walk import FOLDER_FLAGS, Aside

if TYPE_CHECKING:
    from stepflow.domain.json import JsonValue
    from stepflow.sandbox.credentials.files import Node

_NOT_RETURNED = (
    "so the credentials that the checkout had are not given back: what stands there now could use them. "
    "Check the repository out anew before a later step needs them."
)
#: The dataclasses of a record.
_RECORDED = {each.__name__: each for each in (File, Link, Folder, Change, GitDirState)}
_LEFT = "so what git does there is not certain to be what it did before. Check the repository out anew for later steps."


@dataclass(frozen=True, kw_only=True)
class CheckoutCredentials:
    """The credentials of a checkout. `state` tells people how many stand where."""

    secrets: tuple[str, ...]
    state: str


def find_credentials(
    checkout: Path, runner_temp: Path | None = None, login_files: tuple[Path, ...] = ()
) -> CheckoutCredentials:
    """Look for credentials and change nothing. Raises `IsolationError` for a configuration that git cannot read."""
    survey = Survey(checkout, runner_temp, login_files)
    return CheckoutCredentials(secrets=tuple(sorted(survey.secrets)), state=survey.state)


class StrippedCredentials:
    """The credentials of one checkout while they are away, and git's files there as they were."""

    def __init__(self, checkout: Path) -> None:
        self.state = "not looked for"
        self._checkout = checkout.resolve()
        self._entry = entry_of(self._checkout)
        self._entry_was: Node | None = None
        self._entries = GitEntries(self._checkout, {})
        self._folders: list[GitDirBackup] = []
        self._outside: list[_Outside] = []
        self._inside: dict[Path, Change] = {}
        self._fate = _LEFT

    def find(self, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        """Find the credentials and remember what will come back; nothing is changed yet."""
        with ExitStack() as failed:
            failed.callback(self.close)
            self._find(Survey(self._checkout, runner_temp, login_files))
            failed.pop_all()

    def _find(self, survey: Survey) -> None:
        budget = Budget()
        self.state = survey.state
        self._fate = _NOT_RETURNED if survey.changes else _LEFT
        self._entry_was = self._entry_now(budget)
        self._entries = GitEntries.take(self._checkout, survey.entries, budget)
        for path in survey.folders:
            self._folders.append(GitDirBackup.take(path, survey, budget))
        for path, change in survey.changes.items():
            if not survey.is_inside(path):
                self._outside.append(_Outside(path, change, frozenset(survey.led_from.get(path, ()))))
            else:
                self._inside[path] = change

    def take(self) -> None:
        """Take away what was found."""
        changes = {**self._inside, **{file.path: file.change for file in self._outside}}
        for path, change in changes.items():
            _strip(path, change)

    def record(self) -> JsonValue:
        """All that `of_record` needs."""
        return to_record(
            {
                "fate": self._fate,
                "entry": self._entry,
                "entry_was": self._entry_was,
                "entries": self._entries.was,
                "folders": tuple(folder.state for folder in self._folders),
                "outside": tuple((file.path, file.change, file.folders) for file in self._outside),
                "inside": self._inside,
            }
        )

    @classmethod
    def of_record(cls, checkout: Path, record: object) -> Self:
        """What a run has taken away that could not give it back."""
        stripped, facts = cls(checkout), from_record(record, _RECORDED)
        stripped._fate, stripped._entry, stripped._entry_was = facts["fate"], facts["entry"], facts["entry_was"]
        stripped._entries = GitEntries(stripped._checkout, facts["entries"])
        stripped._inside = facts["inside"]
        with suppress(OSError):
            # Of a checkout that is gone only what lies outside can come back, and nothing can use it there.
            if stripped._checkout.is_dir():
                stripped._folders = [GitDirBackup.of_state(state, stripped._checkout) for state in facts["folders"]]
        for path, change, folders in facts["outside"]:
            with suppress(OSError):
                file = _Outside(path, change, folders)
                remove_unfinished(file.parent, Aside(file.parent))
                stripped._outside.append(file)
        return stripped

    def give_back(self) -> tuple[str, ...]:
        """Give back what was taken, in the order in which it matters: git's own files, then nothing new that could
        act, then the credentials. Nothing of the tools may be alive. Gives what people must know."""
        try:
            if self._checkout.is_dir():
                return tuple(dict.fromkeys(self._give_back()))
            return tuple(each for file in self._outside for each in file.give_back(credentials=True))
        finally:
            self.close()

    def remove_aside(self) -> None:
        """Remove what was only moved out of the way, which may take long."""
        with suppress(OSError):
            parent = self._open_aside_folder()
            try:
                Aside(parent).remove()
            finally:
                os.close(parent)

    def _give_back(self) -> list[str]:
        parent = self._open_aside_folder()
        aside = Aside(parent)
        try:
            return self._restored(aside)
        finally:
            aside.close()
            os.close(parent)

    def _restored(self, aside: Aside) -> list[str]:
        changed = self._entry_changed()
        problems = [changed] if changed else []
        known = frozenset(folder.path for folder in self._folders)
        restored: list[GitDirBackup] = []
        own = self._folders[0].path if self._folders else None
        # Looked at before anything is removed, which may be what leads to the next one.
        replaced = {folder.path: folder.replaced() for folder in self._folders}
        for folder in self._folders:
            if problem := replaced[folder.path] or folder.restore(aside, known):
                # A nested repository without credentials may come and go; that is the run's own work.
                problems += [problem] if folder.path == own or folder.had_credentials else []
            else:
                restored.append(folder)
        same = frozenset(folder.number for folder in self._folders if not replaced[folder.path])
        removed, left = self._entries.restore(same, aside)
        problems += [f"{'; '.join(left[:3])}: it could not be looked at whole"] if left else []
        blocked = bool(changed or left) or (own is not None and own not in {folder.path for folder in restored})
        problems += self._return_credentials(restored, aside, blocked=blocked)
        notes = [f"{problem}; {self._fate}" for problem in dict.fromkeys(problems)]
        if removed:
            notes.append(f"the tools made {shown(sorted(removed))}, which can lead git anywhere; that was removed")
        return notes

    def _return_credentials(self, restored: list[GitDirBackup], aside: Aside, *, blocked: bool) -> list[str]:
        problems: list[str] = []
        lost = {folder.path for folder in self._folders} - {folder.path for folder in restored}
        for folder in () if blocked else restored:
            if problem := folder.return_credentials(aside):
                problems.append(problem)
                lost.add(folder.path)
        for path, change in self._inside.items():
            covered = any(folder.covers(path) for folder in self._folders)
            if not covered and not blocked and not any(path.is_relative_to(folder) for folder in lost):
                put_if_untouched(path, change, aside)
        for file in self._outside:
            problems += file.give_back(credentials=not blocked and not lost & file.folders)
        return problems

    def close(self) -> None:
        """Let go what is held open."""
        held: list[GitDirBackup | _Outside] = [*self._folders, *self._outside]
        self._folders, self._outside, self._inside = [], [], {}
        for each in held:
            each.close()

    def _open_aside_folder(self) -> int:
        """Where to put aside what is removed later: in git's own folder, where nobody looks, or in the checkout."""
        for path in (self._entry, self._checkout):
            with suppress(OSError):
                return os.open(path, FOLDER_FLAGS)
        return os.open(self._checkout, FOLDER_FLAGS)

    def _entry_now(self, budget: Budget) -> Node | None:
        """The checkout's `.git` when it is a file or a link; as a folder it is among the folders."""
        if self._entry.is_dir() and not self._entry.is_symlink():
            return None
        with opened_folder(self._entry.parent) as parent:
            return take_node(parent, self._entry.name, self._entry, budget)

    def _entry_changed(self) -> str:
        if not self._folders or self._entry_was is None:
            return ""
        try:
            now = self._entry_now(Budget())
        except (OSError, IsolationError):
            now = None
        same = (
            now.data == self._entry_was.data
            if isinstance(now, File) and isinstance(self._entry_was, File)
            else (now == self._entry_was)
        )
        return "" if same else f"{self._entry} was replaced"


class _Outside:
    """A file outside the checkout, in a folder that is held open."""

    def __init__(self, path: Path, change: Change, folders: frozenset[Path]) -> None:
        self.path, self.change, self.folders = path, change, folders
        self.parent = os.open(path.parent, FOLDER_FLAGS)

    def give_back(self, *, credentials: bool) -> list[str]:
        """Put it back byte for byte, or without its credentials; what kept it from coming back."""
        file = self.change.original if credentials else self.change.clean
        aside = Aside(self.parent)
        try:
            put_node(self.parent, self.path.name, file, aside)
        except OSError as exc:
            return [f"{self.path} could not be written: {exc.strerror}"]
        finally:
            aside.remove()
        return []

    def close(self) -> None:
        """Let its folder go."""
        os.close(self.parent)


def _strip(path: Path, change: Change) -> None:
    try:
        with opened_folder(path.parent) as folder:
            aside = Aside(folder)
            put_node(folder, path.name, change.clean, aside)
    except OSError as exc:
        raise IsolationError(
            f"The credential in {path} cannot be taken away from the tools: {exc.strerror}.",
            hint="Check the repository out with `persist-credentials: false`, or correct the file's rights.",
        ) from exc
