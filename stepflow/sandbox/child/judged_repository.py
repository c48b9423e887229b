"""The repository that checks run in: git's own files as they were before any tool ran, and the commits of the work,
each object read anew. What tools left in their `.git` is put aside for as long as a check runs."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from .enter_sandbox import config_variables
from .git import ALTERNATES, engine_git, git, said
from .paths import Refusal, remove

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .git import Repository

_GIT = ".git"
#: What is not git's own state, or belongs to a git that is at work.
_LEFT_OUT = frozenset({"objects", "lfs", "logs"})
_LOCK = ".lock"
_MOST_BYTES = 512 * 1024 * 1024
#: Any git would run what they name, which may lie among files that git ignores; of hooks those count that `.git` has.
_PROGRAMS = ("core.hooksPath", "core.fsmonitor")
_INCLUDES = r"^include(if\..*)?\.path$"
_OWN_SETTINGS = (("core.hooksPath", os.devnull), ("core.fsmonitor", "false"), ("gc.auto", "0"))


class JudgedRepository:
    """`place` is a folder of the same file system. Where the history lies within reach of the tools, nothing can be
    read anew, and checks run in the repository that tools have. What is `kept` is a file that no tool can open."""

    def __init__(self, repository: Repository, place: str) -> None:
        self._repository = repository
        self._dot_git = os.path.join(repository.top, _GIT)
        self._folder, self._aside = os.path.join(place, "judged"), os.path.join(place, "worked-in")
        self._start = self._commit = self._branch = ""
        with suppress(Refusal):
            self._start = repository.head()
        self._is_kept = self._is_fresh = False

    def begin(self, kept: IO[bytes]) -> None:
        """Keep git's own files as they are."""
        if not self._repository.alternates or not os.path.isdir(self._dot_git) or os.path.islink(self._dot_git):
            return
        try:
            self._archive(self._dot_git, kept)
            self._extract(kept)
            self._leave_out_settings()
            self._archive(self._folder, kept)
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise Refusal(f"git's own files cannot be kept as they are: {exc}") from exc
        self._is_kept = True

    def _archive(self, folder: str, kept: IO[bytes]) -> None:
        kept.seek(0)
        kept.truncate()
        with tarfile.open(fileobj=kept, mode="w") as archive:
            for name in sorted(set(os.listdir(folder)) - _LEFT_OUT):
                archive.add(os.path.join(folder, name), arcname=name, filter=_unlocked)

    def _extract(self, kept: IO[bytes]) -> None:
        remove(self._folder)
        kept.seek(0)
        with tarfile.open(fileobj=kept, mode="r:") as archive:
            archive.extraction_filter = lambda member, _: member
            archive.extractall(self._folder)  # noqa: S202 - written by the engine
        for name in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)

    def prepare(self, commit: str, kept: IO[bytes]) -> Repository:
        """Make it for this commit; the repository with objects that were read anew. Raises `Refusal`."""
        self._commit, self._branch, self._is_fresh = commit, self._repository.branch(), False
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
            with suppress(OSError):
                os.utime(os.path.join(self._repository.top, path), follow_symlinks=False)
        # It fails where a file differs, which is no fault.
        git("update-index", "-q", "--refresh", extra_env=self._environment)
        os.rename(self._dot_git, self._aside)
        os.rename(self._folder, self._dot_git)

    def put_back(self) -> None:
        """Put that of the work in place again, after `put_in_place`."""
        if self._is_kept and self._commit:
            remove(self._dot_git)
            os.rename(self._aside, self._dot_git)

    def _make(self, kept: IO[bytes]) -> None:
        try:
            self._extract(kept)
            self._write(ALTERNATES, self._repository.alternates)
            self._take_commits()
            self._set_head()
            self._ask("read-tree", "--reset", self._commit)
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise Refusal(f"the repository for the checks cannot be made: {exc}") from exc
        self._is_fresh = True

    def _leave_out_settings(self) -> None:
        """Take out what leads to programs and settings in files that tools can write."""
        listed = git("config", "--name-only", "--get-regexp", _INCLUDES, extra_env=self._environment).stdout
        for key in (*_PROGRAMS, *listed.splitlines()):
            # It fails where it is not set.
            git("config", "--unset-all", key, extra_env=self._environment)

    def _take_commits(self) -> None:
        """Bring the objects of the work over; git computes each name from the content."""
        if self._commit == self._start:
            return
        names = [name for name in (self._commit, self._start and f"^{self._start}") if name]
        wanted = "".join(f"{name}\n" for name in names)
        with tempfile.TemporaryFile() as pack:

            def take(data: bytes) -> None:
                pack.write(data)
                if pack.tell() > _MOST_BYTES:
                    raise Refusal(f"the commits have more than {_MOST_BYTES} bytes")

            with engine_git(self._repository, self._commit) as own:
                own.stream("pack-objects", "--revs", "--stdout", "-q", "--window=0", sink=take, stdin=wanted.encode())
            pack.seek(0)
            self._ask("index-pack", "--stdin", stdin=pack.fileno())
        # What was not what its name said is missing now.
        self._ask("rev-list", "--objects", "--quiet", *names)

    def _set_head(self) -> None:
        self._write("HEAD", f"{self._commit}\n".encode())
        if self._branch:
            with suppress(OSError):
                os.makedirs(os.path.join(self._folder, os.path.dirname(self._branch)), exist_ok=True)
                self._write(self._branch, f"{self._commit}\n".encode())
                self._write("HEAD", f"ref: {self._branch}\n".encode())

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            "GIT_DIR": self._folder,
            "GIT_WORK_TREE": self._repository.top,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **config_variables(_OWN_SETTINGS),
        }

    def _ask(self, *words: str, stdin: int = subprocess.DEVNULL) -> None:
        said(git(*words, stdin=stdin, extra_env=self._environment))

    def _write(self, name: str, data: bytes) -> None:
        with open(os.path.join(self._folder, name), "wb") as file:
            file.write(data)


def _unlocked(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith(_LOCK) else member
