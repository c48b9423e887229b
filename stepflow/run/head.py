"""Which commit a checkout stands on, read without running git in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stepflow.definition.files.safe_files import FileRefused, read_below, read_end_below
from stepflow.sandbox.credentials.survey import entry_of

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF = re.compile(r"refs/[\w./+@-]{1,250}")
HEADS = "refs/heads/"
LARGEST = 8 * 1024 * 1024
#: How much of the end of HEAD's log is looked at.
TAIL = 256 * 1024
_TOP = Path("/")


@dataclass(frozen=True, kw_only=True)
class GitFolders:
    """Where git keeps a checkout's HEAD, and where its branches are. Found once, before any tool: what `.git` leads to
    later is the tools' word.
    """

    own: Path
    shared: Path

    def head(self) -> str:
        """HEAD's commit; empty without a commit, or where that cannot be read."""
        said = _text(self.own / "HEAD").strip()
        if COMMIT.fullmatch(said):
            return said
        return self._commit_of(said.removeprefix("ref: "))

    def branch(self) -> str:
        """The branch that HEAD stands on, where the remote `origin` had one of this name when it was asked last; else
        empty."""
        name = _text(self.own / "HEAD").strip().removeprefix(f"ref: {HEADS}")
        return name if self._commit_of(f"refs/remotes/origin/{name}") else ""

    def _commit_of(self, ref: str) -> str:
        if not REF.fullmatch(ref) or ".." in ref:
            return ""
        for folder in (self.own, self.shared):
            commit = _text(folder / ref).strip()
            if COMMIT.fullmatch(commit):
                return commit
        lines = (line.split(" ") for line in _text(self.shared / "packed-refs").splitlines())
        return next((words[0] for words in lines if words[1:] == [ref] and COMMIT.fullmatch(words[0])), "")

    def stood_on(self, commit: str) -> bool:
        """Whether HEAD was on the commit at some time, as its log says."""
        return bool(commit.strip("0")) and f"{commit} " in _text(self.own / "logs" / "HEAD", tail=True)


def find_git_folders(root: Path) -> GitFolders:
    """The folder that `.git` is, or that a `.git` file names, and the one that a linked work tree shares."""
    entry = entry_of(root)
    own = entry.parent.resolve() / entry.name
    named = _text(own).rstrip("\r\n")
    if named.startswith("gitdir: "):
        own = (own.parent / named.removeprefix("gitdir: ")).resolve()
    common = _text(own / "commondir").rstrip("\r\n")
    return GitFolders(own=own, shared=(own / common).resolve() if common else own)


def _text(path: Path, *, tail: bool = False) -> str:
    """The text of a regular file, empty where there is none; no component of its path may be a link."""
    try:
        below = path.relative_to(_TOP)
        data = read_end_below(_TOP, below, most=TAIL) if tail else read_below(_TOP, below, limit=LARGEST)
    except FileRefused:
        return ""
    return data.decode("utf-8", "replace")
