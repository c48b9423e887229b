"""The agent folder as a snapshot: every file is read once, safely, and JSON files become objects (registry.md §1)."""

from __future__ import annotations

import hashlib
import os
import re
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from stepflow.definition.diagnostics import LIKE_PATHS, closest_match, listed
from stepflow.definition.json_text import JsonFault, last_key, parse_json
from stepflow.definition.safe_files import FileRefused, Why, read_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.diagnostics import FileProblems
    from stepflow.definition.json_text import Document
    from stepflow.domain.json import JsonObject


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
        paths: list[str] = []
        for folder, _, names in os.walk(self.path):
            paths += [(Path(folder) / name).relative_to(self.path).as_posix() for name in sorted(names)]
            if len(paths) > MAX_LISTED:
                break
        return tuple(paths[:MAX_LISTED])

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


#: A text that begins as YAML does and JSON never.
_YAML = re.compile(r"\s*(---|#|[A-Za-z_][\w-]*:(\s|$))")


def read_object(folder: AgentFolder, problems: FileProblems, *, what: str) -> JsonObject | None:
    """The object in the JSON file that `problems` is about. `what` names the file's role in messages."""
    try:
        text = folder.read(problems.file)
    except FileFault as fault:
        code = {FaultKind.UNSAFE: "SF109", FaultKind.CONTENT: "SF104"}.get(fault.kind, "SF102")
        near = beside(folder, problems.file) if fault.kind is FaultKind.MISSING else ""
        problems.add(code, "", f'the {what} "{problems.file}" {fault.message}{near}', _FIXES[fault.kind])
        return None
    try:
        document = parse_json(text)
    except JsonFault as fault:
        report_fault(text, fault, problems, "SF104", f"the {what} {fault.message}")
        return None
    register_document(text, document, problems)
    if not isinstance(document.value, dict):
        problems.add("SF106", "", f"the {what} holds no JSON object", "Write one object in braces.")
        return None
    return document.value


def report_fault(text: str, fault: JsonFault, problems: FileProblems, code: str, message: str) -> None:
    """Report what is no JSON, and say so when it looks like YAML."""
    fix = "Write valid JSON: no comments, no comma after the last item, every text and key in double quotes."
    if _YAML.match(text):
        fix = "Write the file as JSON: it looks like YAML, which is read nowhere but in scenarios and front matter."
    problems.add(code, "", message, fix, line=fault.line, column=fault.column)


def beside(folder: AgentFolder, file: str) -> str:
    """What is there in the place of a file that is missing, in words.

    A file that was read already has its place.
    """
    there = [name for name in folder.files() if name != file and name not in folder.texts]
    alike = [name for name in there if _one_part_apart(name, file)]
    place, _, _ = file.rpartition("/")
    near = alike or [name for name in there if name.rpartition("/")[0] == place and _stem(name) == _stem(file)]
    return f"; there is {listed(near[:3])}" if near else ""


def _one_part_apart(there: str, wanted: str) -> bool:
    """The same path but for one name, which is alike."""
    pairs = [(one, other) for one, other in zip(there.split("/"), wanted.split("/"), strict=False) if one != other]
    same_depth = there.count("/") == wanted.count("/")
    if not same_depth or len(pairs) != 1:
        return False
    name, other = pairs[0]
    return closest_match(name, [other], LIKE_PATHS) is not None and _alike_ending(name, other)


def _alike_ending(there: str, wanted: str) -> bool:
    return there.rpartition(".")[2] == wanted.rpartition(".")[2] if "." in wanted else "." not in there


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def register_document(text: str, document: Document, problems: FileProblems) -> None:
    """Keep the text, so that problems can be placed; report each key that one object has twice (SF104)."""
    problems.diagnostics.json_texts[problems.file] = text
    for pointer, line in document.repeated:
        key = last_key(pointer)
        message = f'the key "{key}" is written twice in one object'
        problems.add("SF104", pointer, message, "Keep one of them; the last one is read.", line=line)


_FIXES = {
    FaultKind.UNSAFE: "Name a file inside the agent folder.",
    FaultKind.MISSING: "Create the file, or correct its name.",
    FaultKind.UNREADABLE: "Make it a regular file that can be read.",
    FaultKind.CONTENT: "Save it as UTF-8 and make it smaller than 2 MiB.",
}
