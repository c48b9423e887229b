"""Takes every credential out of a checkout while tools live in it, and gives all back (security.md "At the end")."""

from __future__ import annotations

import base64
import json
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepflow.errors import IsolationError
from stepflow.sandbox.credentials.files import (
    Budget,
    Tree,
    bytes_of,
    folder_below,
    opened_folder,
    put_tree,
    read_file,
    read_tree,
    remove_unfinished,
    tree_of,
)
from stepflow.sandbox.credentials.git_folder import GitFolder, disarm_new_git
from stepflow.sandbox.credentials.survey import Change, Survey
from stepflow.sandbox.tree_walk import FOLDER_FLAGS, Aside

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_RETURNED = (
    "so the credentials that the checkout had are not given back: what stands there now could use them. "
    "Check the repository out again before a later step needs them."
)
_LEFT = (
    "so what git does there is not certain to be what it did before. Check the repository out again for later steps."
)
_MOST_SHOWN = 5


def find_credentials(checkout: Path, runner_temp: Path | None = None, login_files: tuple[Path, ...] = ()) -> Survey:
    """Look for credentials and change nothing. Raises `IsolationError` for a configuration that git cannot read."""
    return Survey(checkout, runner_temp, login_files)


@dataclass(frozen=True, kw_only=True)
class OriginalCheckout:
    """All that is known of a checkout whose credentials are away. `entry` is the `.git` that git finds; `pointers` are
    those that are files or links."""

    entry: Path
    pointers: dict[str, Tree]
    folders: tuple[GitFolder, ...]
    changes: tuple[Change, ...]


class StrippedCredentials:
    """The credentials of one checkout while they are away, and git's files there as they were."""

    def __init__(self, checkout: Path, original: OriginalCheckout) -> None:
        self._checkout = checkout.resolve()
        self._original = original
        #: Git folders are held open, so that no other one in the place of one has its number.
        self._held = ExitStack()

    @classmethod
    def find(cls, survey: Survey) -> Self:
        """Remember what will come back; nothing is changed yet."""
        budget = Budget()
        original = OriginalCheckout(
            entry=survey.entries[0],
            pointers={
                str(entry): _tree_at(entry, budget)
                for entry in survey.entries
                if os.path.lexists(entry) and (entry.is_symlink() or not entry.is_dir())
            },
            folders=tuple(GitFolder.remember(path, survey, budget) for path in survey.folders),
            changes=tuple(survey.changes.values()),
        )
        return cls(survey.checkout, original)

    def take(self) -> None:
        """Take away what was found."""
        for folder in self._original.folders:
            self._held.callback(os.close, os.open(folder.path, FOLDER_FLAGS))
        for change in self._original.changes:
            try:
                with opened_folder(change.path.parent) as parent:
                    put_tree(parent, change.path.name, _shown(change), Aside(parent))
            except OSError as exc:
                raise IsolationError(
                    f"The credential in {change.path} cannot be taken away from the tools: {exc.strerror}.",
                    hint="Check the repository out with `persist-credentials: false`, or correct the file's rights.",
                ) from exc

    def record(self) -> str:
        """All that `of_record` needs, encoded so that no secret stands in a file word for word."""
        return base64.b64encode(json.dumps(asdict(self._original), default=os.fspath).encode()).decode()

    @classmethod
    def of_record(cls, checkout: Path, text: str) -> Self:
        """What a run has taken away that could not give it back. Raises `KeyError` or `TypeError` for a record of
        another form."""
        record: Any = json.loads(base64.b64decode(text))
        original = OriginalCheckout(
            entry=Path(record["entry"]),
            pointers={path: tree_of(nodes) for path, nodes in record["pointers"].items()},
            folders=tuple(map(GitFolder.of_record, record["folders"])),
            changes=tuple(map(Change.of_record, record["changes"])),
        )
        return cls(checkout, original)

    def give_back(self) -> tuple[str, ...]:
        """Give back what was taken, in the order in which it matters: git's own files, then nothing new that could
        act, then the credentials. Nothing of the tools may be alive. Gives what people must know."""
        if not self._checkout.is_dir():
            # Only what lies outside can come back, and nothing can use it there.
            said = [_put_back(change, None, comes_back=True) for change in self._original.changes]
            return tuple(problem for problem in said if problem)
        with self._aside_folder() as parent:
            aside = Aside(parent)
            try:
                return tuple(dict.fromkeys(self._give_back(aside)))
            finally:
                aside.close()

    def remove_aside(self) -> None:
        """Remove what was only moved out of the way, which may take long."""
        with suppress(OSError), self._aside_folder() as parent:
            Aside(parent).remove()

    def close(self) -> None:
        """Let go what is held open."""
        self._held.close()

    @contextmanager
    def _aside_folder(self) -> Iterator[int]:
        """Where to put aside what is removed later: in git's own folder, where nobody looks, or in the checkout."""
        entry = self._original.entry
        if entry.is_dir() and not entry.is_symlink():
            with opened_folder(entry.parent) as parent, folder_below(parent, entry.name) as folder:
                yield folder
        else:
            with opened_folder(self._checkout) as folder:
                yield folder

    def _give_back(self, aside: Aside) -> list[str]:
        folders = self._original.folders
        changed = self._changed_entry()
        # Looked at before anything is removed, which may be what leads to the next one.
        replaced = {folder.path: folder.replaced() for folder in folders}
        problems = {each.path: replaced[each.path] or each.restore(aside, replaced.keys()) for each in folders}
        same = {folder.number for folder in folders if not replaced[folder.path]}
        removed, left = disarm_new_git(self._checkout, self._original.pointers, same, aside)
        unseen = f"{'; '.join(left[:3])}: it could not be looked at whole" if left else ""
        # A nested repository without credentials may come and go; that is the run's own work.
        matter = {path for change in self._original.changes if change.had_credential for path in change.folders}
        fate = _NOT_RETURNED if matter else _LEFT
        matter |= {folder.path for folder in folders[:1]}
        said = [changed, *(problem for path, problem in problems.items() if path in matter), unseen]
        blocked = changed or unseen or (folders and problems[folders[0].path])
        lost = {path for path, problem in problems.items() if problem}
        for change in self._original.changes:
            comes_back = not blocked and lost.isdisjoint(change.folders)
            said.append(_put_back(change, aside, comes_back=comes_back))
        notes = [f"{problem}; {fate}" for problem in said if problem]
        if removed:
            more = f" and {len(removed) - _MOST_SHOWN} more" if len(removed) > _MOST_SHOWN else ""
            shown = f"{', '.join(removed[:_MOST_SHOWN])}{more}"
            notes.append(f"the tools made {shown}, which can lead git anywhere; that was removed")
        return notes

    def _changed_entry(self) -> str:
        """Whether the checkout's `.git`, when it is a file or a link, is not what it was."""
        entry = self._original.entry
        was = self._original.pointers.get(str(entry), ())
        now: Tree = ()
        with suppress(OSError, IsolationError):
            now = _tree_at(entry, Budget()) if was else ()
        kinds = [[(stat.S_IFMT(node.mode), node.content) for node in tree] for tree in (was, now)]
        return "" if kinds[0] == kinds[1] or not self._original.folders else f"{entry} was replaced"


def _tree_at(path: Path, budget: Budget) -> Tree:
    with opened_folder(path.parent) as folder:
        return read_tree(folder, path.name, path, budget)


def _shown(change: Change) -> Tree:
    return (change.original.with_content(change.shown),)


def _put_back(change: Change, aside: Aside | None, *, comes_back: bool) -> str:
    """Put a file back as it was, or outside the checkout at least without its credentials; what kept it from that.

    A file inside may have been written to as part of the run's work: it comes back only as long as nobody did.
    """
    name, tree = change.path.name, (change.original,) if comes_back else _shown(change)
    try:
        with opened_folder(change.path.parent) as folder:
            own = aside or Aside(folder)
            remove_unfinished(folder, own)
            if not change.is_inside or (comes_back and _holds(folder, name, change.shown)):
                put_tree(folder, name, tree, own)
    except OSError as exc:
        is_gone = change.is_inside and isinstance(exc, FileNotFoundError | NotADirectoryError)
        return "" if is_gone else f"{change.path} could not be written: {exc.strerror}"
    return ""


def _holds(folder: int, name: str, content: str) -> bool:
    info, data = os.stat(name, dir_fd=folder, follow_symlinks=False), bytes_of(content)
    return stat.S_ISREG(info.st_mode) and info.st_size == len(data) and read_file(folder, name) == data
