"""Finds what differs from a commit in the work tree, by git with an index of that commit and configuration as it was
when the run began, and which rule files hide more from git (docs/threat-model.md, rows 14 and 34)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from .git import MOST_CHANGED, EngineGit, GitProgram, Repository, engine_git, join_paths
from .paths import OperationRefused, digest, read_regular

#: Files are compared byte for byte first: no attribute of the work tree lets a changed one look unchanged.
_BYTE_FOR_BYTE = b"* -text -eol -ident -filter -working-tree-encoding\n"
#: What decides whether a file in the work tree is the one that was committed. Filters do not belong to it, for they are
#: programs: what they make of a file is excused for as long as it stays what it was at the start.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_RULE_BYTES = 1024 * 1024
_IGNORES, _ATTRIBUTES = ".gitignore", ".gitattributes"
_SUBMODULE_MODE = b"160000 "
_LINES_LIMIT = 1000
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")
#: Submodules have looks of their own.
_NOT_INSIDE = "--ignore-submodules=dirty"
#: What is ignored file by file, but for folders that a rule names: no rule file below those matters.
_LOOK = (*_STATUS, "--untracked-files=normal", "--ignored=matching", _NOT_INSIDE)
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
    excused: Mapping[str, str] = field(default_factory=dict)
    most_files: int | None = None


def read_start(top: str, commit: str) -> Start:
    """Read the rules beside this commit, with the git of the checkout: no tool has run yet. Raises
    `OperationRefused`."""
    git = GitProgram(top=top)
    excludes, attributes = git("rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes").splitlines()
    configured = git.run("config", "--type=path", "--get", "core.excludesFile", fine=None)
    configured_excludes = "" if configured.exit_code else os.fsdecode(configured.output).rstrip("\n")
    settings = (record.partition("\n") for record in git.ask("config", "--list", "-z"))
    return Start(
        commit=commit,
        settings=tuple((key, value if is_set else "true") for key, is_set, value in settings if key in _SETTINGS),
        excludes=_rules(os.path.join(top, configured_excludes)) + _rules(os.path.join(top, os.fsdecode(excludes))),
        attributes=_rules(os.path.join(top, os.fsdecode(attributes))),
    )


def _rules(path: str) -> bytes:
    """A rule file as git would read it: regular and of a sane size, else nothing; ends with a line break."""
    return read_regular(path, _RULE_BYTES)[0] + b"\n"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A line of `git status`, two letters and a path, with a word that changes with what stands there."""

    state: str
    path: str
    trace: str

    def __str__(self) -> str:
        return f"{self.state} {_quote_path(self.path)}"


@dataclass(kw_only=True)
class Differences:
    """What a look finds: `tracked` and `untracked` files (a rule file that is ignored itself counts as untracked), and
    the ignore files of folders that no commit has, such as caches. `raw` are all tracked files that are not byte for
    byte what was committed; those that are no more different than a clone may be, such as by other ends of lines, are
    not among `tracked`."""

    tracked: list[Difference] = field(default_factory=list)
    untracked: list[Difference] = field(default_factory=list)
    new_ignores: list[Difference] = field(default_factory=list)
    raw: list[Difference] = field(default_factory=list)


@dataclass(kw_only=True)
class Look(Differences):
    """One look at the work tree: HEAD's commit, the commit that it was compared with and its tree, what differs."""

    head: str
    commit: str
    tree: str

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Those that count."""
        return (*self.tracked, *self.untracked)

    def moved_since(self, before: Look) -> tuple[str, ...]:
        """Which tracked paths are not what they were, and HEAD if it moved."""
        then, now = ({one.path: one.trace for one in look.raw} for look in (before, self))
        paths = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
        head = (f"HEAD (from {before.head[:12]} to {self.head[:12]})",) if self.head != before.head else ()
        return (*head, *map(_quote_path, paths))


@dataclass(frozen=True, kw_only=True)
class Known:
    """A commit: its tree, how many files it has, and the commits of its submodules; and an index of it by which only
    files are read again that were touched since."""

    commit: str
    tree: str
    files: int
    submodules: Mapping[str, str]
    index: bytes


class TreeWatch:
    """Looks at one checkout; `begin` comes before any tool has run."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._start: Start | None = None
        #: What is known of a commit, by work trees: the newest, and the start's. Between two looks the parent
        #: keeps it out of reach.
        self._newest: dict[str, Known] = {}
        self._first: dict[str, Known] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the start is remembered."""
        return self._start is not None

    def begin(self) -> None:
        """Remember the rules as they are; what they find now although git does not show it is excused from here on."""
        top = self._repository.top
        self._start = start = read_start(top, self._repository.head()[0])
        look = self.look()
        self._first = dict(self._newest)
        found = (*look.raw, *look.untracked, *look.new_ignores)
        shown = frozenset(record[3:] for record in GitProgram(top=top).ask(*_STATUS)) if found else frozenset()
        excused = {one.path: one.trace for one in found if not _is_shown(one, shown)}
        self._start = replace(start, excused=excused, most_files=self._first[top].files + MOST_CHANGED)

    def submodules(self) -> tuple[str, ...]:
        """The paths of the submodules that were checked out at the start."""
        top = self._repository.top
        return tuple(os.path.relpath(other, top) for other in self._first if other != top)

    def look(self, commit: str = "", *, objects: str = "", writes_anew: bool = False) -> Look:
        """Compare the work tree with the commit, by default HEAD's, whose `objects` may lie in another folder.
        With `writes_anew`, committed files that a clone may have otherwise are written as it has them, such as their
        ends of lines; nothing else may be running then. Raises `OperationRefused`."""
        head, _ = self._repository.head()
        repository = replace(self._repository, objects=objects) if objects else self._repository
        with self._git_of(repository, commit or head) as (own, known):
            look = Look(head=head, commit=known.commit, tree=known.tree)
            self._find(own, known, look, writes_anew=writes_anew)
        return look

    @property
    def _rules(self) -> Start:
        assert self._start  # noqa: S101 - `begin` came before
        return self._start

    @contextmanager
    def _git_of(self, repository: Repository, commit: str) -> Iterator[tuple[EngineGit, Known]]:
        """Git that compares files with this commit, byte for byte, and what is known of the commit."""
        top, start = repository.top, self._rules
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
            self._newest[top] = known = replace(known, index=index) if known else _read_commit(own, commit, index)
            yield own, known

    def _find(
        self,
        own: EngineGit,
        known: Known,
        into: Differences,
        within: str = "",
        *,
        writes_anew: bool = False,
        unwritten: frozenset[str] = frozenset(),
    ) -> None:
        """What is not as the commit says: its files, those that it lacks, and rule files that hide more. The
        `unwritten` files cannot be written anew, so they count."""
        start, listed = self._rules, [(record[:2], record[3:]) for record in own.ask(*_LOOK)]
        found = [(path, one) for state, path in listed if (one := self._difference(state, f"{within}{path}"))]
        raw = [path for path, one in found if one.state not in (_UNTRACKED, _IGNORED)]
        changed = {*_find_changed(own, raw, b"" if within else start.attributes), *unwritten}
        if writes_anew:
            converted = [path for path in raw if path not in changed]
            touched = _touched_files(own, start.commit) - {path for _, path in listed}
            if converted or touched:
                before = _digests(own, touched)
                stuck = _write_anew(own, converted, touched, start.attributes)
                if converted or before != _digests(own, touched):
                    own.write("info/attributes", _BYTE_FOR_BYTE)
                    own.write("index", known.index)
                    own.refresh_index()
                    return self._find(own, known, into, unwritten=frozenset(stuck))
        for path, one in found:
            if one.state == _UNTRACKED:
                into.untracked.append(one)
            elif one.state != _IGNORED:
                into.raw.append(one)
                into.tracked += [one] if path in changed else []
            elif os.path.basename(path) in (_IGNORES, _ATTRIBUTES):
                _add_hiding(own, path, one, into)
        for path, commit in known.submodules.items():
            self._look_into(f"{within}{path}", commit, into)
        return None

    def _look_into(self, submodule: str, commit: str, into: Differences) -> None:
        """The same of a submodule, from the start's index where it has one; nothing where it is not checked out."""
        top = os.path.join(self._repository.top, submodule)
        repository, inner = Repository.locate(top), Differences()
        if repository is None and top not in self._first:
            return
        try:
            if repository is None:
                raise OperationRefused("its repository is gone")
            with self._git_of(repository, commit) as (own, known):
                self._find(own, known, inner, f"{submodule}/")
        except OperationRefused:
            # It does not even have the commit.
            inner = Differences(tracked=[one] if (one := self._difference(_CHANGED, submodule)) else [])
            inner.raw = inner.tracked
        for name, ones in vars(inner).items():
            getattr(into, name).extend(ones)

    def _difference(self, state: str, path: str) -> Difference | None:
        """None for one that is excused."""
        one = Difference(state=state, path=path, trace=f"{state} {digest(os.path.join(self._repository.top, path))}")
        return one if self._rules.excused.get(path) != one.trace else None


def _read_commit(own: EngineGit, commit: str, index: bytes) -> Known:
    submodules: dict[str, str] = {}
    count, rest = 0, b""

    def feed(data: bytes) -> None:
        nonlocal count, rest
        count += data.count(b"\0")
        *records, rest = (rest + data).split(b"\0")
        for record in records:
            if record.startswith(_SUBMODULE_MODE):
                facts, _, path = os.fsdecode(record).partition("\t")
                submodules[path] = facts.split(" ")[1]

    own.run("ls-files", "--stage", "-z", sink=feed)
    tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
    return Known(commit=commit, tree=tree, files=count, submodules=submodules, index=index)


def lines(differences: Iterable[Difference]) -> list[str]:
    """As `git status` writes them, the first thousand."""
    return [str(one) for one in islice(differences, _LINES_LIMIT)]


def _add_hiding(own: EngineGit, path: str, rules: Difference, into: Differences) -> None:
    """Add an ignored rule file, which hides what git then does not show. An ignore file in a folder that the commit
    does not have is usually a tool's, for what it can make again."""
    folder, name = os.path.split(path)
    if not folder or own.run("cat-file", "-e", f"HEAD:{folder}", fine=None).exit_code == 0:
        into.untracked.append(replace(rules, state=_UNTRACKED))
    elif name == _IGNORES:
        into.new_ignores.append(rules)


def _find_changed(own: EngineGit, paths: Collection[str], attributes: bytes) -> set[str]:
    """Which of these tracked files are not what was committed, by the attributes of the work tree and those given.
    Where the former are not what was committed, they are among what differs."""
    if not paths:
        return set()
    wanted = set(paths)
    # Files of another size than the index knows would count as changed: it is told nothing of them.
    entries = (entry for entry in own.ask("ls-files", "--stage", "-z") if entry.partition("\t")[2] in wanted)
    own.ask("update-index", "-z", "--index-info", stdin=join_paths(entries))
    own.write("info/attributes", attributes)
    own.refresh_index()
    return set(own.ask("diff-files", "-z", "--name-only", _NOT_INSIDE))


def _touched_files(own: EngineGit, since: str) -> set[str]:
    """The files that a clone may have otherwise than the start's: where attributes are others, that is all."""
    changed = own.ask("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=d", since, "HEAD")
    if any(os.path.basename(path) == _ATTRIBUTES for path in changed):
        return set(own.ask("ls-tree", "-r", "-z", "--name-only", "HEAD"))
    return set(changed)


def _write_anew(own: EngineGit, converted: Collection[str], touched: Iterable[str], attributes: bytes) -> list[str]:
    """Write these files as a clone has them. Gives the converted ones that cannot be written: anything may stand in
    them where attributes let git put in a name of an object. Of the others git sees no difference."""

    def look(path: str) -> tuple[int, int]:
        info = os.lstat(os.path.join(own.top, path))
        return info.st_ino, info.st_ctime_ns

    before = {path: look(path) for path in converted}
    own.write("info/attributes", attributes)
    # An index that knows no file's times lets no file be skipped.
    own.ask("read-tree", "HEAD")
    with suppress(OperationRefused):
        own.ask("checkout-index", "--force", "--quiet", "-z", "--stdin", stdin=join_paths((*converted, *touched)))
    return [path for path in converted if look(path) == before[path]]


def _digests(own: EngineGit, paths: Iterable[str]) -> list[str]:
    return [digest(os.path.join(own.top, path)) for path in paths]


def _folders_above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _is_shown(one: Difference, shown: frozenset[str]) -> bool:
    return one.path in shown or any(f"{folder}/" in shown for folder in _folders_above(one.path))


def _quote_path(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    plain = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'
