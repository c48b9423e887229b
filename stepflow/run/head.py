"""Which commit a checkout stands on, read without running git in it.

Takes: the repository's root. Gives: HEAD's commit, and whether HEAD stood on another one before.
May touch: reads a few small files of git's; what they say is checked by shape and believed no further.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from stepflow.toolbox import git_entry

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF = re.compile(r"refs/[\w./+@-]{1,250}")
LARGEST = 8 * 1024 * 1024
#: How much of the end of HEAD's log is looked at.
TAIL = 256 * 1024


def read_head(root: Path) -> str:
    """HEAD's commit; empty without a commit, or where that cannot be read."""
    folder = _git_folder(root)
    said = _text(folder / "HEAD").strip()
    if COMMIT.fullmatch(said):
        return said
    ref = said.removeprefix("ref: ")
    if not REF.fullmatch(ref) or ".." in ref:
        return ""
    shared = _shared(folder)
    for place in (folder, shared):
        commit = _text(place / ref).strip()
        if COMMIT.fullmatch(commit):
            return commit
    lines = (line.split(" ") for line in _text(shared / "packed-refs").splitlines())
    return next((words[0] for words in lines if words[1:] == [ref] and COMMIT.fullmatch(words[0])), "")


def stood_on(root: Path, commit: str) -> bool:
    """Whether this checkout's HEAD was on the commit at some time, as its log says."""
    return bool(commit.strip("0")) and f"{commit} " in _text(_git_folder(root) / "logs" / "HEAD", tail=TAIL)


def _git_folder(root: Path) -> Path:
    """The folder that `.git` is, or that a `.git` file names."""
    entry = git_entry(root)
    if entry.is_dir():
        return entry
    named = _text(entry).rstrip("\r\n")
    return entry.parent / named.removeprefix("gitdir: ") if named.startswith("gitdir: ") else entry


def _shared(folder: Path) -> Path:
    """Where a linked work tree's branches are."""
    named = _text(folder / "commondir").rstrip("\r\n")
    return folder / named if named else folder


def _text(path: Path, *, tail: int = LARGEST) -> str:
    """The end of a regular file, empty where there is none: a pipe in its place must not hold us up."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return ""
            file.seek(max(0, status.st_size - tail))
            return file.read(tail).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
