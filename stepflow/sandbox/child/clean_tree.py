"""What differs from a commit in the work tree, by the rules of the run's start (security.md cases 14 and 34).

An index, `info/exclude`, configuration, attributes, filters or a tracked `.gitignore` that say something else than at
the start have no voice in it, and nothing of the checkout is run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from .engine_git import engine_git
from .footing import check_footing
from .git import git, listing
from .paths import digest
from .rules import ignore_rules
from .start import NESTED_IGNORES, Start, read_start, rules_by_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .engine_git import EngineGit, Repository
    from .family import Family

_LINES_LIMIT = 1000
_MOST_NESTED = 500
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")
_UNTRACKED = "??"
_CHANGED = " M"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A line of `git status`, two letters and a path, with a word that changes with what stands there."""

    state: str
    path: str
    trace: str

    def __str__(self) -> str:
        return f"{self.state} {_quoted(self.path)}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at the work tree: HEAD's commit, the commit that it was compared with and its tree, what differs, and
    the ignore files of folders that are new since the start."""

    head: str
    commit: str
    tree: str
    tracked: tuple[Difference, ...] = ()
    untracked: tuple[Difference, ...] = ()
    new_ignores: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All of them."""
        return (*self.tracked, *self.untracked)

    def moved_since(self, before: Look) -> tuple[str, ...]:
        """Which tracked paths are not what they were, and HEAD if it moved."""
        then, now = _by_path(before.tracked), _by_path(self.tracked)
        paths = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
        head = (f"HEAD (from {before.head[:12]} to {self.head[:12]})",) if self.head != before.head else ()
        return (*head, *map(_quoted, paths))


class TreeWatch:
    """Looks at one checkout; `begin` comes before any tool has run."""

    def __init__(self, family: Family, repository: Repository, fingerprint: dict[str, str]) -> None:
        self._family, self._repository, self._fingerprint = family, repository, fingerprint
        self._start: Start | None = None
        self._index: tuple[tuple[object, ...], bytes] | None = None

    def begin(self) -> Look:
        """Remember the rules as they are; what they find now although git does not show it is excused from here on."""
        start = read_start(self._family, self._repository.top)
        self._start = start
        found = self.look()
        if not found.differences:
            return found
        shown = frozenset(record[3:] for record in listing(git(self._family, *_STATUS)))
        excused = {one.path: one.trace for one in found.differences if not _is_shown(one, shown)}
        self._start = replace(start, excused=excused)
        return replace(found, tracked=self._kept(found.tracked), untracked=self._kept(found.untracked))

    def look(self, commit: str = "") -> Look:
        """Compare the work tree with the commit, by default HEAD's. Raises `Refusal`."""
        start = self._start or self._begun()
        check_footing(self._repository.top, self._fingerprint)
        head = self._repository.head()
        against = commit or head
        with engine_git(
            self._family, self._repository, against, settings=start.settings, attributes=start.attributes
        ) as own:
            self._read_index(own, (against, start.settings, start.attributes))
            tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
            changed = own.ask(*_STATUS, "--untracked-files=no", "--ignore-submodules=dirty")
            tracked = [self._difference(record[:2], record[3:]) for record in changed]
            nested, others = _untracked(own, start)
        return Look(
            head=head,
            commit=against,
            tree=tree,
            tracked=self._kept((*tracked, *self._of_submodules(start))),
            untracked=self._kept(self._difference(_UNTRACKED, path) for path in others),
            new_ignores=tuple(path for path in nested if path not in start.nested),
        )

    def _read_index(self, own: EngineGit, key: tuple[object, ...]) -> None:
        """An index of the commit that knows the files' times, so that only what was touched since is read again.
        Between two looks it lies in this process alone."""
        known = self._index if self._index and self._index[0] == key else None
        if known:
            own.write("index", known[1])
        else:
            own.ask("read-tree", "HEAD")
        own.refresh_index()
        self._index = (key, own.read("index"))

    def _begun(self) -> Start:
        self.begin()
        assert self._start  # noqa: S101 - `begin` sets it or raises
        return self._start

    def _difference(self, state: str, path: str) -> Difference:
        return Difference(state=state, path=path, trace=f"{state} {digest(os.path.join(self._repository.top, path))}")

    def _of_submodules(self, start: Start) -> Iterable[Difference]:
        for path, before in start.submodule_files.items():
            if digest(os.path.join(self._repository.top, path)) != before:
                yield self._difference(_CHANGED, path)

    def _kept(self, found: Iterable[Difference]) -> tuple[Difference, ...]:
        excused = self._start.excused if self._start else {}
        return tuple(one for one in found if excused.get(one.path) != one.trace)


def lines(found: Iterable[Difference]) -> list[str]:
    """As `git status` writes them, the first thousand."""
    return [str(one) for one in islice(found, _LINES_LIMIT)]


def _untracked(own: EngineGit, start: Start) -> tuple[list[str], list[str]]:
    """New ignore files of folders, which tools write for their caches; what is untracked by them and the start's."""
    rules = own.write("rules", start.ignores)
    excluded = f"--exclude-from={rules}"
    listed = own.ask("ls-files", "--cached", "--others", "-z", excluded, "--", NESTED_IGNORES)
    nested = [path for path in listed if path.endswith("/.gitignore") and path not in start.tracked_ignores]
    nested = nested[:_MOST_NESTED]
    own.write("rules", start.ignores + ignore_rules(rules_by_folder(own.top, nested)))
    return nested, own.ask("ls-files", "--others", "--directory", "--no-empty-directory", "-z", excluded)


def _by_path(found: Iterable[Difference]) -> Mapping[str, str]:
    return {one.path: one.trace for one in found}


def _is_shown(one: Difference, shown: frozenset[str]) -> bool:
    parts = one.path.split("/")
    return one.path in shown or any("/".join(parts[:depth]) + "/" in shown for depth in range(1, len(parts)))


def _quoted(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    octal = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in path.encode())
    return f'"{"".join(octal)}"'
