"""Git folders as they were at the start, their return to that, and nothing new that acts (security.md "At the end")."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepflow.sandbox.credentials.files import (
    Node,
    Tree,
    clear,
    folder_below,
    kind_of,
    names_in,
    opened_folder,
    put_tree,
    read_file,
    read_tree,
    remove_unfinished,
    text_of,
    tree_of,
)
from stepflow.sandbox.credentials.gitlinks import UnreadableIndex, gitlinks_in, without_gitlinks
from stepflow.sandbox.tree_walk import ASIDE, noted, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

    from stepflow.sandbox.credentials.files import Budget
    from stepflow.sandbox.credentials.survey import Survey
    from stepflow.sandbox.tree_walk import Aside

#: What decides which programs git starts and where it looks for configuration; `commondir` and `gitdir` would lead it
#: to another folder, `remotes` and `branches` name remotes as configuration does, `objects/info` has other places of
#: objects, `refs/replace` objects that stand for others.
_PROTECTED = (
    *("hooks", "info", "commondir", "gitdir", "remotes", "branches"),
    *("objects/info/alternates", "objects/info/http-alternates", "refs/replace"),
)
#: Where git keeps the folders of submodules and of other work trees.
_REPOSITORIES = ("modules", "worktrees")
_REPLACED_REFS = b" refs/replace/"
#: What a run works on. An include that lies there does not count as configuration alone.
_WORK = frozenset({"HEAD", "index", "logs", "lfs", "modules", "objects", "packed-refs", "refs", "worktrees"})
_GIT = ".git"
#: What of a new git folder stays, and as what it must stand there.
_EXPECTED = {
    **dict.fromkeys(("HEAD", "index", "packed-refs", "shallow", "description"), stat.S_IFREG),
    **dict.fromkeys(("objects", "refs", "logs"), stat.S_IFDIR),
}
_CONFIGURATION = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


@dataclass(frozen=True, kw_only=True)
class GitFolder:
    """All that is remembered. `number` tells the folder apart from another one at its path; `is_inside` is False for
    one that others share, such as the repository of a linked work tree; `trees` are what it protects, as tools see it;
    `gitlinks` is None where the index could not be read; `replacing` are the lines of `packed-refs` that replace
    objects."""

    path: Path
    is_inside: bool
    number: str
    mode: int
    trees: dict[str, Tree]
    replacing: tuple[str, ...]
    gitlinks: tuple[str, ...] | None

    @classmethod
    def remember(cls, path: Path, survey: Survey, budget: Budget) -> Self:
        """The folder as it is now, without its credentials."""
        with opened_folder(path) as folder:
            included = {file.relative_to(path).parts[0] for file in survey.led_from if file.is_relative_to(path)}
            places = {*_PROTECTED, *_configurations(folder), *(included - _WORK)}
            return cls(
                path=path,
                is_inside=path.is_relative_to(survey.entries[0].parent),
                number=number_of(folder),
                mode=stat.S_IMODE(os.fstat(folder).st_mode),
                trees={place: _shown_tree(folder, path, place, survey, budget) for place in sorted(places)},
                replacing=tuple(text_of(line) for line in _packed_refs(folder) if _REPLACED_REFS in line),
                gitlinks=_gitlinks(folder),
            )

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """A folder that was written as JSON."""
        trees = {place: tree_of(nodes) for place, nodes in record["trees"].items()}
        return cls(**{**record, "path": Path(record["path"]), "trees": trees})

    def replaced(self) -> str:
        """What stands in its place; empty when nothing does. Nothing of the tools is alive, so that stays so."""
        try:
            with self._opened() as folder:
                is_same = number_of(folder) == self.number
        except NotADirectoryError:
            return f"{self.path} was replaced by something that is no folder"
        except OSError as exc:
            return f"{self.path} is gone: {exc.strerror}"
        return "" if is_same else f"{self.path} was replaced by another folder"

    def restore(self, aside: Aside, known: Set[Path]) -> str:
        """Restore everything but the credentials in a folder that was not replaced; what kept it from that, empty when
        nothing did. `known` are all git folders of the start."""
        try:
            with self._opened() as folder:
                self._restore(folder, aside, known)
        except OSError as exc:
            return f"{self.path} could not be restored: {exc.strerror}"
        return ""

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with opened_folder(self.path.parent) as parent, folder_below(parent, self.path.name) as folder:
            yield folder

    def _restore(self, folder: int, aside: Aside, known: Set[Path]) -> None:
        _set_mode(folder, self.mode | stat.S_IRWXU)
        for place in (*self.trees, *(set(_configurations(folder)) - self.trees.keys())):
            *above, name = place.split("/")
            tree = self.trees.get(place, ())
            try:
                with folder_below(folder, *above) as parent:
                    put_tree(parent, name, tree, aside)
                    remove_unfinished(parent, aside)
            except FileNotFoundError:
                if tree:
                    raise
        self._drop_new_replacements(folder, aside)
        if self.is_inside:
            for name in _REPOSITORIES:
                _remove_unknown(folder, name, self.path / name, known, aside)
            self._drop_new_gitlinks(folder, aside)
        _set_mode(folder, self.mode)

    def _drop_new_replacements(self, folder: int, aside: Aside) -> None:
        """Objects that stand for others would show every later step another history."""
        lines = _packed_refs(folder)
        remaining = [line for line in lines if _REPLACED_REFS not in line or text_of(line) in self.replacing]
        if remaining != lines:
            _rewrite(folder, "packed-refs", b"\n".join(remaining), aside)

    def _drop_new_gitlinks(self, folder: int, aside: Aside) -> None:
        """A gitlink lets git look into another repository, with that one's configuration."""
        if self.gitlinks is None:
            return
        now = _gitlinks(folder)
        if now is None:
            raise OSError(0, "its index cannot be read")
        if new := set(now) - set(self.gitlinks):
            _rewrite(folder, "index", without_gitlinks(read_file(folder, "index"), new), aside)


def number_of(folder: int) -> str:
    """What tells an open folder apart from others on this machine."""
    info = os.fstat(folder)
    return f"{info.st_dev} {info.st_ino}"


def _shown_tree(folder: int, path: Path, place: str, survey: Survey, budget: Budget) -> Tree:
    """What stands there, each file as tools see it."""
    *above, name = place.split("/")
    tree: Tree = ()
    with suppress(FileNotFoundError, NotADirectoryError), folder_below(folder, *above) as parent:
        tree = read_tree(parent, name, path / place, budget)
    shown = []
    for node in tree:
        change = survey.changes.get(Path(f"{path / place}{node.path}"))
        shown.append(node.with_content(change.shown) if change else node)
    return tuple(shown)


def _set_mode(folder: int, mode: int) -> None:
    if stat.S_IMODE(os.fstat(folder).st_mode) != mode:
        os.fchmod(folder, mode)


def _configurations(folder: int) -> list[str]:
    return [name for name in names_in(folder) if name.startswith("config")]


def _packed_refs(folder: int) -> list[bytes]:
    is_file = kind_of(folder, "packed-refs") == stat.S_IFREG
    return read_file(folder, "packed-refs").split(b"\n") if is_file else []


def _gitlinks(folder: int) -> tuple[str, ...] | None:
    """None for an index that cannot be read."""
    if kind_of(folder, "index") is None:
        return ()
    try:
        return tuple(sorted(gitlinks_in(read_file(folder, "index"))))
    except (OSError, UnreadableIndex):
        return None


def _rewrite(folder: int, name: str, data: bytes, aside: Aside) -> None:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    file = Node(mode=info.st_mode, uid=info.st_uid, gid=info.st_gid, content=text_of(data))
    put_tree(folder, name, (file,), aside)


def _remove_unknown(folder: int, name: str, path: Path, known: Set[Path], aside: Aside) -> None:
    """Remove the git folders below a name that were not there at the start, and whatever else is new there."""
    if kind_of(folder, name) != stat.S_IFDIR or not any(each.is_relative_to(path) for each in known):
        clear(folder, name, aside)
        return
    with folder_below(folder, name) as inner:
        for child in names_in(inner):
            if path / child not in known:
                _remove_unknown(inner, child, path / child, known, aside)


def disarm_new_git(
    checkout: Path, pointers: Mapping[str, Tree], folders: Set[str], aside: Aside
) -> tuple[list[str], list[str]]:
    """Let no `.git` act that is new. A new git folder keeps its commits and loses whatever can start a program or lead
    git elsewhere; a new `.git` file or link can lead anywhere, and is removed.

    `pointers` are the `.git` files and links of the start, `folders` its git folders by their numbers. Gives what was
    removed, and what kept us from looking everywhere.
    """
    removed: list[str] = []
    left: list[str] = []
    with noted(b"", left):
        for entry in walk(checkout, left, closed=frozenset({os.fsencode(_GIT)})):
            if os.fsdecode(entry.name) != _GIT or not entry.path:
                continue
            path = checkout / os.fsdecode(entry.path[1:])
            with noted(entry.path, left):
                if str(path) in pointers:
                    put_tree(entry.folder, _GIT, pointers[str(path)], aside)
                elif kind_of(entry.folder, _GIT) != stat.S_IFDIR:
                    clear(entry.folder, _GIT, aside)
                    removed.append(str(path.relative_to(checkout)))
                else:
                    with folder_below(entry.folder, _GIT) as folder:
                        if number_of(folder) not in folders:
                            _disarm(folder, aside)
    return sorted(removed), left


def _disarm(folder: int, aside: Aside) -> None:
    for name in names_in(folder):
        if name != "config" and not name.startswith(ASIDE) and kind_of(folder, name) != _EXPECTED.get(name, 0):
            clear(folder, name, aside)
    if _gitlinks(folder) != ():
        clear(folder, "index", aside)
    info = os.fstat(folder)
    config = Node(mode=stat.S_IFREG | 0o644, uid=info.st_uid, gid=info.st_gid, content=_CONFIGURATION)
    put_tree(folder, "config", (config,), aside)
    if kind_of(folder, "objects") == stat.S_IFDIR:
        with folder_below(folder, "objects") as objects:
            # Here stands where else git looks for objects.
            clear(objects, "info", aside)
