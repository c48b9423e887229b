"""The agent folder as a snapshot: every file read once, safely (registry.md §1).

Takes: the folder and paths out of agent files. Gives: texts or the reason why not, and the digest of all that was read.
May touch: reads the agent folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from stepflow.files import FileRefused, Why, read_below

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_LISTED = 500


class FaultKind(StrEnum):
    """Why a file gives no text."""

    UNSAFE = "unsafe"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    CONTENT = "content"


class FileFault(Exception):
    """A file that cannot be used; the message completes `the file "x" …`."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def unsafe_reason(path: str) -> str | None:
    """Why a path out of an agent file is refused by its form alone; None when it is fine."""
    if not path:
        return "is empty"
    if "\0" in path:
        return "contains a NUL"
    if "\\" in path:
        return "contains a backslash"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is not relative"
    return 'contains ".."' if ".." in path.split("/") else None


class AgentFolder:
    """Reads files below one folder, each at most once: a later read gives the text of the first."""

    def __init__(self, path: Path, *, root: Path) -> None:
        self.path = path
        self.name = path.name
        self.prefix = path.relative_to(root).as_posix()
        self._root = root
        self._read: dict[str, str | FileFault] = {}
        self._bytes: dict[str, bytes] = {}

    def read(self, path: str) -> str:
        """The text of a file, without a byte-order mark. Raises `FileFault`."""
        key = PurePosixPath(path).as_posix() if unsafe_reason(path) is None else path
        if key not in self._read:
            self._read[key] = self._read_now(key)
        text = self._read[key]
        if isinstance(text, FileFault):
            raise text
        return text

    @property
    def texts(self) -> dict[str, str]:
        """Every text that was read so far, by its path."""
        return {path: text for path, text in self._read.items() if isinstance(text, str)}

    def has(self, path: str) -> bool:
        """True when there is something under that name, whatever it is."""
        return os.path.lexists(self.path / path)

    def base(self, path: str) -> str:
        """A base path relative to this folder; `.agent/<name>/…` means the folder itself (registry.md §1)."""
        parts = PurePosixPath(path).parts if unsafe_reason(path) is None else ()
        if parts[:2] == (".agent", self.name):
            return PurePosixPath(*parts[2:]).as_posix()
        return PurePosixPath(path).as_posix() if parts else path

    def json_files(self, base: str) -> tuple[str, ...]:
        """The names of the `*.json` files directly in a folder; none when it cannot be listed."""
        try:
            return tuple(sorted(file.name for file in (self.path / base).glob("*.json") if file.is_file()))
        except OSError:
            return ()

    def files(self) -> tuple[str, ...]:
        """The paths of the files below this folder, for saying what is there; not more than a few hundred.

        Nothing is followed and nothing is read.
        """
        found: list[str] = []
        for folder, _, names in os.walk(self.path):
            found += [(Path(folder) / name).relative_to(self.path).as_posix() for name in sorted(names)]
            if len(found) > MAX_LISTED:
                break
        return tuple(found[:MAX_LISTED])

    def digest(self, templates: Mapping[str, str]) -> str:
        """SHA-256 over the names and contents of all files that were read, and of the shipped templates in use."""
        total = hashlib.sha256()
        shipped = {name: text.encode() for name, text in templates.items()}
        for name, content in sorted({**self._bytes, **shipped}.items()):
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()

    def _read_now(self, path: str) -> str | FileFault:
        try:
            content = self._content(path)
            text = content.decode("utf-8-sig")
        except FileFault as fault:
            return fault
        except UnicodeDecodeError as exc:
            return FileFault(FaultKind.CONTENT, f"is not UTF-8 (byte {exc.start})")
        self._bytes[path] = content
        return text

    def _content(self, path: str) -> bytes:
        if reason := unsafe_reason(path):
            raise FileFault(FaultKind.UNSAFE, reason)
        try:
            return read_below(self._root, PurePosixPath(self.prefix, path), limit=MAX_FILE_BYTES)
        except FileRefused as refused:
            raise FileFault(_KINDS.get(refused.why, FaultKind.UNREADABLE), refused.message) from refused


_KINDS = {
    Why.MISSING: FaultKind.MISSING,
    Why.LINK: FaultKind.UNSAFE,
    Why.OUTSIDE: FaultKind.UNSAFE,
    Why.LARGE: FaultKind.CONTENT,
}
