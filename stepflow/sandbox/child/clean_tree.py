"""Finds what differs from a commit in the work tree: by the commit's own ignore files and attributes, and by git's
configuration as it was when the run began (security.md cases 14 and 34)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from .git import MOST_CHANGED, Repository, check_repository_fingerprint, engine_git, git, listing, said
from .paths import FILE_FLAGS, Refusal, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from .child_processes import ChildProcesses
    from .commands import Ended
    from .git import EngineGit

#: Everything that lets a changed file look unchanged to git, back to nothing; and a macro that could be given another
#: meaning, back to its own.
_NO_ATTRIBUTES = b"""[attr]binary -diff -merge -text
* !text !eol !crlf !filter !ident !working-tree-encoding
"""
#: What lets other content than the committed one look unchanged.
_REWRITING = re.compile(rb"[ \t]+[-!]?(?:ident|filter|working-tree-encoding)(?:=[^ \t\r]*)?(?=[ \t\r]|$)")
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
_SHA1_LENGTH = 40
NESTED_IGNORES = ":(top,glob)*/**/.gitignore"
_IGNORES, _ATTRIBUTES = ".gitignore", ".gitattributes"
_RULE_FILES = (b".gitignore", b".gitattributes")
_SUBMODULE_MODE = "160000"
_SUBMODULE = b"160000 "
_LINES_LIMIT = 1000
_MOST_NESTED = 500
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")
_UNTRACKED = "??"
_CHANGED = " M"


def ignore_rules(files: Mapping[str, bytes]) -> bytes:
    """The patterns of `.gitignore` files, those of deeper folders last, because the last one that fits decides."""
    return b"".join(line + b"\n" for folder in _outer_first(files) for line in _ignore_lines(folder, files[folder]))


def attribute_rules(files: Mapping[str, bytes], trusted: Container[bytes] | None = None) -> bytes:
    """The lines of `.gitattributes` files, such that no other file has a say in how content is compared. Lines that are
    not `trusted`, None for all, decide only about line endings."""
    lines = [line for folder in _outer_first(files) for line in _attribute_lines(folder, files[folder])]
    if trusted is not None:
        lines = [line if line in trusted else _REWRITING.sub(b"", line) for line in lines]
    return _NO_ATTRIBUTES + b"".join(line + b"\n" for line in lines)


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
    """What counts besides the commit's own files. `settings` are git's, in its order; `excludes` and `attributes` are
    the lines of configured files and of `.git/info`; `loose` are the root's rule files that no commit held, by their
    names; `nested` are the ignore files of folders that git did not track; `submodules` are the commits of submodules
    and `submodule_files` the digests of the files that git tracked in them; `attribute_lines` are those of the commit;
    `excused` are the differences that git did not show even then, such as files that a sparse checkout leaves out or a
    filter makes, with their digests. A commit with more than `most_files` is not looked at.
    """

    settings: tuple[tuple[str, str], ...]
    excludes: bytes
    attributes: bytes
    loose: Mapping[str, bytes]
    nested: frozenset[str]
    submodules: Mapping[str, str]
    submodule_files: Mapping[str, str]
    attribute_lines: frozenset[bytes] | None = None
    excused: Mapping[str, str] = field(default_factory=dict)
    most_files: int | None = None


def read_start(children: ChildProcesses, top: str) -> Start:
    """Read everything but what is excused, with the git of the checkout: no tool has run yet. Raises `Refusal`."""
    own = said(git(children, "rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes")).splitlines()
    entries = read_entries(partial(git, children, "-C", top))
    return Start(
        settings=_settings(children),
        excludes=_rules(top, _configured_excludes(children)) + _rules(top, os.path.abspath(own[0])),
        attributes=_rules(top, os.path.abspath(own[1])),
        loose={name: _rules(top, name) for name in (_IGNORES, _ATTRIBUTES)},
        nested=frozenset(listing(git(children, "ls-files", "--others", "-z", "--full-name", "--", NESTED_IGNORES))),
        submodules=entries.submodules,
        submodule_files=_submodule_files(children, top, entries.submodules),
    )


@dataclass(frozen=True, kw_only=True)
class Entries:
    """What an index holds: how many paths, and of rule files and submodules each path with its object."""

    count: int
    files: Mapping[str, str]
    submodules: Mapping[str, str]


def read_entries(ask: Callable[..., Ended]) -> Entries:
    """Read them from the index that `ask` runs git with. Raises `Refusal`."""
    files: dict[str, str] = {}
    submodules: dict[str, str] = {}
    count, rest = 0, b""

    def feed(data: bytes) -> None:
        nonlocal count, rest
        count += data.count(b"\0")
        *records, rest = (rest + data).split(b"\0")
        for record in records:
            if not record.startswith(_SUBMODULE) and not record.endswith(_RULE_FILES):
                continue
            facts, _, path = record.decode("utf-8", "replace").partition("\t")
            mode, name, _ = facts.split(" ")
            if mode == _SUBMODULE_MODE:
                submodules[path] = name
            elif mode.startswith("100") and os.path.basename(path) in (_IGNORES, _ATTRIBUTES):
                files[path] = name

    said(ask("ls-files", "--stage", "-z", "--full-name", stdout=feed))
    return Entries(count=count, files=files, submodules=submodules)


@dataclass(frozen=True, kw_only=True)
class CommitRules:
    """What a commit says of its files, as one file each, and the `files` that say it; how many files it has, and an
    index of it that knows their times."""

    commit: str
    count: int
    ignores: bytes
    attributes: bytes
    attribute_lines: frozenset[bytes]
    files: frozenset[str]
    submodules: Mapping[str, str]
    index: bytes = b""


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


def _submodule_files(children: ChildProcesses, top: str, submodules: Iterable[str]) -> dict[str, str]:
    """What git tracks inside submodules belongs to the tree by the commit of each, so it has to stay as it is."""
    inside = tuple(f"{path}/" for path in submodules)
    if not inside:
        return {}
    every = listing(git(children, "-C", top, "ls-files", "--recurse-submodules", "-z"))
    return {path: digest(os.path.join(top, path)) for path in every if path.startswith(inside)}


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
        #: Those of the commit that was looked at last; between two looks they are in this process alone.
        self._rules: CommitRules | None = None

    def begin(self) -> Look:
        """Remember the rules as they are; what they find now although git does not show it is excused from here on."""
        start = read_start(self._children, self._repository.top)
        self._start = start
        look = self.look()
        assert self._rules  # noqa: S101 - `look` sets it or raises
        loose = {name: data for name, data in start.loose.items() if name not in self._rules.files}
        most_files = self._rules.count + MOST_CHANGED
        start = replace(start, attribute_lines=self._rules.attribute_lines, loose=loose, most_files=most_files)
        self._start = start
        if not look.differences:
            return look
        shown = frozenset(record[3:] for record in listing(git(self._children, *_STATUS)))
        excused = {one.path: one.trace for one in look.differences if not _is_shown(one, shown)}
        self._start = replace(start, excused=excused)
        return replace(look, tracked=self._not_excused(look.tracked), untracked=self._not_excused(look.untracked))

    def head(self) -> str:
        """HEAD's commit. Raises `Refusal`."""
        check_repository_fingerprint(self._repository.top, self._fingerprint)
        return self._repository.head()

    def look(self, commit: str = "", *, objects: Repository | None = None) -> Look:
        """Compare the work tree with the commit, by default HEAD's, whose `objects` may be those of another repository.
        Raises `Refusal`."""
        start = self._start or self._begun()
        head = self.head()
        against = commit or head
        with engine_git(self._children, objects or self._repository, against, settings=start.settings) as own:
            rules = self._rules = _read_commit(own, against, start, self._rules)
            tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
            tracked = [self._difference(state, path) for state, path in _changed(own)]
            nested, others = _untracked(own, start, rules)
        return Look(
            head=head,
            commit=against,
            tree=tree,
            tracked=self._not_excused((*tracked, *self._of_submodules(start, rules))),
            untracked=self._not_excused(self._difference(_UNTRACKED, path) for path in others),
            new_ignores=tuple(path for path in nested if path not in start.nested),
        )

    def _begun(self) -> Start:
        self.begin()
        assert self._start  # noqa: S101 - `begin` sets it or raises
        return self._start

    def _difference(self, state: str, path: str) -> Difference:
        return Difference(state=state, path=path, trace=f"{state} {digest(os.path.join(self._repository.top, path))}")

    def _of_submodules(self, start: Start, rules: CommitRules) -> Iterable[Difference]:
        """What differs in submodules from the commit that each has: where that is the start's, from the files then."""
        for submodule, commit in rules.submodules.items():
            files = {path: was for path, was in start.submodule_files.items() if path.startswith(f"{submodule}/")}
            if files and start.submodules.get(submodule) == commit:
                now = {path: digest(os.path.join(self._repository.top, path)) for path in files}
                yield from (self._difference(_CHANGED, path) for path in files if now[path] != files[path])
            else:
                for state, path in self._changed_in(submodule, commit, start):
                    yield self._difference(state, path)

    def _changed_in(self, submodule: str, commit: str, start: Start) -> Iterable[tuple[str, str]]:
        """What differs from this commit in a submodule; nothing where it is not checked out."""
        top = os.path.join(self._repository.top, submodule)
        repository = Repository.locate(top) if os.path.lexists(os.path.join(top, ".git")) else None
        if repository is None:
            return
        start = replace(start, loose={}, attributes=b"")
        try:
            with engine_git(self._children, repository, commit, settings=start.settings) as own:
                _read_commit(own, commit, start)
                changed = list(_changed(own))
        except Refusal:
            # It does not even have the commit.
            changed = [(_CHANGED, "")]
        yield from ((state, os.path.join(submodule, path).rstrip("/")) for state, path in changed)

    def _not_excused(self, differences: Iterable[Difference]) -> tuple[Difference, ...]:
        excused = self._start.excused if self._start else {}
        return tuple(one for one in differences if excused.get(one.path) != one.trace)


def lines(differences: Iterable[Difference]) -> list[str]:
    """As `git status` writes them, the first thousand."""
    return [str(one) for one in islice(differences, _LINES_LIMIT)]


def _read_commit(own: EngineGit, commit: str, start: Start, known: CommitRules | None = None) -> CommitRules:
    """Let git compare files with the commit by its own rules; `known` are those of an earlier look, whose index lets
    only files be read again that were touched since."""
    if known and known.commit == commit:
        own.write("index", known.index)
        rules = known
    else:
        if start.most_files is not None:
            own.count_files("HEAD", start.most_files)
        own.ask("read-tree", "HEAD")
        rules = _rules_of(own, commit, start)
    own.write("info/attributes", rules.attributes)
    own.refresh_index()
    return replace(rules, index=own.read("index"))


def _rules_of(own: EngineGit, commit: str, start: Start) -> CommitRules:
    entries = read_entries(own.run)
    contents = {**start.loose, **{path: _content(own, path, name) for path, name in entries.files.items()}}
    ignores, attributes = (
        {os.path.dirname(path): data for path, data in contents.items() if os.path.basename(path) == name}
        for name in (_IGNORES, _ATTRIBUTES)
    )
    lines = (line for folder, data in attributes.items() for line in _attribute_lines(folder, data))
    return CommitRules(
        commit=commit,
        count=entries.count,
        ignores=start.excludes + ignore_rules(ignores),
        attributes=attribute_rules(attributes, start.attribute_lines) + start.attributes,
        attribute_lines=frozenset(lines),
        files=frozenset(entries.files),
        submodules=entries.submodules,
    )


def _content(own: EngineGit, path: str, name: str) -> bytes:
    """A committed rule file, of a sane size; read from the work tree where it is the same there."""
    here = _rules(own.top, path).removesuffix(b"\n")
    if _blob_name(here, name) == name:
        return here + b"\n"
    output = bytearray()
    own.stream("cat-file", "blob", name, sink=lambda data: output.extend(data[: _RULE_BYTES - len(output)]))
    return bytes(output) + b"\n"


def _blob_name(data: bytes, like: str) -> str:
    """The name that git gives a file of this content, by the same hash as another name."""
    algorithm = "sha1" if len(like) == _SHA1_LENGTH else "sha256"
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _changed(own: EngineGit) -> Iterator[tuple[str, str]]:
    """State and path of each tracked file that differs."""
    for record in own.ask(*_STATUS, "--untracked-files=no", "--ignore-submodules=dirty"):
        yield record[:2], record[3:]


def _untracked(own: EngineGit, start: Start, rules: CommitRules) -> tuple[list[str], list[str]]:
    """New ignore files of folders in which the commit has nothing, which tools write for their caches; what is
    untracked by them and the commit's."""
    excluded = f"--exclude-from={own.write('rules', rules.ignores)}"
    listed = own.ask("ls-files", "--others", "-z", excluded, "--", NESTED_IGNORES)
    nested = [path for path in listed if path.endswith(f"/{_IGNORES}")][:_MOST_NESTED]
    folders = [f":(top,literal){os.path.dirname(path)}" for path in nested if path not in start.nested]
    tracked = own.ask("ls-files", "--cached", "-z", "--", *folders) if folders else []
    held = {folder for path in tracked for folder in _folders_above(path)}
    nested = [path for path in nested if path in start.nested or os.path.dirname(path) not in held]
    own.write("rules", rules.ignores + ignore_rules(rules_by_folder(own.top, nested)))
    return nested, own.ask("ls-files", "--others", "--directory", "--no-empty-directory", "-z", excluded)


def _folders_above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _by_path(differences: Iterable[Difference]) -> Mapping[str, str]:
    return {one.path: one.trace for one in differences}


def _is_shown(one: Difference, shown: frozenset[str]) -> bool:
    return one.path in shown or any(f"{folder}/" in shown for folder in _folders_above(one.path))


def _quoted(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    octal = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in path.encode())
    return f'"{"".join(octal)}"'
