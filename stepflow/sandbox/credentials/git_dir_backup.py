"""One git folder as it was at the start, and its return to that (security.md "At the end")."""

from __future__ import annotations

import base64
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepflow.sandbox.credentials.files import (
    File,
    Folder,
    clear,
    file_of,
    folder_below,
    kind_of,
    names_in,
    node_of,
    node_record,
    opened_folder,
    put_node,
    read_file,
    remove_unfinished,
    take_node,
)
from stepflow.sandbox.credentials.gitlinks import UnreadableIndex, gitlinks_in, without_gitlinks
from stepflow.sandbox.credentials.survey import Change, entry_of
from stepflow.sandbox.tree_walk import FOLDER_FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from stepflow.domain.json import JsonObject
    from stepflow.sandbox.credentials.files import Budget, Node
    from stepflow.sandbox.credentials.survey import Survey
    from stepflow.sandbox.tree_walk import Aside

#: What decides which programs git starts and where it looks for configuration; `commondir` and `gitdir` would lead it
#: to another folder, `remotes` and `branches` name remotes as configuration does.
_NAMES = ("hooks", "info", "commondir", "gitdir", "remotes", "branches")
_ALTERNATES = ("alternates", "http-alternates")
#: Where git keeps the folders of submodules and of other work trees.
_REPOSITORIES = ("modules", "worktrees")
_REPLACED_REFS = b" refs/replace/"
#: What a run works on. An include that lies there is not taken for configuration alone.
_WORK = frozenset({"HEAD", "index", "logs", "lfs", "modules", "objects", "packed-refs", "refs", "worktrees"})


@dataclass(frozen=True, kw_only=True)
class _State:
    """All that is remembered. `number` tells the folder apart from another one at its path; `is_inside` is False for
    one that others share, such as the repository of a linked work tree; `gitlinks` is None where the index could not be
    read; `packed_replaced` are the lines of `packed-refs` that replace objects."""

    path: Path
    is_inside: bool
    number: tuple[int, int]
    mode: int
    nodes: Mapping[str, Node | None]
    alternates: Mapping[str, Node | None]
    loose_replaced: Node | None
    packed_replaced: frozenset[bytes]
    gitlinks: frozenset[bytes] | None
    changes: Mapping[Path, Change]


class GitDirBackup:
    """A git folder that is held open, so that another one in its place is recognized whatever its number is."""

    def __init__(self, state: _State, checkout: Path, descriptor: int | None) -> None:
        self.path = state.path
        self._state = state
        self._checkout = checkout
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path, survey: Survey, budget: Budget) -> Self:
        """The folder as it is now."""
        descriptor = os.open(path, FOLDER_FLAGS)
        info = os.fstat(descriptor)
        names = {*_NAMES, *_configurations(descriptor), *_included(path, survey)}
        state = _State(
            path=path,
            is_inside=path.is_relative_to(entry_of(survey.checkout).parent),
            number=(info.st_dev, info.st_ino),
            mode=stat.S_IMODE(info.st_mode),
            nodes={name: take_node(descriptor, name, path / name, budget) for name in sorted(names)},
            alternates=_take_alternates(path, budget),
            loose_replaced=_take_replaced(descriptor, path, budget),
            packed_replaced=frozenset(_replacing(_packed_refs(descriptor) or b"")),
            gitlinks=_gitlinks(descriptor),
            changes={file: change for file, change in survey.changes.items() if file.is_relative_to(path)},
        )
        return cls(state, survey.checkout, descriptor)

    @classmethod
    def of_record(cls, record: Mapping[str, Any], checkout: Path) -> Self:
        """The folder of a run that could not give it back."""
        path = Path(record["path"])
        state = _State(
            path=path,
            is_inside=record["is_inside"],
            number=tuple(record["number"]),
            mode=record["mode"],
            nodes={name: node_of(node) for name, node in record["nodes"].items()},
            alternates={name: node_of(node) for name, node in record["alternates"].items()},
            loose_replaced=node_of(record["loose_replaced"]),
            packed_replaced=frozenset(map(base64.b64decode, record["packed_replaced"])),
            gitlinks=None if record["gitlinks"] is None else frozenset(map(base64.b64decode, record["gitlinks"])),
            changes={Path(file): Change.of_record(change) for file, change in record["changes"].items()},
        )
        descriptor = None
        with suppress(OSError):
            descriptor = os.open(path, FOLDER_FLAGS)
        return cls(state, checkout, descriptor)

    def record(self) -> JsonObject:
        """All that `of_record` needs."""
        state = self._state
        return {
            "path": str(state.path),
            "is_inside": state.is_inside,
            "number": list(state.number),
            "mode": state.mode,
            "nodes": {name: node_record(node) for name, node in state.nodes.items()},
            "alternates": {name: node_record(node) for name, node in state.alternates.items()},
            "loose_replaced": node_record(state.loose_replaced),
            "packed_replaced": [base64.b64encode(line).decode() for line in sorted(state.packed_replaced)],
            "gitlinks": None
            if state.gitlinks is None
            else [base64.b64encode(name).decode() for name in sorted(state.gitlinks)],
            "changes": {str(path): change.record() for path, change in state.changes.items()},
        }

    @property
    def had_credentials(self) -> bool:
        """Whether something was taken out of this folder."""
        return bool(self._state.changes)

    def covers(self, path: Path) -> bool:
        """Whether this file comes back with the folder."""
        return path.is_relative_to(self.path) and path.relative_to(self.path).parts[0] in self._state.nodes

    def restore(self, aside: Aside, known: Set[Path]) -> str:
        """Restore everything but the credentials in a folder that was not replaced; what kept it from that, empty when
        nothing did. `known` are all git folders of the start."""
        return _problem_of(lambda: self._restore(self._descriptor or 0, aside, known), self.path)

    def return_credentials(self, aside: Aside) -> str:
        """Put the credentials back into a folder that was restored; what kept them from coming back."""
        return _problem_of(lambda: self._return(self._descriptor or 0, aside), self.path)

    @property
    def number(self) -> tuple[int, int]:
        """What tells the folder apart from others on this machine."""
        return self._state.number

    def close(self) -> None:
        """Let the folder go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def replaced(self) -> str:
        """What stands in its place; empty when nothing does. Nothing of the tools is alive, so that stays so."""
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
            if way == self.path and (info.st_dev, info.st_ino) != self.number:
                return f"{way} was replaced by another folder"
        return ""

    def _restore(self, folder: int, aside: Aside, known: Set[Path]) -> None:
        _set_mode(folder, self._state.mode | stat.S_IRWXU)
        self._put(folder, aside, clean=True)
        self._put_alternates(aside)
        _put_replaced(folder, self._state, aside)
        if self._state.is_inside:
            for name in _REPOSITORIES:
                _remove_unknown(folder, name, self.path / name, known, aside)
            _drop_new_gitlinks(folder, self._state.gitlinks, aside)
        remove_unfinished(folder, aside)
        _set_mode(folder, self._state.mode)

    def _return(self, folder: int, aside: Aside) -> None:
        _set_mode(folder, self._state.mode | stat.S_IRWXU)
        self._put(folder, aside, clean=False)
        _set_mode(folder, self._state.mode)

    def _put(self, folder: int, aside: Aside, *, clean: bool) -> None:
        nodes = self._state.nodes
        added = set(_configurations(folder)) - nodes.keys()
        for name in (*nodes, *added):
            node = nodes.get(name)
            shown = _cleaned(node, self.path / name, self._state.changes) if node and clean else node
            put_node(folder, name, shown, aside)

    def _put_alternates(self, aside: Aside) -> None:
        objects = self.path / "objects"
        info = objects / "info"
        if not os.path.lexists(info) and not any(self._state.alternates.values()):
            return
        if objects.is_symlink():
            raise NotADirectoryError(0, f"{objects} was replaced by a link")
        with opened_folder(info) as folder:
            for name, node in self._state.alternates.items():
                put_node(folder, name, node, aside)
            remove_unfinished(folder, aside)


def put_if_untouched(path: Path, change: Change, aside: Aside) -> None:
    """Give a file back that the run may have written to as part of its work: only as long as nobody did."""
    try:
        with opened_folder(path.parent) as folder:
            is_clean = kind_of(folder, path.name) == stat.S_IFREG and read_file(folder, path.name) == change.clean.data
            if is_clean:
                put_node(folder, path.name, change.original, aside)
            remove_unfinished(folder, aside)
    except OSError:
        # Its folder is gone or is none any more.
        return


def _take_alternates(path: Path, budget: Budget) -> dict[str, Node | None]:
    place = path / "objects" / "info"
    if not place.is_dir():
        return dict.fromkeys(_ALTERNATES)
    with opened_folder(place.resolve()) as folder:
        return {name: take_node(folder, name, place / name, budget) for name in _ALTERNATES}


def _take_replaced(folder: int, path: Path, budget: Budget) -> Node | None:
    if kind_of(folder, "refs") != stat.S_IFDIR:
        return None
    with folder_below(folder, "refs") as refs:
        return take_node(refs, "replace", path / "refs/replace", budget)


def _put_replaced(folder: int, state: _State, aside: Aside) -> None:
    """Objects that stand for others would show every later step another history."""
    match kind_of(folder, "refs"):
        case None:
            pass
        case stat.S_IFDIR:
            with folder_below(folder, "refs") as refs:
                put_node(refs, "replace", state.loose_replaced, aside)
                remove_unfinished(refs, aside)
        case _:
            raise NotADirectoryError(0, f"{state.path / 'refs'} is no folder")
    packed = _packed_refs(folder)
    if packed and (new := _replacing(packed) - state.packed_replaced):
        lines = b"".join(line for line in packed.splitlines(keepends=True) if line.rstrip(b"\n") not in new)
        _rewrite(folder, "packed-refs", lines, aside)


def _packed_refs(folder: int) -> bytes | None:
    return read_file(folder, "packed-refs") if kind_of(folder, "packed-refs") == stat.S_IFREG else None


def _replacing(packed: bytes) -> frozenset[bytes]:
    if _REPLACED_REFS not in packed:
        return frozenset()
    return frozenset(line for line in packed.split(b"\n") if _REPLACED_REFS in line)


def _remove_unknown(folder: int, name: str, path: Path, known: Set[Path], aside: Aside) -> None:
    """Remove the git folders below a name that were not there at the start, and whatever else is new there."""
    if kind_of(folder, name) != stat.S_IFDIR or not any(each.is_relative_to(path) for each in known):
        clear(folder, name, aside)
        return
    with folder_below(folder, name) as inner:
        for child in names_in(inner):
            if path / child not in known:
                _remove_unknown(inner, child, path / child, known, aside)


def _gitlinks(folder: int) -> frozenset[bytes] | None:
    """None for an index that cannot be read."""
    if kind_of(folder, "index") is None:
        return frozenset()
    try:
        return gitlinks_in(read_file(folder, "index"))
    except (OSError, UnreadableIndex):
        return None


def _drop_new_gitlinks(folder: int, known: frozenset[bytes] | None, aside: Aside) -> None:
    """A gitlink lets git look into another repository, with that one's configuration."""
    now = _gitlinks(folder)
    if now is None and known is not None:
        raise OSError(0, "its index cannot be read")
    if now and known is not None and now - known:
        try:
            _rewrite(folder, "index", without_gitlinks(read_file(folder, "index"), now - known), aside)
        except UnreadableIndex:
            raise OSError(0, "its index cannot be read") from None


def _rewrite(folder: int, name: str, data: bytes, aside: Aside) -> None:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    put_node(folder, name, replace(file_of(data, info), names=1), aside)


def _set_mode(folder: int, mode: int) -> None:
    if stat.S_IMODE(os.fstat(folder).st_mode) != mode:
        os.fchmod(folder, mode)


def _problem_of(work: Callable[[], None], path: Path) -> str:
    try:
        work()
    except (OSError, RecursionError) as exc:
        return f"{path} could not be restored: {exc.strerror if isinstance(exc, OSError) else exc}"
    return ""


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
