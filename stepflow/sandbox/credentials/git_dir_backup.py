"""One git folder as it was at the start, and its return to that (security.md "At the end")."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.sandbox.credentials.files import (
    File,
    Folder,
    clear,
    file_of,
    folder_below,
    kind_of,
    names_in,
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

    from stepflow.sandbox.credentials.files import Budget, Node
    from stepflow.sandbox.credentials.survey import Survey
    from stepflow.sandbox.tree_walk import Aside

#: What decides which programs git starts and where it looks for configuration; `commondir` and `gitdir` would lead it
#: to another folder, `remotes` and `branches` name remotes as configuration does.
_NAMES = ("hooks", "info", "commondir", "gitdir", "remotes", "branches")
#: The same in folders that a run works in: other places of objects, and objects that stand for others.
_NAMES_BELOW = {"objects/info": ("alternates", "http-alternates"), "refs": ("replace",)}
#: Where git keeps the folders of submodules and of other work trees.
_REPOSITORIES = ("modules", "worktrees")
_REPLACED_REFS = b" refs/replace/"
#: What a run works on. An include that lies there does not count as configuration alone.
_WORK = frozenset({"HEAD", "index", "logs", "lfs", "modules", "objects", "packed-refs", "refs", "worktrees"})


@dataclass(frozen=True, kw_only=True)
class GitDirState:
    """All that is remembered. `number` tells the folder apart from another one at its path; `is_inside` is False for
    one that others share, such as the repository of a linked work tree; `gitlinks` is None where the index could not be
    read; `packed_replaced` are the lines of `packed-refs` that replace objects."""

    path: Path
    is_inside: bool
    number: tuple[int, int]
    mode: int
    nodes: Mapping[str, Node | None]
    nodes_below: Mapping[str, Mapping[str, Node | None]]
    packed_replaced: frozenset[bytes]
    gitlinks: frozenset[bytes] | None
    changes: Mapping[Path, Change]


class GitDirBackup:
    """A git folder that is held open, so that another one in its place is recognized whatever its number is."""

    def __init__(self, state: GitDirState, checkout: Path, descriptor: int | None) -> None:
        #: All that is remembered of it.
        self.state = state
        self.path = state.path
        self._checkout = checkout
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path, survey: Survey, budget: Budget) -> Self:
        """The folder as it is now."""
        descriptor = os.open(path, FOLDER_FLAGS)
        info = os.fstat(descriptor)
        names = {*_NAMES, *_configurations(descriptor), *_included(path, survey)}
        state = GitDirState(
            path=path,
            is_inside=path.is_relative_to(entry_of(survey.checkout).parent),
            number=(info.st_dev, info.st_ino),
            mode=stat.S_IMODE(info.st_mode),
            nodes={name: take_node(descriptor, name, path / name, budget) for name in sorted(names)},
            nodes_below={
                subfolder: _nodes_at(path / subfolder, names, budget) for subfolder, names in _NAMES_BELOW.items()
            },
            packed_replaced=frozenset(_replacing(_packed_refs(descriptor) or b"")),
            gitlinks=_gitlinks(descriptor),
            changes={file: change for file, change in survey.changes.items() if file.is_relative_to(path)},
        )
        return cls(state, survey.checkout, descriptor)

    @classmethod
    def of_state(cls, state: GitDirState, checkout: Path) -> Self:
        """The folder of a run that could not give it back."""
        descriptor = None
        with suppress(OSError):
            descriptor = os.open(state.path, FOLDER_FLAGS)
        return cls(state, checkout, descriptor)

    @property
    def had_credentials(self) -> bool:
        """Whether something was taken out of this folder."""
        return bool(self.state.changes)

    def covers(self, path: Path) -> bool:
        """Whether this file comes back with the folder."""
        return path.is_relative_to(self.path) and path.relative_to(self.path).parts[0] in self.state.nodes

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
        return self.state.number

    def close(self) -> None:
        """Let the folder go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def replaced(self) -> str:
        """What stands in its place; empty when nothing does. Nothing of the tools is alive, so that stays so."""
        places = [self.path, *self.path.parents] if self.path.is_relative_to(self._checkout) else [self.path]
        for each in places:
            if each == self._checkout:
                break
            try:
                info = each.lstat()
            except OSError as exc:
                return f"{each} is gone: {exc.strerror}"
            if not stat.S_ISDIR(info.st_mode):
                return f"{each} was replaced by something that is no folder"
            if each == self.path and (info.st_dev, info.st_ino) != self.number:
                return f"{each} was replaced by another folder"
        return ""

    def _restore(self, folder: int, aside: Aside, known: Set[Path]) -> None:
        _set_mode(folder, self.state.mode | stat.S_IRWXU)
        self._put(folder, aside, clean=True)
        for subfolder, nodes in self.state.nodes_below.items():
            _put_below(folder, subfolder, nodes, aside)
        _drop_new_replaced(folder, self.state.packed_replaced, aside)
        if self.state.is_inside:
            for name in _REPOSITORIES:
                _remove_unknown(folder, name, self.path / name, known, aside)
            _drop_new_gitlinks(folder, self.state.gitlinks, aside)
        remove_unfinished(folder, aside)
        _set_mode(folder, self.state.mode)

    def _return(self, folder: int, aside: Aside) -> None:
        _set_mode(folder, self.state.mode | stat.S_IRWXU)
        self._put(folder, aside, clean=False)
        _set_mode(folder, self.state.mode)

    def _put(self, folder: int, aside: Aside, *, clean: bool) -> None:
        nodes = self.state.nodes
        added = set(_configurations(folder)) - nodes.keys()
        for name in (*nodes, *added):
            node = nodes.get(name)
            shown = _cleaned(node, self.path / name, self.state.changes) if node and clean else node
            put_node(folder, name, shown, aside)


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


def _nodes_at(subfolder: Path, names: tuple[str, ...], budget: Budget) -> dict[str, Node | None]:
    if not subfolder.is_dir():
        return dict.fromkeys(names)
    with opened_folder(subfolder.resolve()) as folder:
        return {name: take_node(folder, name, subfolder / name, budget) for name in names}


def _put_below(folder: int, subfolder: str, nodes: Mapping[str, Node | None], aside: Aside) -> None:
    first, _, rest = subfolder.partition("/")
    kind = kind_of(folder, first)
    if kind is None and not any(nodes.values()):
        return
    if kind != stat.S_IFDIR:
        raise NotADirectoryError(0, f"{first} is no folder")
    with folder_below(folder, first) as inner:
        if rest:
            _put_below(inner, rest, nodes, aside)
            return
        for name, node in nodes.items():
            put_node(inner, name, node, aside)
        remove_unfinished(inner, aside)


def _drop_new_replaced(folder: int, known: Set[bytes], aside: Aside) -> None:
    """Objects that stand for others would show every later step another history."""
    packed = _packed_refs(folder)
    if packed and (new := _replacing(packed) - known):
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
