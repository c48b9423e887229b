"""Digests of the files that fit a validator's `guards` (security.md case 15).

Takes: a folder and path patterns. Gives: path and digest as JSON.
May touch: reads files below the folder; follows no link, opens nothing but regular files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from typing import TYPE_CHECKING

from .places import FILE_FLAGS, Refusal, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_FILES = 20_000
_MOST_ENTRIES = 1_000_000
_PIECE = 1024 * 1024
_WILD = re.compile(r"[*?]")
_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def digests(root: str, patterns: Sequence[str]) -> str:
    """`{path: digest}` for everything but folders that fits a pattern; a folder that is not there holds nothing.

    A pattern is a glob as git writes them: without a slash it fits a name at any depth, `**` crosses folders, and what
    fits a folder fits everything in it.
    """
    anchored = [_anchored(pattern) for pattern in patterns]
    fits = [re.compile(f"{_expression(pattern)}(?:/.*)?", re.DOTALL) for pattern in anchored]
    found: dict[str, str] = {}
    for path in _walk(root, [_fixed_part(pattern) for pattern in anchored]):
        if any(one.fullmatch(path) for one in fits):
            found[path] = digest(os.path.join(root, path))
            if len(found) > MOST_FILES:
                raise Refusal(f"more than {MOST_FILES} files fit {', '.join(patterns)}; narrow the patterns")
    return json.dumps(found, sort_keys=True)


def digest(full: str) -> str:
    """What is there, in a word that changes with it: content and the right to run it, a link's target, or a kind."""
    try:
        info = os.stat(full, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return f"link to {os.readlink(full)}"
        if not stat.S_ISREG(info.st_mode):
            return f"no regular file ({stat.S_IFMT(info.st_mode):o})"
        runs = " x" if info.st_mode & stat.S_IXUSR else ""
        return f"sha256 {_sha256(full)}{runs}"
    except OSError as exc:
        return reason(exc)


def _sha256(full: str) -> str:
    seen = hashlib.sha256()
    with os.fdopen(os.open(full, FILE_FLAGS), "rb") as file:
        while piece := file.read(_PIECE):
            seen.update(piece)
    return seen.hexdigest()


def _anchored(pattern: str) -> str:
    plain = pattern.removeprefix("./").removesuffix("/").removesuffix("/**")
    return plain.removeprefix("/") if "/" in pattern.removesuffix("/") else f"**/{plain}"


def _expression(pattern: str) -> str:
    return "".join(_PARTS.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))


def _fixed_part(pattern: str) -> list[str]:
    """The folders that lead to everything that can fit."""
    names = pattern.split("/")
    wild = next((number for number, name in enumerate(names) if _WILD.search(name)), len(names))
    return names[:wild]


def _walk(root: str, ways: Sequence[list[str]]) -> Iterator[str]:
    """Every path below the root that is no folder, along the ways; git's own folder is left out."""
    waiting: list[list[str]] = [[]]
    seen = 0
    while waiting:
        here = waiting.pop()
        for entry in _entries(os.path.join(root, *here)):
            seen += 1
            if seen > _MOST_ENTRIES:
                raise Refusal(f"there are more than {_MOST_ENTRIES} files")
            names = [*here, entry.name]
            if not entry.is_dir(follow_symlinks=False):
                yield "/".join(names)
            elif names != [".git"] and any(_leads(names, way) for way in ways):
                waiting.append(names)


def _leads(names: list[str], way: list[str]) -> bool:
    return all(name == step for name, step in zip(names, way, strict=False))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
