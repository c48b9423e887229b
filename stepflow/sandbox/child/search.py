"""The tools glob and grep.

Takes: the repository root and the tool's input. Gives: paths or lines as text, sorted by path.
May touch: reads files and folders inside the checkout; follows no link.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .inputs import optional_text, text
from .output import HeadTail
from .paths import FILE_FLAGS, Refusal, check_regular, locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .inputs import Inputs

NAMES_LIMIT = 500
MATCHES_LIMIT = 1000
TEXT_LIMIT = 100 * 1024
_ENTRIES_LIMIT = 200_000
_SHOWN_LINE = 500
_LONGEST_LINE = 1024 * 1024
_PROBE = 8192
#: Made by tools, large, and hardly ever what is looked for: only when they are named.
_SKIPPED = frozenset({"node_modules", ".venv", "__pycache__"})
_GLOB_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|[{},]|.", re.DOTALL)
_PARTS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}
_SPECIAL_IN_CLASS = re.compile(r"[\\^\[\]&~|]")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    path: str
    is_folder: bool


def glob(root: str, inputs: Inputs) -> str:
    """The paths that fit, relative to the repository root."""
    pattern = text(inputs, "pattern")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise Refusal(f"{pattern}: a pattern is relative to the repository root and has no `..`")
    folder = "/".join(locate(root, optional_text(inputs, "path") or "."))
    fits = _compile(glob_expression(pattern))
    prefix = f"{folder}/" if folder else ""
    names = [
        entry.path + "/" * entry.is_folder
        for entry in _walk(root, folder, named=f"{pattern}/{folder}")
        if fits.fullmatch(entry.path.removeprefix(prefix))
    ]
    return _listed(sorted(names), NAMES_LIMIT) or "no file or folder fits"


def grep(root: str, inputs: Inputs) -> str:
    """`path:line:text` for each line that the expression is found in."""
    expression = _compile(text(inputs, "pattern"))
    given = optional_text(inputs, "path")
    start = "/".join(locate(root, given or "."))
    found: list[str] = []
    for path in _files(root, start, given):
        for line in _matches(root, path, expression):
            found.append(line)
            if len(found) > MATCHES_LIMIT:
                found[-1] = f"[more than {MATCHES_LIMIT} lines: narrow the expression or the path]"
                return _cut("\n".join(found))
    return _cut("\n".join(found)) or "no line fits"


def glob_expression(pattern: str) -> str:
    """The regular expression of a glob pattern: `*`, `?`, `[…]`, `{a,b}`, and `**` over folders."""
    parts: list[str] = []
    depth = 0
    for piece in _GLOB_PIECE.findall(pattern.removeprefix("./")):
        depth += {"{": 1, "}": -1}.get(piece, 0)
        parts.append(_part(piece, inside=depth > 0))
    if depth != 0:
        raise Refusal(f"{pattern}: its braces do not match")
    return "".join(parts)


def _part(piece: str, *, inside: bool) -> str:
    if piece == "," and inside:
        return "|"
    if piece in _PARTS:
        return _PARTS[piece]
    if len(piece) == 1:
        return re.escape(piece)
    negated = piece[1] == "!"
    members = _SPECIAL_IN_CLASS.sub(r"\\\g<0>", piece[2 if negated else 1 : -1])
    return f"[^/{members}]" if negated else f"[{members}]"


def _compile(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as exc:
        raise Refusal(f"the pattern is no regular expression that Python takes: {exc}") from None


def _files(root: str, start: str, given: str) -> Iterator[str]:
    here = os.path.join(root, start)
    if not os.path.lexists(here):
        raise Refusal(f"{given}: does not exist")
    if not os.path.isdir(here):
        yield start
        return
    for entry in _walk(root, start, named=given):
        if not entry.is_folder:
            yield entry.path


def _walk(root: str, start: str, *, named: str) -> Iterator[_Entry]:
    """Everything below `start`, folder by folder in the order of names; links are left out."""
    wanted = set(re.split(r"[/{},]", named))
    waiting = [start]
    seen = 0
    while waiting:
        folder = waiting.pop()
        below: list[str] = []
        for entry in _entries(os.path.join(root, folder)):
            seen += 1
            if seen > _ENTRIES_LIMIT:
                raise Refusal(f"more than {_ENTRIES_LIMIT} files: narrow the path")
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.is_symlink() or entry.name == ".git" or (entry.name in _SKIPPED - wanted):
                continue
            if is_folder:
                below.append(path)
            yield _Entry(path=path, is_folder=is_folder)
        waiting += reversed(below)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except NotADirectoryError:
        raise Refusal("path is not a folder") from None
    except FileNotFoundError:
        raise Refusal("path does not exist") from None
    except PermissionError:
        return []


def _matches(root: str, path: str, expression: re.Pattern[str]) -> Iterator[str]:
    """Only regular files with one name and without NUL bytes are looked into."""
    full = os.path.join(root, path)
    try:
        check_regular(os.stat(full, follow_symlinks=False), path)
        fd = os.open(full, FILE_FLAGS)
    except (OSError, Refusal):
        return
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or b"\0" in file.read(_PROBE):
            return
        file.seek(0)
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
            shown = line.decode("utf-8", "replace").rstrip("\r\n")
            if expression.search(shown):
                yield f"{path}:{number}:{_short(shown)}"


def _short(line: str) -> str:
    return line if len(line) <= _SHOWN_LINE else f"{line[:_SHOWN_LINE]}… [{len(line)} characters]"


def _listed(lines: list[str], limit: int) -> str:
    if len(lines) > limit:
        lines = [*lines[:limit], f"[{len(lines) - limit} more: narrow the pattern]"]
    return _cut("\n".join(lines))


def _cut(listing: str) -> str:
    kept = HeadTail(TEXT_LIMIT)
    kept.feed(listing.encode("utf-8", "surrogateescape"))
    return kept.text()
