"""The tools read, write and edit.

Takes: the repository root and the tool's input. Gives: the text for the model, or a `Refusal`.
May touch: regular files inside the checkout, through `places`.
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, BinaryIO

from .inputs import flag, line_range, text
from .paths import Refusal, locate, open_folder, open_regular, reason, write_file

if TYPE_CHECKING:
    from .inputs import Inputs

#: What one `read` gives at most.
READ_LIMIT = 256 * 1024
#: What `write` and `edit` take at most; the boundary takes no larger change either (boundary.md).
FILE_LIMIT = 8 * 1024 * 1024
_PROBE = 8192
_LONGEST_LOOK = 20_000
_CLOSE_LINES = 3


def read(root: str, inputs: Inputs) -> str:
    """The file's text, whole or a range of lines, as it is; bytes that are no UTF-8 are replaced."""
    shown = text(inputs, "file_path")
    wanted = line_range(inputs, "view_range")
    with _open(root, shown, limit=None) as file:
        if b"\0" in file.read(_PROBE):
            raise Refusal(f"{shown}: is a binary file of {_size(file)} bytes; look at it with a command in bash")
        file.seek(0)
        data = _lines(file, *wanted, shown) if wanted else _whole(file, shown)
    return data.decode("utf-8", "replace")


def write(root: str, inputs: Inputs) -> str:
    """Says what was written."""
    shown, content = text(inputs, "file_path"), _encode(text(inputs, "content"))
    if len(content) > FILE_LIMIT:
        raise Refusal(f"{shown}: the content has {len(content)} bytes, more than the {FILE_LIMIT} that fit")
    new = write_file(root, locate(root, shown), content, shown)
    return f"{'created' if new else 'replaced'} {shown} ({len(content)} bytes)"


def edit(root: str, inputs: Inputs) -> str:
    """Says how many places were changed."""
    shown, old, new = text(inputs, "file_path"), text(inputs, "old_string"), text(inputs, "new_string")
    everywhere = flag(inputs, "replace_all")
    if not old:
        raise Refusal("old_string is empty; use the write tool to make a file")
    if old == new:
        raise Refusal("old_string and new_string are the same; nothing would change")
    before = _editable_text(root, shown)
    count = before.count(old)
    if count == 0:
        raise Refusal(_not_found(before, old, shown))
    if count > 1 and not everywhere:
        raise Refusal(f"{shown}: old_string occurs {count} times; give more of the lines around it, or replace_all")
    write_file(root, locate(root, shown), _encode(before.replace(old, new)), shown)
    return f"edited {shown} ({count} {'place' if count == 1 else 'places'})"


def _open(root: str, shown: str, *, limit: int | None) -> BinaryIO:
    parts = locate(root, shown)
    if not parts:
        raise Refusal(f"{shown}: is a folder, not a regular file")
    try:
        with open_folder(root, parts[:-1]) as folder:
            fd, _ = open_regular(folder, parts[-1], shown, limit=limit)
    except OSError as exc:
        raise Refusal(f"{shown}: {reason(exc)}") from None
    return os.fdopen(fd, "rb")


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _whole(file: BinaryIO, shown: str) -> bytes:
    data = file.read(READ_LIMIT + 1)
    if len(data) > READ_LIMIT:
        raise Refusal(
            f"{shown}: has {_size(file)} bytes, more than the {READ_LIMIT} that one read gives; "
            "read a part with view_range, for example [1, 500]"
        )
    return data


def _lines(file: BinaryIO, first: int, last: int, shown: str) -> bytes:
    kept: list[bytes] = []
    size = 0
    for number, line in enumerate(iter(lambda: file.readline(READ_LIMIT + 1), b""), start=1):
        if 0 < last < number:
            break
        if number >= first:
            kept.append(line)
            size += len(line)
        if size > READ_LIMIT:
            raise Refusal(f"{shown}: these lines have more than {READ_LIMIT} bytes; ask for fewer")
    if not kept:
        raise Refusal(f"{shown}: has no line {first}")
    return b"".join(kept)


def _editable_text(root: str, shown: str) -> str:
    with _open(root, shown, limit=FILE_LIMIT) as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal(f"{shown}: is no UTF-8 text, so it cannot be edited; use a command in bash") from None


def _not_found(before: str, old: str, shown: str) -> str:
    message = f"{shown}: old_string does not occur in it"
    if "\r\n" in before and "\r\n" not in old and old in before.replace("\r\n", "\n"):
        return f"{message}, because its lines end in CRLF and those of old_string in LF"
    lines = before.splitlines()[:_LONGEST_LOOK]
    first = old.strip().partition("\n")[0].strip()
    close = difflib.get_close_matches(first, [line.strip() for line in lines], n=_CLOSE_LINES, cutoff=0.75)
    found = [f"{number}: {line}" for number, line in enumerate(lines, start=1) if line.strip() in close]
    if not found:
        return message
    return f"{message}. Lines that look like its first line:\n" + "\n".join(found[:_CLOSE_LINES])


def _encode(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise Refusal("the text holds half of a surrogate pair, which no file can hold") from None
