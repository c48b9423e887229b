"""Takes every credential out of a checkout while tools live in it, and gives all back (security.md "At the end").

Takes: the checkout, the runner's temporary folder. Gives: the secrets, for the redactor; a context without them.
May touch: git's files in the checkout, the files that these include, and the runner's `git-credentials-*`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError
from stepflow.toolbox.credentials.files import FOLDER_FLAGS, File, Room, opened_folder, take_node
from stepflow.toolbox.credentials.places import entry_of
from stepflow.toolbox.credentials.put import put_file
from stepflow.toolbox.credentials.remembered import Remembered, put_if_untouched
from stepflow.toolbox.credentials.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepflow.toolbox.credentials.files import Node
    from stepflow.toolbox.credentials.survey import Change


_NOT_RETURNED = (
    "so the credentials that the checkout had are not given back: what stands there now could use them. "
    "Check the repository out anew before a later step needs them."
)
_ALIVE = "it is not certain that every process of the tools is dead"
_LEFT = "so git's configuration there stays as the tools left it. Check the repository out anew for later steps."


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The credentials of a checkout. `state` tells people how many stand where."""

    secrets: tuple[str, ...]
    state: str


def find_credentials(checkout: Path, runner_temp: Path | None = None, login_files: tuple[Path, ...] = ()) -> Findings:
    """Look for credentials and change nothing. Raises `IsolationError` for a configuration that git cannot read."""
    survey = Survey(checkout, runner_temp, login_files)
    return Findings(secrets=tuple(sorted(survey.secrets)), state=survey.state)


@contextlib.contextmanager
def credentials_away(
    checkout: Path, runner_temp: Path | None = None, login_files: tuple[Path, ...] = ()
) -> Iterator[Away]:
    """No file below the checkout holds its credentials until the block ends; then git's configuration is as it was.

    Nothing of the tools may be alive at the end, and no signal may raise on the way in or out. `runner_temp` None:
    files outside the checkout stay as they are. `login_files`: what steps before left in the checkout to log in by.
    """
    away = Away(checkout)
    try:
        away.begin(runner_temp, login_files)
        yield away
    finally:
        away.end()


class Away:
    """The credentials of one checkout while they are away. `notes` are warnings, known when the block has ended."""

    def __init__(self, checkout: Path) -> None:
        self.state = "not looked for"
        self.notes: tuple[str, ...] = ()
        self._checkout = checkout.resolve()
        self._entry = entry_of(self._checkout)
        self._entry_was: Node | None = None
        self._folders: list[Remembered] = []
        self._outside: list[_Outside] = []
        self._inside: dict[Path, Change] = {}
        self._fate = ""
        self._all_ended: Callable[[], bool] = lambda: True

    def only_if(self, all_ended: Callable[[], bool]) -> None:
        """At the end, give no credential back unless it is certain then that nothing of the tools is alive."""
        self._all_ended = all_ended

    def begin(self, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        """Find the credentials and take them away."""
        room = Room()
        survey = Survey(self._checkout, runner_temp, login_files)
        self.state = survey.state
        self._fate = _NOT_RETURNED if survey.changes else _LEFT
        self._entry_was = self._entry_now(room)
        for path in survey.folders:
            self._folders.append(Remembered(path, survey, room))
        for path, change in survey.changes.items():
            if not survey.is_inside(path):
                self._outside.append(_Outside(path, change, frozenset(survey.led_from.get(path, ()))))
            elif not any(folder.covers(path) for folder in self._folders):
                self._inside[path] = change
            _take_away(path, change)

    def end(self) -> None:
        """Give back what was taken, each part whatever happened to the others."""
        problems = self._give_back()
        held: list[Remembered | _Outside] = [*self._folders, *self._outside]
        self._folders, self._outside, self._inside = [], [], {}
        for each in held:
            each.close()
        self.notes = tuple(f"{problem}; {self._fate}" for problem in problems)

    def _give_back(self) -> list[str]:
        changed = self._entry_changed() if self._all_ended() else _ALIVE
        problems = [changed] if changed else []
        lost: set[Path] = set()
        own = self._folders[0].path if self._folders else None
        for folder in self._folders:
            if problem := folder.give_back(credentials=not changed):
                lost.add(folder.path)
                # A nested repository without credentials may come and go; that is the run's own work.
                problems += [problem] if folder.path == own or folder.had_credentials else []
        own_is_lost = bool(changed) or own in lost
        for path, change in self._inside.items():
            if not own_is_lost and not any(path.is_relative_to(folder) for folder in lost):
                put_if_untouched(path, change)
        for file in self._outside:
            problems += file.give_back(credentials=not own_is_lost and not lost & file.folders)
        return list(dict.fromkeys(problems))

    def _entry_now(self, room: Room) -> Node | None:
        """The checkout's `.git` when it is a file or a link; as a folder it is among the folders."""
        if self._entry.is_dir() and not self._entry.is_symlink():
            return None
        with opened_folder(self._entry.parent) as parent:
            return take_node(parent, self._entry.name, self._entry, room)

    def _entry_changed(self) -> str:
        if not self._folders or self._entry_was is None:
            return ""
        try:
            now = self._entry_now(Room())
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
        self.folders = folders
        self._path, self._change = path, change
        self._parent = os.open(path.parent, FOLDER_FLAGS)

    def give_back(self, *, credentials: bool) -> list[str]:
        """Put it back byte for byte, or without its credentials; what kept it from coming back."""
        file = self._change.original if credentials else self._change.clean
        try:
            put_file(self._parent, self._path.name, self._path, file)
        except OSError as exc:
            return [f"{self._path} could not be written: {exc.strerror}"]
        return []

    def close(self) -> None:
        """Let its folder go."""
        os.close(self._parent)


def _take_away(path: Path, change: Change) -> None:
    try:
        with opened_folder(path.parent) as folder:
            put_file(folder, path.name, path, change.clean)
    except OSError as exc:
        raise IsolationError(
            f"The credential in {path} cannot be taken away from the tools: {exc.strerror}.",
            hint="Check the repository out with `persist-credentials: false`, or correct the file's rights.",
        ) from exc
