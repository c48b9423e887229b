"""What a repository's history stands on: its own folder, and the files that lend it objects or parents.

Takes: the checkout. Gives: a word for each that changes with it.
May touch: reads the repository's files as the tools' user; follows no link (security.md case 13).
"""

from __future__ import annotations

import os
import stat

from .paths import Refusal, digest

_GITDIR = b"gitdir: "
_LONGEST = 4096
#: `commondir` is where a linked work tree's repository has its objects and branches.
_LENDERS = ("commondir", "objects/info/alternates", "info/grafts")


def footing(checkout: str) -> dict[str, str]:
    """The repository that the checkout lies in; empty when it lies in none."""
    dot_git = find_dot_git(checkout)
    if dot_git is None:
        return {}
    info = os.lstat(dot_git)
    found = {".git": f"{stat.S_IFMT(info.st_mode):o} {info.st_dev} {info.st_ino}"}
    folder = pointed_to(dot_git, os.path.dirname(dot_git)) if stat.S_ISREG(info.st_mode) else dot_git
    common = pointed_to(os.path.join(folder, "commondir"), folder)
    return {
        **found,
        **{name: f"{digest(os.path.join(folder, name))}, {digest(os.path.join(common, name))}" for name in _LENDERS},
    }


def check_footing(checkout: str, start: dict[str, str]) -> None:
    """Refuses a repository that stands on something else than at the start."""
    now = footing(checkout)
    for name in sorted(start.keys() | now.keys()):
        if start.get(name) != now.get(name):
            what = "`.git` is not the one that" if name == ".git" else f"`.git/{name}` is not what"
            raise Refusal(f"{what} was there when the run began")


def find_dot_git(checkout: str) -> str | None:
    """The `.git` that git would find: here, then further up."""
    place = os.path.abspath(checkout)
    while not os.path.lexists(os.path.join(place, ".git")):
        if place == os.path.dirname(place):
            return None
        place = os.path.dirname(place)
    return os.path.join(place, ".git")


def pointed_to(pointer: str, base: str) -> str:
    """The folder that a small file such as `commondir` names, by itself or after `gitdir:`; without it, the base."""
    try:
        if not stat.S_ISREG(os.lstat(pointer).st_mode):
            return base
        with open(pointer, "rb") as file:
            told = file.read(_LONGEST).removeprefix(_GITDIR).rstrip(b"\r\n")
    except OSError:
        return base
    return os.path.join(base, os.fsdecode(told.replace(b"\0", b"")))
