"""Finds what differs from a commit in the work tree by the rules of the run's start (security.md cases 14 and 34)."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from .git import check_repository_fingerprint, engine_git, git, listing, said
from .paths import FILE_FLAGS, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .child_processes import ChildProcesses
    from .git import EngineGit, Repository

#: Everything that lets a changed file look unchanged to git, back to nothing; and a macro that could be given another
#: meaning, back to its own.
_NO_ATTRIBUTES = b"""[attr]binary -diff -merge -text
* !text !eol !crlf !filter !ident !working-tree-encoding
"""
_BOM = b"\xef\xbb\xbf"
_SPECIAL = re.compile(rb"[\\*?\[]")
_BLANKS = b" \t\r\n\f\v"
_TOKEN = re.compile(rb'"(?P<quoted>(?:[^"\\]|\\.)*)"(?P<rest>[ \t].*)?|(?P<plain>[^ \t\r]+)(?P<more>.*)', re.DOTALL)
#: What decides whether a file in the work tree is the one that was committed. Filters do not belong to it, for they are
#: programs: what they make of a file is excused for as long as it stays what it was at the start.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_RULE_BYTES = 1024 * 1024
NESTED_IGNORES = ":(top,glob)*/**/.gitignore"
_SUBMODULE = "160000 "
_LINES_LIMIT = 1000
_MOST_NESTED = 500
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")
_UNTRACKED = "??"
_CHANGED = " M"


def ignore_rules(files: Mapping[str, bytes]) -> bytes:
    """The patterns of `.gitignore` files, those of deeper folders last, because the last one that fits decides."""
    return b"".join(line + b"\n" for folder in _outer_first(files) for line in _ignore_lines(folder, files[folder]))


def attribute_rules(files: Mapping[str, bytes]) -> bytes:
    """The lines of `.gitattributes` files, such that no other file has a say in how content is compared."""
    lines = (line + b"\n" for folder in _outer_first(files) for line in _attribute_lines(folder, files[folder]))
    return _NO_ATTRIBUTES + b"".join(lines)


def _outer_first(files: Mapping[str, bytes]) -> list[str]:
    """A folder with a line break in its name cannot be written into a pattern; without it nothing more is hidden."""
    return sorted((folder for folder in files if "\n" not in folder), key=lambda folder: (folder.count("/"), folder))


def _ignore_lines(folder: str, data: bytes) -> Iterator[bytes]:
    for raw in data.removeprefix(_BOM).split(b"\n"):
        line = raw.removesuffix(b"\r")
        if not line or line.startswith(b"#"):
            continue
        negated = line.startswith(b"!")
        if pattern := _below(folder, line[negated:]):
            yield b"!" * negated + pattern


def _attribute_lines(folder: str, data: bytes) -> Iterator[bytes]:
    for raw in data.removeprefix(_BOM).split(b"\n"):
        line = raw.lstrip(_BLANKS)
        if not line or line.startswith((b"#", b"!")):
            continue
        if line.startswith(b"[attr]"):
            # Only the root's file may define macros.
            yield from () if folder else (line,)
            continue
        if match := _TOKEN.fullmatch(line):
            yield _moved_attributes(folder, match)


def _moved_attributes(folder: str, match: re.Match[bytes]) -> bytes:
    if not folder:
        return match[0]
    inside = match["quoted"]
    if inside is None:
        inside = match["plain"].replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    where = _escaped(folder).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"' + _joined(where, inside) + b'"' + (match["rest"] or match["more"] or b"")


def _below(folder: str, pattern: bytes) -> bytes:
    """The pattern as the root's file would write it; empty when it fits nothing."""
    if not pattern.strip(b" ").removesuffix(b"/"):
        return b""
    return _joined(_escaped(folder), pattern) if folder else pattern


def _joined(where: bytes, pattern: bytes) -> bytes:
    """Without a slash, but for one at its end, a pattern fits a name at any depth below its folder."""
    if b"/" in pattern.rstrip(b" ").removesuffix(b"/"):
        return b"/" + where + b"/" + pattern.removeprefix(b"/")
    return b"/" + where + b"/**/" + pattern


def _escaped(folder: str) -> bytes:
    return _SPECIAL.sub(rb"\\\g<0>", folder.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, kw_only=True)
class Start:
    """`settings` are git's, in its order; `ignores` and `attributes` are complete, as one file each; `tracked_ignores`
    are the ignore files that git tracked, `nested` those of folders that it did not; `submodule_files` are the digests
    of the files that git tracked inside submodules; `excused` are the differences that git did not show even then, such
    as files that a sparse checkout leaves out or a filter makes, with their digests.
    """

    settings: tuple[tuple[str, str], ...]
    ignores: bytes
    attributes: bytes
    tracked_ignores: frozenset[str]
    nested: frozenset[str]
    submodule_files: Mapping[str, str]
    excused: Mapping[str, str] = field(default_factory=dict)


def read_start(children: ChildProcesses, top: str) -> Start:
    """Read everything but what is excused, with the git of the checkout: no tool has run yet. Raises `Refusal`."""
    own = said(git(children, "rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes")).splitlines()
    tracked = _tracked(children, ".gitignore")
    return Start(
        settings=_settings(children),
        ignores=(
            _rules(top, _configured_excludes(children))
            + _rules(top, os.path.abspath(own[0]))
            + ignore_rules(rules_by_folder(top, tracked))
        ),
        attributes=(
            attribute_rules(rules_by_folder(top, _tracked(children, ".gitattributes")))
            + _rules(top, os.path.abspath(own[1]))
        ),
        tracked_ignores=frozenset(tracked),
        nested=frozenset(listing(git(children, "ls-files", "--others", "-z", "--full-name", "--", NESTED_IGNORES))),
        submodule_files=_submodule_files(children, top),
    )


def rules_by_folder(top: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The rule files at these paths by the folders they stand in."""
    return {os.path.dirname(path): _rules(top, path) for path in paths}


def _rules(top: str, path: str) -> bytes:
    """A rule file as git would read it: regular and of a sane size, else nothing; ends with a line break."""
    full = os.path.join(top, path)
    with contextlib.suppress(OSError):
        info = os.lstat(full)
        if stat.S_ISREG(info.st_mode) and info.st_size <= _RULE_BYTES:
            with os.fdopen(os.open(full, FILE_FLAGS), "rb") as file:
                return file.read(_RULE_BYTES) + b"\n"
    return b""


def _tracked(children: ChildProcesses, name: str) -> list[str]:
    """The files of this name that git tracks; the root's belongs to them even when it is not tracked yet."""
    tracked = listing(git(children, "ls-files", "-z", "--full-name", "--", f":(top,glob)**/{name}"))
    return [name, *(path for path in tracked if path != name)]


def _settings(children: ChildProcesses) -> tuple[tuple[str, str], ...]:
    """Every setting that counts, in git's order: where a key stands twice, the later one holds."""
    settings = []
    for record in said(git(children, "config", "--list", "-z")).split("\0"):
        key, assigned, value = record.partition("\n")
        if key in _SETTINGS:
            settings.append((key, value if assigned else "true"))
    return tuple(settings)


def _configured_excludes(children: ChildProcesses) -> str:
    ended = git(children, "config", "--type=path", "--get", "core.excludesFile")
    return ended.stdout.rstrip("\n") if ended.exit_code == 0 else ""


def _submodule_files(children: ChildProcesses, top: str) -> dict[str, str]:
    """What git tracks inside submodules belongs to the tree by the commit of each, so it has to stay as it is."""
    stages = listing(git(children, "-C", top, "ls-files", "--stage", "-z"))
    if not any(stage.startswith(_SUBMODULE) for stage in stages):
        return {}
    own = {stage.partition("\t")[2] for stage in stages}
    every = listing(git(children, "-C", top, "ls-files", "--recurse-submodules", "-z"))
    return {path: digest(os.path.join(top, path)) for path in every if path not in own}


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

    def __init__(self, children: ChildProcesses, repository: Repository, fingerprint: dict[str, str]) -> None:
        self._children, self._repository, self._fingerprint = children, repository, fingerprint
        self._start: Start | None = None
        self._index: tuple[tuple[object, ...], bytes] | None = None

    def begin(self) -> Look:
        """Remember the rules as they are; what they find now although git does not show it is excused from here on."""
        start = read_start(self._children, self._repository.top)
        self._start = start
        look = self.look()
        if not look.differences:
            return look
        shown = frozenset(record[3:] for record in listing(git(self._children, *_STATUS)))
        excused = {one.path: one.trace for one in look.differences if not _is_shown(one, shown)}
        self._start = replace(start, excused=excused)
        return replace(look, tracked=self._not_excused(look.tracked), untracked=self._not_excused(look.untracked))

    def look(self, commit: str = "") -> Look:
        """Compare the work tree with the commit, by default HEAD's. Raises `Refusal`."""
        start = self._start or self._begun()
        check_repository_fingerprint(self._repository.top, self._fingerprint)
        head = self._repository.head()
        against = commit or head
        with engine_git(
            self._children, self._repository, against, settings=start.settings, attributes=start.attributes
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
            tracked=self._not_excused((*tracked, *self._of_submodules(start))),
            untracked=self._not_excused(self._difference(_UNTRACKED, path) for path in others),
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

    def _not_excused(self, differences: Iterable[Difference]) -> tuple[Difference, ...]:
        excused = self._start.excused if self._start else {}
        return tuple(one for one in differences if excused.get(one.path) != one.trace)


def lines(differences: Iterable[Difference]) -> list[str]:
    """As `git status` writes them, the first thousand."""
    return [str(one) for one in islice(differences, _LINES_LIMIT)]


def _untracked(own: EngineGit, start: Start) -> tuple[list[str], list[str]]:
    """New ignore files of folders, which tools write for their caches; what is untracked by them and the start's."""
    rules = own.write("rules", start.ignores)
    excluded = f"--exclude-from={rules}"
    listed = own.ask("ls-files", "--cached", "--others", "-z", excluded, "--", NESTED_IGNORES)
    nested = [path for path in listed if path.endswith("/.gitignore") and path not in start.tracked_ignores]
    nested = nested[:_MOST_NESTED]
    own.write("rules", start.ignores + ignore_rules(rules_by_folder(own.top, nested)))
    return nested, own.ask("ls-files", "--others", "--directory", "--no-empty-directory", "-z", excluded)


def _by_path(differences: Iterable[Difference]) -> Mapping[str, str]:
    return {one.path: one.trace for one in differences}


def _is_shown(one: Difference, shown: frozenset[str]) -> bool:
    parts = one.path.split("/")
    return one.path in shown or any("/".join(parts[:depth]) + "/" in shown for depth in range(1, len(parts)))


def _quoted(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    octal = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in path.encode())
    return f'"{"".join(octal)}"'
