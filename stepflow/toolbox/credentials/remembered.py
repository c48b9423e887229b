"""One git folder as it was at the start, and its return to that (security.md "At the end").

Takes: the survey, before anything is changed. Gives: a `Remembered` per git folder.
May touch: git's configuration, hooks, info and alternates in that folder; nothing that the run's own work consists of.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.toolbox.credentials.files import FOLDER_FLAGS, File, Folder, names_in, opened_folder, take_node
from stepflow.toolbox.credentials.put import is_file, put_file, put_node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepflow.toolbox.credentials.files import Node, Room
    from stepflow.toolbox.credentials.survey import Change, Survey

#: What decides which programs git starts and where it looks for configuration; `commondir` and `gitdir` would lead it
#: to another folder.
_NAMES = ("hooks", "info", "commondir", "gitdir")
_ALTERNATES = ("alternates", "http-alternates")
#: What a run works on. An include that lies there is not taken for configuration alone.
_WORK = frozenset({"HEAD", "index", "logs", "lfs", "modules", "objects", "packed-refs", "refs", "worktrees"})


class Remembered:
    """A git folder that is held open, so that another one in its place is told apart whatever its number is."""

    def __init__(self, path: Path, survey: Survey, room: Room) -> None:
        self.path = path
        self._checkout = survey.checkout
        self._changes = survey.changes
        self._descriptor = os.open(path, FOLDER_FLAGS)
        self._mode = stat.S_IMODE(os.fstat(self._descriptor).st_mode)
        names = {*_NAMES, *_configurations(self._descriptor), *_included(path, survey)}
        self._nodes = {name: take_node(self._descriptor, name, path / name, room) for name in sorted(names)}
        self._alternates = self._take_alternates(room)

    @property
    def had_credentials(self) -> bool:
        """Whether something was taken out of this folder."""
        return any(path.is_relative_to(self.path) for path in self._changes)

    def covers(self, path: Path) -> bool:
        """Whether this file comes back with the folder."""
        return path.is_relative_to(self.path) and path.relative_to(self.path).parts[0] in self._nodes

    def give_back(self, *, credentials: bool) -> str:
        """Restore everything; what kept the credentials from coming back too, empty when nothing did."""
        if problem := self._replaced():
            return problem
        try:
            self._set_mode(self._mode | stat.S_IRWXU)
            self._put(clean=True)
            self._put_alternates()
            if credentials:
                self._put(clean=False)
            self._set_mode(self._mode)
        except (OSError, RecursionError) as exc:
            return f"{self.path} could not be restored: {exc.strerror if isinstance(exc, OSError) else exc}"
        return ""

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._descriptor)

    def _take_alternates(self, room: Room) -> dict[str, Node | None]:
        place = self.path / "objects" / "info"
        if not place.is_dir():
            return dict.fromkeys(_ALTERNATES)
        with opened_folder(place.resolve()) as folder:
            return {name: take_node(folder, name, place / name, room) for name in _ALTERNATES}

    def _replaced(self) -> str:
        """Nothing of the tools is alive any more, so what is seen here stays so."""
        held = os.fstat(self._descriptor)
        ways = [self.path, *self.path.parents] if self.path.is_relative_to(self._checkout) else [self.path]
        for way in ways:
            if way == self._checkout:
                break
            try:
                info = way.lstat()
            except OSError as exc:
                return f"{way} is gone: {exc.strerror}"
            if not stat.S_ISDIR(info.st_mode):
                return f"{way} was replaced by something that is no folder"
            if way == self.path and (info.st_dev, info.st_ino) != (held.st_dev, held.st_ino):
                return f"{way} was replaced by another folder"
        return ""

    def _put(self, *, clean: bool) -> None:
        added = set(_configurations(self._descriptor)) - self._nodes.keys()
        for name in (*self._nodes, *added):
            path, node = self.path / name, self._nodes.get(name)
            shown = _cleaned(node, path, self._changes) if node and clean else node
            put_node(self._descriptor, name, path, shown)

    def _set_mode(self, mode: int) -> None:
        if stat.S_IMODE(os.fstat(self._descriptor).st_mode) != mode:
            os.fchmod(self._descriptor, mode)

    def _put_alternates(self) -> None:
        objects = self.path / "objects"
        info = objects / "info"
        if not os.path.lexists(info) and not any(self._alternates.values()):
            return
        if objects.is_symlink():
            raise NotADirectoryError(0, f"{objects} was replaced by a link")
        with opened_folder(info) as folder:
            for name, node in self._alternates.items():
                put_node(folder, name, info / name, node)


def put_if_untouched(path: Path, change: Change) -> None:
    """Give a file back that the run may have written to as part of its work: only as long as nobody did."""
    try:
        with opened_folder(path.parent) as folder:
            if is_file(folder, path.name, change.clean):
                put_file(folder, path.name, path, change.original)
    except OSError:
        # Its folder is gone or is none any more.
        return


def _configurations(folder: int) -> list[str]:
    return [name for name in names_in(folder) if name.startswith("config")]


def _included(path: Path, survey: Survey) -> set[str]:
    """What is configuration because git's own files include it, as the first part of its way below the folder."""
    inside = (file for file in survey.led_from if file.is_relative_to(path))
    return {file.relative_to(path).parts[0] for file in inside} - _WORK


def _cleaned(node: Node, path: Path, changes: Mapping[Path, Change]) -> Node:
    match node:
        case File():
            return changes[path].clean if path in changes else node
        case Folder():
            return replace(
                node, children={name: _cleaned(child, path / name, changes) for name, child in node.children.items()}
            )
        case _:
            return node
