"""What a check meets as `setup` left it: HOME, TMPDIR and shared memory, and git's own files
beside the commits of the work. The copies are files without a name, which no tool can open."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO

from .git import (
    ALTERNATES,
    NO_CONFIGURATION,
    NO_PROGRAMS,
    GitProgram,
    Repository,
    config_variables,
    engine_git,
    run_program,
)
from .paths import Key, OperationRefused, key_of, remove

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - whose content is looked at
_MOST_ENTRIES = 1_000_000
_PIECE = 1024 * 1024
_WIPE_SECONDS = 300.0
#: So many changed paths are listed; their number is always complete.
_MOST_NAMED = 100
_GIT = ".git"
#: What is not git's own state, or belongs to a git that is at work.
_LEFT_OUT = frozenset({"objects", "lfs", "logs"})
_LOCKS = (".lock",)
_MOST_BYTES = 512 * 1024 * 1024
#: Any git would run what they name, which may lie among files that git ignores; of hooks those count that `.git` has.
_PROGRAMS = ("core.hooksPath", "core.fsmonitor")
_INCLUDES = r"^include(if\..*)?\.path$"
_OWN_SETTINGS = (*NO_PROGRAMS, ("core.logAllRefUpdates", "false"), ("gc.auto", "0"))


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What stands at a path: its kind and mode, and what tells that it was not touched. Of a folder only its mode
    counts: what is in it has facts of its own."""

    mode: int
    key: Key

    @property
    def is_known(self) -> bool:
        """Whether the same facts later tell that it was not touched."""
        return self.key is not None or stat.S_ISDIR(self.mode)


class Baseline:
    """The two folders, which lie side by side, as they were when this was made and `kept`. Raises `OperationRefused`
    for what cannot be kept."""

    def __init__(self, home: str, tmp: str, kept: IO[bytes]) -> None:
        self._root = os.path.dirname(home)
        #: The folders' names, and how people read them.
        self._folders = {os.path.basename(home): "~", os.path.basename(tmp): "$TMPDIR"}
        try:
            _pack(self._root, self._folders, kept)
            self._facts = dict(self._scan())
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise OperationRefused(f"HOME and TMPDIR cannot be kept as setup left them: {exc}") from exc

    def restore(self, kept: IO[bytes]) -> list[str]:
        """Put the folders back; gives what was added, changed or removed, as `~/path (added)`. Raises
        `OperationRefused`."""
        with _open_packed(kept) as archive:
            try:
                return self._restore_copy(archive)
            except (OSError, RecursionError, tarfile.TarError):
                # Tools can leave trees that only programs made for it get rid of.
                return self._made_anew(archive)

    def _restore_copy(self, archive: tarfile.TarFile) -> list[str]:
        now = dict(self._scan())
        both = now.keys() & self._facts.keys()
        touched = {name for name in both if now[name] != self._facts[name] or not now[name].is_known}
        removed = self._facts.keys() - now.keys()
        added = [name for name in sorted(now.keys() - both) if os.path.dirname(name) in self._facts]
        if not (added or removed or touched):
            return []
        # In the order in which it can be written: a second name of a file leads to the first one.
        members = {member.name: member for member in archive.getmembers()}
        changed = {name for name in touched if self._differs(name, now[name], archive, members)}
        for name in added:
            remove(self._path(name))
        for name in changed:
            if not (stat.S_ISDIR(now[name].mode) and members[name].isdir()):
                remove(self._path(name))
        for name, member in members.items():
            if name in removed or name in changed:
                archive.extract(member, self._root)
        self._facts = dict(self._scan())
        topmost = (name for name in removed if os.path.dirname(name) not in removed)
        return self._name_states(
            {**dict.fromkeys(added, "added"), **dict.fromkeys(changed, "changed"), **dict.fromkeys(topmost, "removed")}
        )

    def _made_anew(self, archive: tarfile.TarFile) -> list[str]:
        try:
            for folder in map(self._path, self._folders):
                for program in (
                    ("/bin/chmod", "-R", "u+rwx", folder),
                    ("/usr/bin/find", folder, "-mindepth", "1", "-delete"),
                ):
                    ended = run_program(program, {}, _WIPE_SECONDS, sink=lambda _: None)
                    if ended.exit_code < 0:
                        raise OSError(f"{program[0]} {ended.complaint}")
            for member in archive.getmembers():
                archive.extract(member, self._root)
            self._facts = dict(self._scan())
        except (OSError, RecursionError, tarfile.TarError, OperationRefused) as exc:
            raise OperationRefused(f"HOME and TMPDIR cannot be put back as setup left them: {exc}") from exc
        return ["everything in HOME and TMPDIR (made anew)"]

    def _scan(self) -> Iterator[tuple[str, Fact]]:
        """Every path with its fact, by the names that it has in the copy."""
        now_ns = time.time_ns()
        waiting = list(self._folders)
        yield from ((name, _fact(os.lstat(self._path(name)), now_ns)) for name in waiting)
        seen = 0
        while waiting:
            above = waiting.pop()
            with os.scandir(self._path(above)) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_ENTRIES:
                        raise OSError(0, f"there are more than {_MOST_ENTRIES} files")
                    name = f"{above}/{entry.name}"
                    yield name, _fact(entry.stat(follow_symlinks=False), now_ns)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)

    def _differs(self, name: str, now: Fact, archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]) -> bool:
        member = members.get(name)
        if now.mode != self._facts[name].mode or member is None or member.isdir():
            return now.mode != self._facts[name].mode
        if member.issym():
            return os.readlink(self._path(name)) != member.linkname
        saved = archive.extractfile(member)
        return saved is not None and not _is_same(self._path(name), saved)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _name_states(self, states: Mapping[str, str]) -> list[str]:
        parts = ((name.partition("/"), states[name]) for name in sorted(states))
        named = [f"{self._folders[folder]}/{below} ({state})" for (folder, _, below), state in parts]
        more = len(named) - _MOST_NAMED
        return [*named[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def _is_same(path: str, saved: IO[bytes]) -> bool:
    with open(path, "rb") as file:
        while piece := saved.read(_PIECE):
            if file.read(len(piece)) != piece:
                return False
        return not file.read(1)


class SharedMemory:
    """What stands in /dev/shm as it was when this was made. For a user whom nobody else is."""

    def __init__(self) -> None:
        self._known = self._names()

    def restore(self) -> None:
        """Remove what is new and this user's."""
        for name in self._names() - self._known:
            with contextlib.suppress(OSError):
                remove(os.path.join(_SHARED_MEMORY, name))

    def _names(self) -> frozenset[str]:
        with contextlib.suppress(OSError):
            return frozenset(os.listdir(_SHARED_MEMORY))
        return frozenset()


def _fact(info: os.stat_result, now_ns: int) -> Fact:
    return Fact(mode=info.st_mode, key=None if stat.S_ISDIR(info.st_mode) else key_of(info, now_ns))


class JudgedRepository:
    """The `.git` that checks meet, and those of submodules: git's own files as they were after `setup`, and the commits
    of the work read anew. `place` is a folder of the same file system. Where the history lies within reach of the
    tools, nothing can be read anew, and checks run in the repository that tools have. What is `kept` is a file that no
    tool can open."""

    def __init__(self, repository: Repository, place: str) -> None:
        self._repository, self._top = repository, repository.top
        self._judged, self._aside = os.path.join(place, "judged"), os.path.join(place, "worked-in")
        self._folder = os.path.join(self._judged, _GIT)
        self._submodules: tuple[str, ...] = ()
        self._start = self._commit = self._branch = ""
        with contextlib.suppress(OperationRefused):
            self._start, _ = repository.head()
        self._is_kept = self._is_fresh = False

    def begin(self, submodules: Iterable[str], kept: IO[bytes]) -> None:
        """Keep git's own files as they are, and those of submodules at these paths."""
        dot_git = os.path.join(self._top, _GIT)
        if not self._repository.alternates or not os.path.isdir(dot_git) or os.path.islink(dot_git):
            return
        self._submodules = tuple(path for path in submodules if os.path.lexists(os.path.join(self._top, path, _GIT)))
        try:
            self._pack(self._top, kept)
            self._unpack(kept)
            for path in self._paths:
                self._leave_out_settings(path)
            self._pack(self._judged, kept)
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise OperationRefused(f"git's own files cannot be kept as they are: {exc}") from exc
        self._is_kept = True

    def _pack(self, root: str, kept: IO[bytes]) -> None:
        own = sorted(set(os.listdir(os.path.join(root, _GIT))) - _LEFT_OUT)
        # A submodule's objects are few: those that `setup` brought, or none, where it borrows them.
        names = (*(f"{_GIT}/{name}" for name in own), *(f"{path}/{_GIT}" for path in self._submodules))
        _pack(root, names, kept, but=_LOCKS)

    def _unpack(self, kept: IO[bytes]) -> None:
        remove(self._judged)
        with _open_packed(kept) as archive:
            archive.extractall(self._judged)  # noqa: S202 - written by the engine
        for name in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)

    def prepare(self, commit: str, branch: str, kept: IO[bytes]) -> Repository:
        """Make it for this commit and branch; the repository with objects that were read anew. Raises
        `OperationRefused`."""
        self._commit, self._branch, self._is_fresh = commit, branch, False
        if not self._is_kept:
            return self._repository
        self._make(kept)
        return replace(self._repository, common=self._folder)

    def put_in_place(self, differing: Iterable[str], kept: IO[bytes]) -> None:
        """Put it in place for a check. Of the `differing` paths git must look at the content."""
        if not self._is_kept or not self._commit:
            return
        if not self._is_fresh:
            # The check before may have changed it.
            self._make(kept)
        self._is_fresh = False
        for path in differing:
            with contextlib.suppress(OSError):
                os.utime(os.path.join(self._top, path), follow_symlinks=False)
        for path in self._paths:
            # It fails where a file differs, which is no fault.
            self._git(path).run("update-index", "-q", "--refresh", fine=None)
        remove(self._aside)
        for path in filter(self._is_folder, self._paths):
            _move(path, self._top, self._aside)
            _move(path, self._judged, self._top)

    def put_back(self) -> None:
        """Put that of the work in place again, after `put_in_place`."""
        if self._is_kept and self._commit:
            for path in filter(self._is_folder, self._paths):
                remove(os.path.join(self._top, path, _GIT))
                _move(path, self._aside, self._top)

    @property
    def _paths(self) -> tuple[str, ...]:
        return "", *self._submodules

    def _is_folder(self, path: str) -> bool:
        """Whether a submodule is still a folder of the work tree: a link may lead to the work tree itself."""
        place = os.path.join(os.path.realpath(self._top), path)
        return os.path.isdir(place) and os.path.realpath(place) == place.rstrip("/")

    def _make(self, kept: IO[bytes]) -> None:
        try:
            self._unpack(kept)
            with open(os.path.join(self._folder, ALTERNATES), "wb") as file:
                file.write(self._repository.alternates)
            self._take_commits()
            self._set_head()
            self._git()("read-tree", "--reset", self._commit)
            for path in self._submodules:
                # An index that knows no file's times lets no file be skipped. It fails without a commit.
                self._git(path).run("read-tree", "--reset", "HEAD", fine=None)
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise OperationRefused(f"the repository for the checks cannot be made: {exc}") from exc
        self._is_fresh = True

    def _leave_out_settings(self, path: str) -> None:
        """Take out what leads to programs and settings in files that tools can write."""
        git = self._git(path)
        included = git.run("config", "--name-only", "--get-regexp", _INCLUDES, fine=None).output
        for key in (*_PROGRAMS, *os.fsdecode(included).splitlines()):
            # It fails where it is not set.
            git.run("config", "--unset-all", key, fine=None)

    def _take_commits(self) -> None:
        """Bring the objects of the work over; git computes each name from the content."""
        if self._commit == self._start:
            return
        names = [name for name in (self._commit, self._start and f"^{self._start}") if name]
        wanted = "".join(f"{name}\n" for name in names)
        with open(os.path.join(self._folder, "work.pack"), "w+b") as pack:
            os.unlink(pack.name)

            def take(data: bytes) -> None:
                pack.write(data)
                if pack.tell() > _MOST_BYTES:
                    raise OperationRefused(f"the commits have more than {_MOST_BYTES} bytes")

            with engine_git(self._repository, self._commit) as own:
                own.run("pack-objects", "--revs", "--stdout", "-q", "--window=0", sink=take, stdin=wanted.encode())
            pack.seek(0)
            self._git()("index-pack", "--stdin", stdin=pack.fileno())
        # What was not what its name said is missing now.
        self._git()("rev-list", "--objects", "--quiet", *names)

    def _set_head(self) -> None:
        git = self._git()
        git("update-ref", "--no-deref", "HEAD", self._commit)
        if self._branch:
            # It fails where another branch of the start is in the way.
            with contextlib.suppress(OperationRefused):
                git("update-ref", self._branch, self._commit)
                git("symbolic-ref", "HEAD", self._branch)

    def _git(self, path: str = "") -> GitProgram:
        """git in the judged repository, or in a submodule's."""
        environment = {
            "GIT_DIR": os.path.join(self._judged, path, _GIT),
            "GIT_WORK_TREE": os.path.join(self._top, path),
            **NO_CONFIGURATION,
            **config_variables(_OWN_SETTINGS),
        }
        return GitProgram(top=self._top, environment=environment)


def _move(path: str, source: str, target: str) -> None:
    """Move the `.git` of a path from one folder to another, where there is one."""
    dot_git = os.path.join(source, path, _GIT)
    if os.path.lexists(dot_git):
        os.makedirs(os.path.join(target, path), exist_ok=True)
        os.rename(dot_git, os.path.join(target, path, _GIT))


def _pack(root: str, names: Iterable[str], into: IO[bytes], *, but: tuple[str, ...] = ()) -> None:
    """Keep these entries of the folder, without the files whose names have one of the endings `but`."""
    into.seek(0)
    into.truncate()
    with tarfile.open(fileobj=into, mode="w") as archive:
        for name in names:
            path = os.path.join(root, name)
            archive.add(path, arcname=name, filter=lambda member: None if member.name.endswith(but) else member)


def _open_packed(kept: IO[bytes]) -> tarfile.TarFile:
    kept.seek(0)
    archive = tarfile.open(fileobj=kept, mode="r:")  # noqa: SIM115 - for who reads it to close
    # Links may lead where they like: what is put back is what stood there, by its own user's hand.
    archive.extraction_filter = lambda member, _: member
    return archive
