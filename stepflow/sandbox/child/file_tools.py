"""The file tools: read, write, edit, glob and grep. The kinds of their inputs were checked before."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from .paths import (
    FILE_FLAGS,
    OperationRefused,
    check_regular,
    locate,
    open_folder,
    open_regular,
    reason,
    walk,
    write_file,
)

Inputs = Mapping[str, Any]
#: What one `read` gives at most.
READ_LIMIT = 256 * 1024
#: What `write` and `edit` take at most; the boundary takes no larger change either.
FILE_LIMIT = 8 * 1024 * 1024
_PROBE = 8192
_LONGEST_LOOK = 20_000
_CLOSE_LINES = 3
NAMES_LIMIT = 500
MATCHES_LIMIT = 1000
_ENTRIES_LIMIT = 200_000
_SHOWN_LINE = 500
_LONGEST_LINE = 1024 * 1024
#: Made by tools, large, and hardly ever what is looked for: only when they are named.
_SKIPPED = frozenset({"node_modules", ".venv", "__pycache__"})


def line_range(inputs: Inputs, name: str) -> tuple[int, int] | None:
    """First and last line, counted from 1; a last line of 0 or less means the end."""
    value = inputs.get(name)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(end) is int for end in value):
        raise OperationRefused(f"{name} must be two whole numbers, [first line, last line]")
    first, last = value
    if first > last > 0:
        raise OperationRefused(f"{name}: the first line {first} comes after the last line {last}")
    return max(first, 1), max(last, 0)


def read(root: str, inputs: Inputs) -> str:
    """The file's text, whole or a range of lines, as it is; bytes that are no UTF-8 are replaced."""
    shown = inputs["file_path"]
    wanted = line_range(inputs, "view_range")
    with _open(root, shown, limit=None) as file:
        if b"\0" in file.read(_PROBE):
            raise OperationRefused(
                f"{shown}: is a binary file of {_size(file)} bytes; look at it with a command in bash"
            )
        file.seek(0)
        data = _lines(file, *wanted, shown) if wanted else _whole(file, shown)
    return data.decode("utf-8", "replace")


def write(root: str, inputs: Inputs) -> str:
    """Says what was written."""
    shown, content = inputs["file_path"], _encode(inputs["content"])
    if len(content) > FILE_LIMIT:
        raise OperationRefused(f"{shown}: the content has {len(content)} bytes, more than the {FILE_LIMIT} that fit")
    new = write_file(root, locate(root, shown), content, shown)
    return f"{'created' if new else 'replaced'} {shown} ({len(content)} bytes)"


def edit(root: str, inputs: Inputs) -> str:
    """Says how many places were changed."""
    shown = inputs["file_path"]
    old, new = inputs["old_string"], inputs["new_string"]
    everywhere = inputs.get("replace_all", False)
    if not old:
        raise OperationRefused("old_string is empty; use the write tool to make a file")
    if old == new:
        raise OperationRefused("old_string and new_string are the same; nothing would change")
    before = _editable_text(root, shown)
    count = before.count(old)
    if count == 0:
        raise OperationRefused(_no_match_message(before, old, shown))
    if count > 1 and not everywhere:
        raise OperationRefused(
            f"{shown}: old_string occurs {count} times; give more of the lines around it, or replace_all"
        )
    write_file(root, locate(root, shown), _encode(before.replace(old, new)), shown)
    return f"edited {shown} ({count} {'place' if count == 1 else 'places'})"


def _open(root: str, shown: str, *, limit: int | None) -> BinaryIO:
    parts = locate(root, shown)
    if not parts:
        raise OperationRefused(f"{shown}: is a folder, not a regular file")
    try:
        with open_folder(root, parts[:-1]) as folder:
            fd = open_regular(folder, parts[-1], shown, limit=limit)
    except OSError as exc:
        raise OperationRefused(f"{shown}: {reason(exc)}") from None
    return os.fdopen(fd, "rb")


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _whole(file: BinaryIO, shown: str) -> bytes:
    data = file.read(READ_LIMIT + 1)
    if len(data) > READ_LIMIT:
        raise OperationRefused(
            f"{shown}: has {_size(file)} bytes, more than the {READ_LIMIT} that one read gives; "
            "read a part with view_range, for example [1, 500]"
        )
    return data


def _lines(file: BinaryIO, first: int, last: int, shown: str) -> bytes:
    chosen: list[bytes] = []
    size = 0
    for number, line in enumerate(iter(lambda: file.readline(READ_LIMIT + 1), b""), start=1):
        if 0 < last < number:
            break
        if number >= first:
            chosen.append(line)
            size += len(line)
        if size > READ_LIMIT:
            raise OperationRefused(f"{shown}: these lines have more than {READ_LIMIT} bytes; ask for fewer")
    if not chosen:
        raise OperationRefused(f"{shown}: has no line {first}")
    return b"".join(chosen)


def _editable_text(root: str, shown: str) -> str:
    with _open(root, shown, limit=FILE_LIMIT) as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OperationRefused(f"{shown}: is not UTF-8 text, so it cannot be edited; use a command in bash") from None


def _no_match_message(before: str, old: str, shown: str) -> str:
    message = f"{shown}: old_string does not occur in it"
    if "\r\n" in before and "\r\n" not in old and old in before.replace("\r\n", "\n"):
        return f"{message}, because its lines end in CRLF and those of old_string in LF"
    lines = before.splitlines()[:_LONGEST_LOOK]
    first = old.strip().partition("\n")[0].strip()
    close = difflib.get_close_matches(first, [line.strip() for line in lines], n=_CLOSE_LINES, cutoff=0.75)
    similar = [f"{number}: {line}" for number, line in enumerate(lines, start=1) if line.strip() in close]
    if not similar:
        return message
    return f"{message}. Lines that look like its first line:\n" + "\n".join(similar[:_CLOSE_LINES])


def _encode(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise OperationRefused("the text contains half of a surrogate pair, which no file can hold") from None


def glob(root: str, inputs: Inputs) -> str:
    """The paths that fit, relative to the repository root. `expression` is what the engine makes of the pattern."""
    pattern = inputs["pattern"]
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise OperationRefused(f"{pattern}: a pattern is relative to the repository root and has no `..`")
    folder = "/".join(locate(root, inputs.get("path", "") or "."))
    fits = _compile(inputs["expression"])
    prefix = f"{folder}/" if folder else ""
    names = [
        f"{path}/" if is_folder else path
        for path, is_folder in _walk(root, folder, named=f"{pattern}/{folder}")
        if fits.fullmatch(path.removeprefix(prefix))
    ]
    lines = sorted(names)[:NAMES_LIMIT]
    if len(names) > NAMES_LIMIT:
        lines.append(f"[{len(names) - NAMES_LIMIT} more: narrow the pattern]")
    return "\n".join(lines) or "no file or folder matches"


def grep(root: str, inputs: Inputs) -> str:
    """`path:line:text` for each line that the expression is found in."""
    expression = _compile(inputs["pattern"])
    given = inputs.get("path", "")
    start = "/".join(locate(root, given or "."))
    lines: list[str] = []
    for path in _files(root, start, given):
        for line in _matches(root, path, expression):
            lines.append(line)
            if len(lines) > MATCHES_LIMIT:
                lines[-1] = f"[more than {MATCHES_LIMIT} lines: narrow the expression or the path]"
                return "\n".join(lines)
    return "\n".join(lines) or "no line matches"


def _compile(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as exc:
        raise OperationRefused(f"the pattern is not a valid Python regular expression: {exc}") from None


def _files(root: str, start: str, given: str) -> Iterator[str]:
    here = os.path.join(root, start)
    if not os.path.lexists(here):
        raise OperationRefused(f"{given}: does not exist")
    if not os.path.isdir(here):
        yield start
        return
    for path, is_folder in _walk(root, start, named=given):
        if not is_folder:
            yield path


def _walk(root: str, start: str, *, named: str) -> Iterator[tuple[str, bool]]:
    """Every path below `start`, and whether it is a folder; links are left out."""
    top = os.path.join(root, start)
    if not os.path.isdir(top):
        raise OperationRefused("path is not a folder" if os.path.lexists(top) else "path does not exist")
    skipped = {".git", *_SKIPPED.difference(re.split(r"[/{},]", named))}
    for seen, (path, entry) in enumerate(walk(root, start, lambda path: os.path.basename(path) not in skipped)):
        if seen == _ENTRIES_LIMIT:
            raise OperationRefused(f"more than {_ENTRIES_LIMIT} files: narrow the path")
        if not entry.is_symlink() and entry.name not in skipped:
            yield path, entry.is_dir(follow_symlinks=False)


def _matches(root: str, path: str, expression: re.Pattern[str]) -> Iterator[str]:
    """Only regular files with one name and without NUL bytes are looked into."""
    full = os.path.join(root, path)
    try:
        check_regular(os.stat(full, follow_symlinks=False), path)
        fd = os.open(full, FILE_FLAGS)
    except (OSError, OperationRefused):
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
