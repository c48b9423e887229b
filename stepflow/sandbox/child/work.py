"""Finds what tools have made of the workspace: the commit that HEAD stands on, and what is not committed, by the rules
of the time before the first tool ran."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from .git import COMMIT, MOST_CHANGED, EngineGit, GitProgram, Repository, Sink, engine_git, join_paths, stream_bundle
from .paths import OperationRefused, read_regular

#: Git's settings by which files of the work tree are compared with a commit. Filters do not belong to them: they are
#: programs.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_RULE_BYTES = 1024 * 1024
#: A submodule shows only as its commit.
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty")
_UNTRACKED = "??"
_IDENTITY = {f"GIT_{who}_{what}": "stepflow" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What decides beside a commit's own files: git's settings, and the rules of configured files and of `.git/info`.
    Tracked files in `filtered` differ from the commit without a change, since a filter such as Git LFS has written
    them; each with the name of its content."""

    settings: tuple[tuple[str, str], ...]
    excludes: bytes
    attributes: bytes
    filtered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FoundWork:
    """HEAD's commit with its tree and branch (empty where it is detached), and the paths of tracked files that differ
    from it and of files that no commit has."""

    commit: str
    tree: str
    branch: str
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()


class WorkWatch:
    """Looks at one repository. Made before any tool has run."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        #: The newest index by its commit, with its time: only files are read again that were touched since.
        self._index: tuple[bytes, int] | None = None
        self._most_files: int | None = None
        self.rules = _read_rules(repository.top)
        with self._git() as (own, work):
            shown = set(GitProgram(top=repository.top).ask(*_STATUS)) if work.changed else set[str]()
            hidden = [path for path in work.changed if f" M {path}" not in shown]
            self._most_files = own.count_files("HEAD") + MOST_CHANGED
            filtered = {path: _content_name(own, path) for path in hidden}
        self.rules = replace(self.rules, filtered=filtered)

    def look(self) -> FoundWork:
        """Look at the workspace. Raises `OperationRefused`."""
        with self._git() as (_, work):
            return work

    def take(self, base: str, *, most_bytes: int, hand_on: Sink) -> tuple[FoundWork, str]:
        """Hand on a bundle of the commits since the base, with one more on top for uncommitted files. Return that
        commit, or HEAD's if nothing is uncommitted. Nothing is handed on if HEAD is the base or older."""
        if not COMMIT.fullmatch(base):
            raise OperationRefused(f"{base!r} is no commit id")
        with self._git() as (own, work):
            top = self._commit_rest(own, work, most_bytes)
            own.write("HEAD", f"{top}\n".encode())
            _, too_large = stream_bundle(own, base, most_bytes=most_bytes, hand_on=hand_on)
            if too_large:
                raise OperationRefused(f"the commits are too large: {too_large}")
        return work, top

    @contextmanager
    def _git(self) -> Iterator[tuple[EngineGit, FoundWork]]:
        """Git that knows HEAD's commit and what differs from it."""
        repository, rules = self._repository, self.rules
        commit, branch = repository.head()
        with engine_git(repository, commit, settings=rules.settings, attributes=rules.attributes) as own:
            own.write("info/exclude", rules.excludes)
            own.count_files("HEAD", self._most_files)
            self._read_index(own)
            listed = [(record[:2], record[3:]) for record in own.ask(*_STATUS)]
            filtered = rules.filtered
            changed = [path for state, path in listed if state != _UNTRACKED]
            work = FoundWork(
                commit=commit,
                tree=own.line("rev-parse", "--verify", "HEAD^{tree}"),
                branch=branch,
                changed=tuple(p for p in changed if p not in filtered or _content_name(own, p) != filtered[p]),
                untracked=tuple(path for state, path in listed if state == _UNTRACKED),
            )
            yield own, work

    def _read_index(self, own: EngineGit) -> None:
        """Give git an index of HEAD's commit. One of another commit is kept for the files that both have."""
        if self._index:
            data, time = self._index
            # Git looks into files that are no older than their index.
            os.utime(own.write("index", data), ns=(time, time))
            own.ask("read-tree", "--reset", "HEAD")
        else:
            own.ask("read-tree", "HEAD")
        own.refresh_index()
        self._index = own.read("index"), os.stat(os.path.join(own.folder, "index")).st_mtime_ns

    def _commit_rest(self, own: EngineGit, work: FoundWork, most_bytes: int) -> str:
        if not (work.changed or work.untracked):
            return work.commit
        untracked = own.ask("ls-files", "--others", "--exclude-standard", "-z")
        # A repository in the repository cannot be in a commit.
        paths = [path for path in (*work.changed, *untracked) if not path.endswith("/")]
        size = sum(_size(os.path.join(self._repository.top, path)) for path in paths)
        if size > most_bytes:
            raise OperationRefused(f"the files that are not committed have {size >> 20:,} MiB")
        gone = {*own.ask("ls-files", "--deleted", "-z")}
        # First what is gone: a folder may have become a link.
        own.ask("update-index", "--force-remove", "-z", "--stdin", stdin=join_paths(sorted(gone)))
        own.ask("update-index", "--add", "-z", "--stdin", stdin=join_paths(p for p in paths if p not in gone))
        tree = own.line("write-tree")
        return own.line("commit-tree", tree, "-p", work.commit, "-m", "Not committed", env=_IDENTITY)


def _read_rules(top: str) -> Rules:
    """Read the rules by the git of the checkout: no tool has run yet. Raises `OperationRefused`."""
    git = GitProgram(top=top)
    excludes, attributes = git("rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes").splitlines()
    configured = git.run("config", "--type=path", "--get", "core.excludesFile", fine=None)
    named = "" if configured.exit_code else os.fsdecode(configured.output).rstrip("\n")
    settings = (record.partition("\n") for record in git.ask("config", "--list", "-z"))
    return Rules(
        settings=tuple((key, value if is_set else "true") for key, is_set, value in settings if key in _SETTINGS),
        excludes=_rule_file(os.path.join(top, named)) + _rule_file(os.path.join(top, os.fsdecode(excludes))),
        attributes=_rule_file(os.path.join(top, os.fsdecode(attributes))),
    )


def _rule_file(path: str) -> bytes:
    """Return a rule file as git would read it: regular and of a sane size, else nothing; ends with a line break."""
    return read_regular(path, _RULE_BYTES)[0] + b"\n"


def _content_name(own: EngineGit, path: str) -> str:
    """Return git's name for what stands in a file, as no filter has changed it."""
    return own.run("hash-object", "--no-filters", "--", path, fine=None).output.decode().strip()


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
