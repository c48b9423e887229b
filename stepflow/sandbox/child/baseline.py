"""What a check meets as `setup` left it: HOME, TMPDIR and shared memory, and git's own files
beside the commits of the work. The copies are files without a name, which no tool can open."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO

from .git import (
    ALTERNATES,
    GIT,
    NO_CONFIGURATION,
    NO_PROGRAMS,
    GitProgram,
    Repository,
    Sink,
    config_variables,
    engine_git,
    run_program,
)
from .paths import STEP_SECONDS, Key, OperationRefused, key_of, remove

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - whose content is looked at
_MOST_ENTRIES = 1_000_000
_SECONDS = 300.0
#: So many paths are put back one by one; of more, the whole folder is.
_MOST_PATHS = 500
#: What is not git's own state, or belongs to a git that is at work.
_LEFT_OUT = frozenset({"objects", "lfs", "logs"})
_MOST_BYTES = 512 * 1024 * 1024
#: Any git would run what they name, which may lie among files that git ignores; of hooks those count that `.git` has.
_PROGRAMS = ("core.hooksPath", "core.fsmonitor")
_INCLUDES = r"^include(if\..*)?\.path$"
_OWN_SETTINGS = (*NO_PROGRAMS, ("core.logAllRefUpdates", "false"), ("gc.auto", "0"))


class Baseline:
    """The two folders, which lie side by side, as they were when this was made and `kept`. Raises `OperationRefused`
    for what cannot be kept."""

    def __init__(self, home: str, tmp: str, kept: IO[bytes]) -> None:
        #: How people read their names.
        self._folders = {home: "HOME", tmp: "TMPDIR"}
        # Not from the folder above, which is closed to everybody here.
        _pack(kept, "-P", *self._folders)
        time.sleep(STEP_SECONDS)
        self._facts = {folder: _look_at(folder) for folder in self._folders}

    def restore(self, kept: IO[bytes]) -> list[str]:
        """Put back the folders that are not as they were; gives which. Raises `OperationRefused`."""
        now = {folder: _look_at(folder) for folder in self._folders}
        changed = [folder for folder, facts in now.items() if facts is None or facts != self._facts[folder]]
        for folder in changed:
            then, there = self._facts[folder] or {}, now[folder] or {}
            paths = {path for path in then.keys() | there.keys() if then.get(path) != there.get(path)}
            try:
                if not (then and there) or folder in paths or len(paths) > _MOST_PATHS:
                    raise OSError
                topmost = [path for path in sorted(paths) if paths.isdisjoint(_folders_above(path))]
                for path in topmost:
                    remove(path)
                if wanted := [path for path in topmost if path in then]:
                    _unpack(kept, "-P", *wanted)
            except (OSError, RecursionError):
                # Tools can leave trees that only programs made for it get rid of.
                _run("chmod", "-R", "u+rwx", folder)
                _run("find", folder, "-mindepth", "1", "-delete")
                _unpack(kept, "-P", folder)
        if changed:
            time.sleep(STEP_SECONDS)
            self._facts |= {folder: _look_at(folder) for folder in changed}
        return [self._folders[folder] for folder in changed]


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _look_at(folder: str) -> dict[str, tuple[int, Key]] | None:
    """What stands in the folder, by its mode and facts that change with it; None where that cannot be told. Of a folder
    only the mode counts: what is in it has facts of its own."""
    facts, begun, waiting = dict[str, tuple[int, Key]](), time.time_ns(), [folder]
    try:
        while waiting:
            above = waiting.pop()
            facts[above] = (os.lstat(above).st_mode, None)
            with os.scandir(above) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    info = entry.stat(follow_symlinks=False)
                    key = key_of(info, begun)
                    if len(facts) > _MOST_ENTRIES:
                        return None
                    # One that was touched a moment ago is like no other.
                    facts[entry.path] = (info.st_mode, key or (begun, 0, 0, 0, 0))
    except OSError:
        return None
    return facts


class SharedMemory:
    """What stands in /dev/shm as it was when this was made. For a user whom nobody else is."""

    def __init__(self) -> None:
        self._known = self._names()

    def restore(self) -> None:
        """Remove what is new and this user's."""
        for name in self._names() - self._known:
            with suppress(OSError):
                remove(os.path.join(_SHARED_MEMORY, name))

    def _names(self) -> frozenset[str]:
        with suppress(OSError):
            return frozenset(os.listdir(_SHARED_MEMORY))
        return frozenset()


class JudgedRepository:
    """The `.git` that checks meet, and those of submodules: git's own files as they were after `setup`, and the commits
    of the work read anew. `place` is a folder of the same file system. Where the history lies within reach of the
    tools, nothing can be read anew, and checks run in the repository that tools have. What is `kept` is a file that no
    tool can open."""

    def __init__(self, repository: Repository, place: str) -> None:
        self._repository, self._top = repository, repository.top
        self._judged, self._aside = os.path.join(place, "judged"), os.path.join(place, "worked-in")
        self._folder = os.path.join(self._judged, GIT)
        self._submodules: tuple[str, ...] = ()
        self._start = self._commit = self._branch = ""
        with suppress(OperationRefused):
            self._start, _ = repository.head()
        self._is_kept = self._is_fresh = False

    def begin(self, submodules: Iterable[str], kept: IO[bytes]) -> None:
        """Keep git's own files as they are, and those of submodules at these paths."""
        dot_git = os.path.join(self._top, GIT)
        if not self._repository.alternates or not os.path.isdir(dot_git) or os.path.islink(dot_git):
            return
        self._submodules = tuple(path for path in submodules if os.path.lexists(os.path.join(self._top, path, GIT)))
        self._pack(self._top, kept)
        self._unpack(kept)
        for path in self._paths:
            self._leave_out_settings(path)
        self._pack(self._judged, kept)
        self._is_kept = True

    def _pack(self, root: str, kept: IO[bytes]) -> None:
        own = sorted(set(os.listdir(os.path.join(root, GIT))) - _LEFT_OUT)
        # A submodule's objects are few: those that `setup` brought, or none, where it borrows them.
        names = (*(f"{GIT}/{name}" for name in own), *(f"{path}/{GIT}" for path in self._submodules))
        _pack(kept, "--exclude=*.lock", "-C", root, *(f"./{name}" for name in names))

    def _unpack(self, kept: IO[bytes]) -> None:
        remove(self._judged)
        os.mkdir(self._judged)
        _unpack(kept, "-C", self._judged)
        for name in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)

    def prepare(self, commit: str, branch: str, kept: IO[bytes]) -> str:
        """Make it for this commit and branch; gives the folder of objects that were read anew, if there is one.
        Raises `OperationRefused`."""
        self._commit, self._branch, self._is_fresh = commit, branch, False
        if not self._is_kept:
            return ""
        self._make(kept)
        return os.path.join(self._folder, "objects")

    def put_in_place(self, differing: Iterable[str], kept: IO[bytes]) -> None:
        """Put it in place for a check. Of the `differing` paths git must look at the content."""
        if not self._is_kept or not self._commit:
            return
        if not self._is_fresh:
            # The check before may have changed it.
            self._make(kept)
        self._is_fresh = False
        for path in differing:
            with suppress(OSError):
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
                remove(os.path.join(self._top, path, GIT))
                _move(path, self._aside, self._top)

    @property
    def _paths(self) -> tuple[str, ...]:
        return "", *self._submodules

    def _is_folder(self, path: str) -> bool:
        """Whether a submodule is still a folder of the work tree: a link may lead to the work tree itself."""
        place = os.path.join(os.path.realpath(self._top), path)
        return os.path.isdir(place) and os.path.realpath(place) == place.rstrip("/")

    def _make(self, kept: IO[bytes]) -> None:
        self._unpack(kept)
        with open(os.path.join(self._folder, ALTERNATES), "wb") as file:
            file.write(self._repository.alternates)
        self._take_commits()
        self._set_head()
        self._git()("read-tree", "--reset", self._commit)
        for path in self._submodules:
            # An index that knows no file's times lets no file be skipped. It fails without a commit.
            self._git(path).run("read-tree", "--reset", "HEAD", fine=None)
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
            with suppress(OperationRefused):
                git("update-ref", self._branch, self._commit)
                git("symbolic-ref", "HEAD", self._branch)

    def _git(self, path: str = "") -> GitProgram:
        """git in the judged repository, or in a submodule's."""
        environment = {
            "GIT_DIR": os.path.join(self._judged, path, GIT),
            "GIT_WORK_TREE": os.path.join(self._top, path),
            **NO_CONFIGURATION,
            **config_variables(_OWN_SETTINGS),
        }
        return GitProgram(top=self._top, environment=environment)


def _move(path: str, source: str, target: str) -> None:
    """Move the `.git` of a path from one folder to another, where there is one."""
    dot_git = os.path.join(source, path, GIT)
    if os.path.lexists(dot_git):
        os.makedirs(os.path.join(target, path), exist_ok=True)
        os.rename(dot_git, os.path.join(target, path, GIT))


def _pack(into: IO[bytes], *words: str) -> None:
    """Keep what the words name to tar."""
    into.seek(0)
    into.truncate()
    _run("tar", "-c", "-f", "-", *words, sink=into.write)
    into.flush()


def _unpack(kept: IO[bytes], *words: str) -> None:
    os.lseek(kept.fileno(), 0, os.SEEK_SET)
    _run("tar", "-x", "-o", "-p", "-f", "-", *words, stdin=kept.fileno())


def _run(*words: str, sink: Sink = lambda _: None, stdin: bytes | int = b"") -> None:
    ended = run_program(words, {**os.environ, "LC_ALL": "C"}, _SECONDS, sink, stdin=stdin)
    if ended.exit_code:
        raise OperationRefused(f"what `setup` left cannot be kept or put back: {ended.complaint.strip()[-500:]}")
