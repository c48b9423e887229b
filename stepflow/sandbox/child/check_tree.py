"""Writes the files of a closing into the tree that its checks run in, and restores what a check has changed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from .git import (
    GIT,
    NO_CONFIGURATION,
    EngineGit,
    GitProgram,
    Repository,
    config_variables,
    engine_git,
    join_paths,
)
from .paths import OperationRefused, remove

#: Git would run what they name. Of hooks those count that `.git` has.
_PROGRAMS = ("core.hooksPath", "core.fsmonitor")
_INCLUDES = r"^include(if\..*)?\.path$"
#: Copies of files have other numbers and times of change; size and time of modification tell that they are as git knows
#: them. Only so is a file that a filter such as Git LFS wrote left as it is.
_COPIED = (("core.trustctime", "false"), ("core.checkStat", "minimal"))
#: A check may set any time that a file has but that of its last change.
_EXACT = (("core.trustctime", "true"), ("core.checkStat", "default"))
#: A time after that of any file, in seconds, which every file system can store.
_LATE = 2**31 - 1
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - what the user has there is removed
_SEGMENTS, _IPC_RMID = "/proc/sysvipc/shm", 0


@dataclass(kw_only=True)
class ClosingFiles:
    """The files of the newest closing in the check tree, and an index by which only files are written that are
    not as it says."""

    repository: Repository
    settings: tuple[tuple[str, str], ...]
    excludes: bytes
    #: The commit with all files, committed or not.
    files: str = ""
    index: bytes = b""
    #: Files that a filter such as Git LFS has written. They stay as `setup` left them as long as the commits have them
    #: as they were then.
    filtered: frozenset[str] = frozenset()

    def write(self, commit: str, files: str, branch: str) -> None:
        """Write all files over those that are there, with HEAD at the commit, on the branch if there is one."""
        self.files, dot_git = files, os.path.join(self.repository.top, GIT)
        if not self.index:
            self._take_index(dot_git)
        self.restore()
        theirs = _git_of(self.repository.top, dot_git)
        _leave_out_programs(theirs)
        theirs("update-ref", "--no-deref", "HEAD", commit)
        if branch:
            # It fails where another branch of the start is in the way.
            with suppress(OperationRefused):
                theirs("update-ref", branch, commit)
                theirs("symbolic-ref", "HEAD", branch)
        if not self.filtered:
            # Git need not look into files that it has just written.
            with open(os.path.join(dot_git, "index"), "wb") as file:
                file.write(self.index)
        theirs("read-tree", "--reset", commit)
        # It fails where a file differs, which is no fault.
        theirs.run("update-index", "-q", "--refresh", fine=None)

    def restore(self) -> None:
        """Restore the files that are not as they were written, and remove those that git would add to a commit."""
        with self._git(_EXACT) as own:
            own.write("index", self.index)
            if self.filtered:
                moved = self.filtered & {*own.ask("diff-index", "--cached", "-z", "--name-only", self.files)}
                own.ask("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=join_paths(sorted(moved)))
                self.filtered -= moved
            own.ask("read-tree", "--reset", "-u", self.files)
            own.ask("clean", "-d", "--force", "--force", "--quiet")
            own.refresh_index()
            self.index = own.read("index")

    def _take_index(self, dot_git: str) -> None:
        """Take the index that `setup` left. Files that a filter has written stay as they are."""
        with open(os.path.join(dot_git, "index"), "rb") as file:
            index = file.read()
        with self._git(_COPIED) as own:
            # Git looks into files that are no older than their index, and would not know what a filter has written.
            os.utime(own.write("index", index), (_LATE, _LATE))
            differing = {*own.ask("diff-files", "-z", "--name-only")}
        with self._git(_EXACT) as own:
            own.write("index", index)
            own.refresh_index()
            found = {*own.ask("diff-files", "-z", "--name-only", "--ignore-submodules=dirty")}
            self.filtered = frozenset(found - differing)
            own.ask("update-index", "--skip-worktree", "-z", "--stdin", stdin=join_paths(sorted(self.filtered)))
            self.index = own.read("index")

    @contextmanager
    def _git(self, exactness: Sequence[tuple[str, str]]) -> Iterator[EngineGit]:
        with engine_git(self.repository, self.files, settings=(*self.settings, *exactness)) as own:
            own.write("info/exclude", self.excludes)
            yield own


def _git_of(top: str, dot_git: str) -> GitProgram:
    """Return git for the repository that checks see."""
    off = (("core.hooksPath", os.devnull), ("core.fsmonitor", "false"), ("core.logAllRefUpdates", "false"))
    environment = {"GIT_DIR": dot_git, "GIT_WORK_TREE": top, **NO_CONFIGURATION, **config_variables(off)}
    return GitProgram(top=top, environment=environment)


def _leave_out_programs(git: GitProgram) -> None:
    """Take out what leads to programs, and to settings in other files."""
    included = git.run("config", "--name-only", "--get-regexp", _INCLUDES, fine=None).output
    for key in (*_PROGRAMS, *os.fsdecode(included).splitlines()):
        # It fails where it is not set.
        git.run("config", "--unset-all", key, fine=None)


def remove_shared_memory() -> None:
    """Remove what this user has in shared memory, and its segments of System V; other things that the kernel keeps
    without a process are refused to tools. For a user whom nobody else is."""
    for name in os.listdir(_SHARED_MEMORY) if os.path.isdir(_SHARED_MEMORY) else ():
        with suppress(OSError):
            remove(os.path.join(_SHARED_MEMORY, name))
    for segment in _read_segments():
        ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)


def _read_segments() -> list[int]:
    """Return the numbers of this user's segments."""
    try:
        with open(_SEGMENTS, "rb") as file:
            header, *lines = map(bytes.split, file)
    except OSError:
        return []
    number, user = header.index(b"shmid"), header.index(b"uid")
    return [int(line[number]) for line in lines if int(line[user]) == os.getuid()]
