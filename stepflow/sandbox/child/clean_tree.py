"""Finds what differs from a commit in the work tree, by git with an index of that commit and configuration as it was
when the run began, and which rule files hide more from git (docs/threat-model.md, rows 14 and 34)."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from .git import MOST_CHANGED, EngineGit, GitProgram, Repository, engine_git, join_paths
from .paths import MOST_FILES, OperationRefused, digest, open_folder, read_regular

#: Files are compared byte for byte: no attribute of the work tree lets a changed one look unchanged.
_BYTE_FOR_BYTE = b"* -text -eol -ident -filter -working-tree-encoding\n"
#: What decides whether a file in the work tree is the one that was committed. Filters do not belong to it, for they are
#: programs: what they make of a file is excused for as long as it stays what it was at the start.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_RULE_BYTES = 1024 * 1024
#: A larger file that differs byte for byte is not looked at any closer.
_CONVERTED_BYTES = 64 * 1024 * 1024
_OBJECT_ID = re.compile(rb"\$Id: (?:[0-9a-f]{40}|[0-9a-f]{64}) \$")
_IGNORES, _ATTRIBUTES = ".gitignore", ".gitattributes"
_SUBMODULE_MODE = b"160000 "
_LINES_LIMIT = 1000
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")
#: What is ignored file by file, but for folders that a rule names: no rule file below those matters.
_LOOK = (*_STATUS, "--untracked-files=normal", "--ignored=matching", "--ignore-submodules=dirty")
_CHANGED, _UNTRACKED, _IGNORED = " M", "??", "!!"


@dataclass(frozen=True, kw_only=True)
class Start:
    """The `commit`, and what counts besides a commit's own files. `settings` are git's, in its order; `excludes` and
    `attributes` are those of configured files and of `.git/info`; `excused` are the differences that git did not show
    even then, such as files that a sparse checkout leaves out or a filter makes, and rule files that were ignored, with
    their digests. A commit with more than `most_files` is not looked at.
    """

    commit: str
    settings: tuple[tuple[str, str], ...]
    excludes: bytes
    attributes: bytes
    excused: Mapping[str, str] | None = None
    most_files: int | None = None


def read_start(top: str, commit: str) -> Start:
    """Read the rules beside this commit, with the git of the checkout: no tool has run yet. Raises
    `OperationRefused`."""
    git = GitProgram(top=top)
    excludes, attributes = git("rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes").splitlines()
    configured = git.run("config", "--type=path", "--get", "core.excludesFile", fine=None)
    configured_excludes = "" if configured.exit_code else os.fsdecode(configured.output).rstrip("\n")
    return Start(
        commit=commit,
        settings=tuple(_settings(git)),
        excludes=_rules(os.path.join(top, configured_excludes)) + _rules(os.path.join(top, os.fsdecode(excludes))),
        attributes=_rules(os.path.join(top, os.fsdecode(attributes))),
    )


def _rules(path: str) -> bytes:
    """A rule file as git would read it: regular and of a sane size, else nothing; ends with a line break."""
    return read_regular(path, _RULE_BYTES)[0] + b"\n"


def _settings(git: GitProgram) -> Iterator[tuple[str, str]]:
    """Every setting that counts, in git's order: where a key stands twice, the later one holds."""
    for record in git.ask("config", "--list", "-z"):
        key, assigned, value = record.partition("\n")
        if key in _SETTINGS:
            yield key, value if assigned else "true"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A line of `git status`, two letters and a path, with a word that changes with what stands there."""

    state: str
    path: str
    trace: str

    def __str__(self) -> str:
        return f"{self.state} {_quote_path(self.path)}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at the work tree: HEAD's commit, the commit that it was compared with and its tree, what differs (a rule
    file that is ignored itself counts as untracked), and the ignore files of folders that no commit has, such as
    caches."""

    head: str
    commit: str
    tree: str
    tracked: tuple[Difference, ...] = ()
    untracked: tuple[Difference, ...] = ()
    new_ignores: tuple[Difference, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All of them."""
        return (*self.tracked, *self.untracked)

    def moved_since(self, before: Look) -> tuple[str, ...]:
        """Which tracked paths are not what they were, and HEAD if it moved."""
        then, now = _by_path(before.tracked), _by_path(self.tracked)
        paths = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
        head = (f"HEAD (from {before.head[:12]} to {self.head[:12]})",) if self.head != before.head else ()
        return (*head, *map(_quote_path, paths))


class TreeWatch:
    """Looks at one checkout; `begin` comes before any tool has run."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._start: Start | None = None
        #: What is known of a commit, by work trees: the newest, and the start's. Between two looks the parent
        #: keeps it out of reach. Nothing is learned from objects that tools may have written.
        self._newest: dict[str, Known] = {}
        self._first: dict[str, Known] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the start is remembered."""
        return self._start is not None

    def begin(self) -> None:
        """Remember the rules as they are; what they find now although git does not show it is excused from here on."""
        top = self._repository.top
        self._start = start = read_start(top, self.head()[0])
        look = self.look()
        self._first = dict(self._newest)
        found = (*look.differences, *look.new_ignores)
        shown = frozenset(record[3:] for record in GitProgram(top=top).ask(*_STATUS)) if found else frozenset()
        excused = {one.path: one.trace for one in found if not _is_shown(one, shown)}
        self._start = replace(start, excused=excused, most_files=self._first[top].files + MOST_CHANGED)

    def submodules(self) -> tuple[str, ...]:
        """The paths of the submodules that were checked out at the start."""
        top = self._repository.top
        return tuple(os.path.relpath(other, top) for other in self._first if other != top)

    def head(self) -> tuple[str, str]:
        """HEAD's commit, and its branch if it stands on one. Raises `OperationRefused`."""
        return self._repository.check().head()

    def look(self, commit: str = "", *, objects: Repository | None = None, writes_anew: bool = False) -> Look:
        """Compare the work tree with the commit, by default HEAD's, whose `objects` may be those of another repository.
        With `writes_anew`, committed files that a clone may have otherwise are written as it has them, such as their
        ends of lines; nothing else may be running then. Raises `OperationRefused`."""
        start = self._start
        assert start  # noqa: S101 - `begin` came before
        head, _ = self.head()
        against = commit or head
        with self._git_of(objects or self._repository, against, start, learns=objects is not None) as (own, known):
            found = tuple(self._find(own, start, known, writes_anew=writes_anew))
        return Look(
            head=head,
            commit=against,
            tree=known.tree,
            tracked=tuple(one for one in found if one.state not in (_UNTRACKED, _IGNORED)),
            untracked=tuple(one for one in found if one.state == _UNTRACKED),
            new_ignores=tuple(one for one in found if one.state == _IGNORED),
        )

    @contextmanager
    def _git_of(
        self, repository: Repository, commit: str, start: Start, *, learns: bool = False
    ) -> Iterator[tuple[EngineGit, Known]]:
        """Git that compares files with this commit, byte for byte, and what is known of the commit."""
        top = repository.top
        with engine_git(repository, commit, settings=start.settings, attributes=_BYTE_FOR_BYTE) as own:
            own.write("info/exclude", start.excludes)
            known = next(
                (one for one in (self._newest.get(top), self._first.get(top)) if one and one.commit == commit), None
            )
            if known:
                own.write("index", known.index)
            else:
                if start.most_files is not None:
                    own.count_files("HEAD", start.most_files)
                own.ask("read-tree", "HEAD")
            own.refresh_index()
            index = own.read("index")
            known = replace(known, index=index) if known else _read_commit(own, commit, index)
            # Before the start is complete no tool has run.
            if learns or start.excused is None:
                self._newest[top] = known
            yield own, known

    def _find(
        self, own: EngineGit, start: Start, known: Known, within: str = "", *, writes_anew: bool = False
    ) -> Iterator[Difference]:
        """What is not as the commit says: its files, those that it lacks, and rule files that hide more."""
        records = [(record[:2], record[3:]) for record in own.ask(*_LOOK)]
        raw = [self._difference(state, f"{within}{path}") for state, path in records if state != _IGNORED]
        differing = list(self._without_excused(raw, start))
        fine: Mapping[str, bool] = {}
        if start.excused is not None:
            paths = [one.path.removeprefix(within) for one in differing if one.state == _CHANGED]
            fine = _as_committed(own, paths, b"" if within else start.attributes)
        if writes_anew:
            touched = _touched_files(own, start.commit) - {one.path for one in raw}
            _write_anew(own, [*touched, *(path for path, is_same in fine.items() if not is_same)], start.attributes)
        yield from (one for one in differing if one.path.removeprefix(within) not in fine)
        ignored = [path for state, path in records if state == _IGNORED]
        rules = (path for path in ignored if os.path.basename(path) in (_IGNORES, _ATTRIBUTES))
        hiding = (self._difference(_UNTRACKED, f"{within}{path}") for path in rules)
        yield from _hiding(own, self._without_excused(hiding, start), within)
        for path, commit in known.submodules.items():
            yield from self._without_excused(self._differing_in(f"{within}{path}", commit, start), start)

    def _differing_in(self, submodule: str, commit: str, start: Start) -> Iterable[Difference]:
        """The same of a submodule, from the start's index where it has one; nothing where it is not checked out."""
        top = os.path.join(self._repository.top, submodule)
        first = self._first.get(top)
        repository = replace(self._repository, top=top) if first and first.commit == commit else None
        if os.path.lexists(os.path.join(top, ".git")):
            repository = Repository.locate(top)
        if repository is None:
            return ()
        try:
            with self._git_of(repository, commit, start) as (own, known):
                return tuple(self._find(own, start, known, f"{submodule}/"))
        except OperationRefused:
            # It does not even have the commit.
            return (self._difference(_CHANGED, submodule),)

    def _difference(self, state: str, path: str) -> Difference:
        return Difference(state=state, path=path, trace=f"{state} {digest(os.path.join(self._repository.top, path))}")

    def _without_excused(self, differences: Iterable[Difference], start: Start) -> Iterator[Difference]:
        excused = start.excused or {}
        return (one for one in differences if excused.get(one.path) != one.trace)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A commit: its tree, how many files it has, and the commits of its submodules; and an index of it by which only
    files are read again that were touched since."""

    commit: str
    tree: str
    files: int
    submodules: Mapping[str, str]
    index: bytes


def _read_commit(own: EngineGit, commit: str, index: bytes) -> Known:
    submodules: dict[str, str] = {}
    count, rest = 0, b""

    def feed(data: bytes) -> None:
        nonlocal count, rest
        count += data.count(b"\0")
        *records, rest = (rest + data).split(b"\0")
        for record in records:
            if record.startswith(_SUBMODULE_MODE):
                facts, _, path = record.decode("utf-8", "replace").partition("\t")
                submodules[path] = facts.split(" ")[1]

    own.run("ls-files", "--stage", "-z", sink=feed)
    tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
    return Known(commit=commit, tree=tree, files=count, submodules=submodules, index=index)


def lines(differences: Iterable[Difference]) -> list[str]:
    """As `git status` writes them, the first thousand."""
    return [str(one) for one in islice(differences, _LINES_LIMIT)]


def _hiding(own: EngineGit, rules: Iterable[Difference], within: str) -> Iterator[Difference]:
    """Which of these ignored rule files hide what git then does not show. An ignore file in a folder that the commit
    does not have is usually a tool's, for what it can make again."""
    for one in rules:
        folder, name = os.path.split(one.path.removeprefix(within))
        if not folder or own.run("cat-file", "-e", f"HEAD:{folder}", fine=None).exit_code == 0:
            yield one
        elif name == _IGNORES:
            yield replace(one, state=_IGNORED)


def _touched_files(own: EngineGit, since: str) -> set[str]:
    """The files that a clone may have otherwise than the start's: where attributes are others, that is all."""
    changed = own.ask("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=d", since, "HEAD")
    if any(os.path.basename(path) == _ATTRIBUTES for path in changed):
        return set(own.ask("ls-tree", "-r", "-z", "--name-only", "HEAD"))
    return set(changed)


def _write_anew(own: EngineGit, paths: Sequence[str], attributes: bytes) -> None:
    """Write these files as a clone has them, by the attributes of the commit and those given."""
    if not paths:
        return
    own.write("info/attributes", attributes)
    # An index that knows no file's times lets no file be skipped, and a folder without files has no attributes.
    own.ask("read-tree", "HEAD")
    words = ("checkout-index", "--force", "--quiet", f"--prefix={own.top}/", "-z", "--stdin")
    with contextlib.suppress(OperationRefused):
        # What cannot be written stays: git sees no difference in it.
        own.with_work_tree("nothing").ask(*words, stdin=join_paths(paths))


def _as_committed(own: EngineGit, paths: Sequence[str], attributes: bytes) -> Mapping[str, bool]:
    """Which of these files hold what the commit does, by its attributes and those given; and whether a clone has the
    same bytes there, or only lines that end otherwise, another encoding, or another object's name in `$Id$`."""
    if not paths:
        return {}
    # In folders without attributes git takes those of the index.
    clone, copies = own.with_work_tree("clone"), own.with_work_tree("copies")
    own.write("info/attributes", attributes)
    with contextlib.suppress(OperationRefused):
        # Files of another size than the index knows would count as changed. What cannot be written is not there.
        own.ask("read-tree", "HEAD")
        clone.ask("checkout-index", "--quiet", "-z", "--stdin", stdin=join_paths(paths[:MOST_FILES]))
    found: dict[str, bool] = {}
    for path in paths[:MOST_FILES]:
        here, mode = _read_below(own.top, path)
        there, is_there = _read_below(clone.top, path)
        if not (mode and is_there):
            continue
        if os.path.basename(path) != _ATTRIBUTES:
            copy = os.path.join(copies.top, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(copy, "wb") as file:
                file.write(_OBJECT_ID.sub(b"$Id$", here))
            os.chmod(copy, stat.S_IMODE(mode) | 0o600)
            found[path] = here == there
        elif here == there:
            # It would count among the copies.
            found[path] = True
    # Git would let anything stand in `$Id: $`.
    own.write("info/attributes", attributes + b"* -ident\n")
    copies.refresh_index()
    different = frozenset(copies.ask("diff-files", "-z", "--name-only", "--diff-filter=M"))
    return {path: is_same for path, is_same in found.items() if path not in different}


def _read_below(top: str, path: str) -> tuple[bytes, int]:
    """Content and mode of a regular file, none of another; no link on the way is followed."""
    *folders, name = path.split("/")
    with contextlib.suppress(OSError), open_folder(top, tuple(folders)) as folder:
        return read_regular(name, _CONVERTED_BYTES, folder)
    return b"", 0


def _folders_above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _by_path(differences: Iterable[Difference]) -> Mapping[str, str]:
    return {one.path: one.trace for one in differences}


def _is_shown(one: Difference, shown: frozenset[str]) -> bool:
    return one.path in shown or any(f"{folder}/" in shown for folder in _folders_above(one.path))


def _quote_path(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    octal = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in path.encode())
    return f'"{"".join(octal)}"'
