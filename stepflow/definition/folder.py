"""The agent folder: where it is, and its files, each read once.

Somebody else may have put files there. The root of the repository is trusted; everything below it is reached by
descriptors, without following a link on any component and without waiting, so that a name which is exchanged meanwhile
is refused, not followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath

from stepflow.definition.diagnostics import (
    LIKE_PATHS,
    FileProblems,
    closest_match,
    did_you_mean,
    escape_control,
    list_words,
)
from stepflow.definition.parsing import JsonFault, Positions, last_key, parse_json, repeats_key
from stepflow.definition.rules import rules
from stepflow.domain.json import JsonObject
from stepflow.errors import Problem

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Without blocking: a named pipe could replace the file after it was looked at.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Why(Enum):
    """Why a file is not read."""

    MISSING = auto()
    OUTSIDE = auto()
    LINK = auto()
    IRREGULAR = auto()
    LARGE = auto()
    NOT_TEXT = auto()
    UNREADABLE = auto()


class FileRefused(Exception):
    """A file that must not or cannot be read; the message completes `the file "x" …`."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message

    @property
    def unsafe(self) -> bool:
        """Whether reading the file would lead out of its folder."""
        return self.why in (Why.LINK, Why.OUTSIDE)

    @property
    def fix(self) -> str:
        """What to do about such a file of an agent."""
        return _FIXES.get(self.why, "Name a file inside the agent folder.")


_FIXES = {
    Why.MISSING: "Create the file, or correct its name.",
    Why.IRREGULAR: "Make it a regular file that can be read.",
    Why.UNREADABLE: "Make it a regular file that can be read.",
    Why.LARGE: "Make it smaller.",
    Why.NOT_TEXT: "Save it as UTF-8.",
}


def read_below(folder: Path, path: str | PurePath, *, limit: int) -> bytes:
    """The content of a regular file below a trusted folder. Raises `FileRefused`, also for more than `limit` bytes."""
    data, _ = read_start_below(folder, path, most=limit + 1)
    if len(data) > limit:
        raise FileRefused(Why.LARGE, f"is larger than {limit // 1024 // 1024} MiB")
    return data


def text_of(content: bytes) -> str:
    """Decode UTF-8, without a byte-order mark. Raises `FileRefused` for other bytes."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FileRefused(Why.NOT_TEXT, f"is not UTF-8 (byte {exc.start})") from exc


def read_start_below(folder: Path, path: str | PurePath, *, most: int) -> tuple[bytes, int]:
    """The first bytes of such a file, at most `most`, and its size."""
    with _open_below(folder, path) as fd, open(fd, "rb", closefd=False) as file:
        return file.read(most), os.fstat(fd).st_size


def first_link(folder: Path, path: PurePath) -> str:
    """The first part of a path below the folder that is a symbolic link; empty when there is none."""
    for number in range(1, len(path.parts) + 1):
        begun = PurePosixPath(*path.parts[:number])
        try:
            mode = (folder / begun).lstat().st_mode
        except OSError:
            return ""
        if stat.S_ISLNK(mode):
            return str(begun)
    return ""


@contextmanager
def _open_below(folder: Path, path: str | PurePath) -> Iterator[int]:
    names = PurePosixPath(path).parts
    if not names or ".." in names or names[0].startswith("/"):
        raise FileRefused(Why.OUTSIDE, "lies outside the folder that it must be in")
    fds: list[int] = []
    try:
        fds.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for number, name in enumerate(names, 1):
            _check_kind(fds[-1], names[:number], last=number == len(names))
            fds.append(os.open(name, _FILE if number == len(names) else _FOLDER, dir_fd=fds[-1]))
        if not stat.S_ISREG(os.fstat(fds[-1]).st_mode):
            raise FileRefused(Why.IRREGULAR, "is not a regular file")
        yield fds[-1]
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise FileRefused(Why.MISSING, "does not exist") from exc
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno == errno.ELOOP:
            raise FileRefused(Why.LINK, "is reached through a symbolic link") from exc
        said = exc.strerror if isinstance(exc, OSError) else "its name cannot be written"
        raise FileRefused(Why.UNREADABLE, f"cannot be read: {said}") from exc
    finally:
        for fd in fds:
            os.close(fd)


def _check_kind(fd: int, names: tuple[str, ...], *, last: bool) -> None:
    """Look before opening: opening a device can already do something, and the message can name the part of the path."""
    mode = os.stat(names[-1], dir_fd=fd, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        shown = "/".join(names)
        raise FileRefused(Why.LINK, "is a symbolic link" if last else f'is reached through the symbolic link "{shown}"')
    if last and not stat.S_ISREG(mode):
        raise FileRefused(Why.IRREGULAR, "is not a regular file")


def walk_files(top: Path) -> Iterator[str]:
    """The paths of the files below a folder, relative to it. Links to folders are not followed, and what cannot be read
    is left out. Unlike `os.walk` this does not recurse: folders may be nested as deeply as the file system allows."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            entries = sorted(os.scandir(top / inside), key=lambda entry: entry.name)
        except OSError:
            continue
        folders = [entry for entry in entries if entry.is_dir()]
        yield from (f"{inside}{entry.name}" for entry in entries if entry not in folders)
        waiting += (f"{inside}{entry.name}/" for entry in reversed(folders) if not entry.is_symlink())


AGENTS = ".agent"
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_NAME_FORM = "lowercase letters, digits and hyphens, starting with a letter"


@dataclass(frozen=True, kw_only=True)
class Located:
    """An agent folder that exists. `registry` is set when the path named a registry file itself."""

    folder: Path
    root: Path
    registry: str | None = None


def find_agents(root: Path) -> tuple[str, ...]:
    """The names of the agents of a repository: the folders in `.agent` that contain an `agent.json`."""
    try:
        names = (file.parent.name for file in (root / AGENTS).glob("*/agent.json"))
        return tuple(sorted(name for name in names if not name.startswith(".")))
    except OSError:
        return ()


def find_folders(root: Path) -> tuple[str, ...]:
    """Like `find_agents`, with the folders that were meant as agents but whose agent.json is missing or misnamed."""
    try:
        inside = [path for path in (root / AGENTS).iterdir() if not path.name.startswith(".") and path.is_dir()]
        folders = (path.name for path in inside if any(path.glob("*.json*")) or any(path.glob("*.y*ml")))
        return tuple(sorted(folders))
    except OSError:
        return ()


class NoAgent(Exception):
    """No agent can be read; `problem` says why."""

    def __init__(self, code: str, file: str, message: str, fix: str) -> None:
        super().__init__(message)
        severity = rules()[code].severity
        message, file = escape_control(message), escape_control(file)
        self.problem = Problem(
            severity=severity, code=code, file=file, path="", line=None, message=message, fix=escape_control(fix)
        )


def locate_agent(path: str | Path, *, root: Path | None, bare_registry: bool) -> Located:
    """The folder of an agent. With a `root`, it must lie inside the real root. Raises `NoAgent`."""
    text = str(path).encode(errors="replace").decode()
    if "\0" in text:
        raise NoAgent("SF101", f"{AGENTS}/?", "the agent name contains a NUL", "Write a plain name.")
    base = (root or Path.cwd()).absolute()
    names_registry = bare_registry and Path(text).suffix == ".json"
    if isinstance(path, str) and not re.search(r"[/\\]", text) and text not in (".", ".."):
        return replace(_check_location(base, base), registry=text) if names_registry else _locate_name(text, base)
    if root is not None and ".." in Path(path).parts:
        message = f'the agent "{text}" would lie outside ".agent"'
        raise NoAgent("SF101", text, message, "Write a plain name, or a path inside the repository.")
    folder = base / path
    if names_registry:
        return replace(_check_location(folder.parent, root), registry=folder.name)
    return _check_location(folder, root)


def where_else(root: Path) -> str:
    """What to do when there is no agent here, depending on what else is here."""
    above = next((folder for folder in root.parents if find_folders(folder)), None)
    if (root / "agent.json").is_file():
        elsewhere = f"; run every other command in {above}" if above else ""
        return f"This is an agent's folder: `stepflow validate .` checks it{elsewhere}."
    if AGENTS in (root.name, root.parent.name):
        return f"Run the command in the folder above `{AGENTS}`."
    if above is not None:
        return f"There are agents in {above}: run the command there."
    if (root / ".agents").is_dir():
        return f'Rename the folder ".agents" to "{AGENTS}".'
    return (
        "Write one with `stepflow init` and commit it, or work in the repository that holds it (`working-directory` in "
        "the action, `--repo` at a terminal); an agent is a folder `.agent/<name>/` with an agent.json."
    )


def _locate_name(name: str, root: Path) -> Located:
    known = find_agents(root)
    folder = root / AGENTS / name
    fix = f"Use one of the agents that exist: {list_words(known)}." if known else where_else(root)
    if not _NAME.fullmatch(name):
        message = f'the agent name "{name}" is not allowed: {_NAME_FORM}'
        raise NoAgent("SF101", f"{AGENTS}/{name}", message, _renaming(name) if _is_folder(folder) else fix)
    _refuse_link(root, folder)
    if not _is_folder(folder):
        others = f"{did_you_mean(name, known)}; the agents are {list_words(known)}" if known else ", nor any other"
        raise NoAgent("SF101", f"{AGENTS}/{name}", f'there is no agent "{name}"{others}', fix)
    return _inside(Located(folder=folder, root=root))


def _check_location(folder: Path, root: Path | None) -> Located:
    if root is not None:
        _refuse_link(root.absolute(), folder)
    if not _is_folder(folder):
        fix = "Name a folder that contains an agent.json, or an agent by its name."
        raise NoAgent("SF101", folder.name, f'there is no agent folder "{folder.name}"', fix)
    # The last part is kept as it is: `_inside` asks where a symbolic link leads.
    plain = folder.resolve() if folder.name in ("", "..") else folder.parent.resolve() / folder.name
    above_agents = plain.parent if plain.name == AGENTS else plain
    if (held := find_agents(above_agents)) and not (plain / "agent.json").exists():
        message = f'the folder "{plain.name}" is not an agent: it contains the agents {list_words(held)}'
        fix = f'Name one of them, such as "{held[0]}"; `stepflow validate` in {above_agents} checks all.'
        raise NoAgent("SF101", plain.name, message, fix)
    if not _NAME.fullmatch(plain.name):
        message = f'the folder name "{plain.name}" is not an agent name: {_NAME_FORM}'
        raise NoAgent("SF101", plain.name, message, _renaming(plain.name))
    if root is None:
        root = plain.parent.parent if plain.parent.name == AGENTS else plain.parent
    return _inside(Located(folder=plain, root=root.resolve()))


def _renaming(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
    if not plain:
        return "Rename the folder."
    return f'Rename the folder to "{plain}", and write that as "name" of agent.json and "agentId" of the registry.'


def _refuse_link(root: Path, folder: Path) -> None:
    """Refuse a folder that a symbolic link leads to: it has a second name, which no protected path covers."""
    shown = first_link(root, folder.relative_to(root)) if folder.is_relative_to(root) else ""
    if shown:
        message = f'"{shown}" is a symbolic link; an agent is read from its own folder only'
        raise NoAgent("SF109", shown, message, "Replace the link with the folder itself, and commit that.")


def _inside(located: Located) -> Located:
    """Refuse a symbolic link that leads out of the repository."""
    name = located.folder.name
    below = located.folder.is_relative_to(located.root)
    if not below or not located.folder.resolve().is_relative_to(located.root.resolve()):
        shown = located.folder.relative_to(located.root).as_posix() if below else name
        message = f'the agent folder "{name}" lies outside the repository'
        raise NoAgent("SF109", shown, message, "Put the agent's files into the repository itself.")
    _refuse_link(located.root, located.folder)
    return located


def _is_folder(path: Path) -> bool:
    """Whether a folder exists and is accessible."""
    try:
        return path.is_dir()
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links, before Python 3.13
        return False


MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_LISTED = 500


def unsafe_reason(path: str) -> str | None:
    """Why the form alone rules out a path from an agent's file; None when it is fine."""
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
    """Reads files below one folder, each at most once: a later read returns the text of the first."""

    def __init__(self, path: Path, *, root: Path) -> None:
        self.path = path
        self.name = path.name
        self.prefix = path.relative_to(root).as_posix()
        self._root = root
        self._read: dict[str, str | FileRefused] = {}
        self._bytes: dict[str, bytes] = {}

    def read(self, path: str) -> str:
        """The text of a file, without a byte-order mark. Raises `FileRefused`."""
        key = PurePosixPath(path).as_posix() if unsafe_reason(path) is None else path
        if key not in self._read:
            self._read[key] = self._read_now(key)
        text = self._read[key]
        if isinstance(text, FileRefused):
            raise text
        return text

    @property
    def texts(self) -> dict[str, str]:
        """Every text read so far, by its path."""
        return {path: text for path, text in self._read.items() if isinstance(text, str)}

    def has(self, path: str) -> bool:
        """Whether anything has that name, whatever it is."""
        return os.path.lexists(self.path / path)

    def base(self, path: str) -> str:
        """A base path relative to this folder; `.agent/<name>/…` means the folder itself."""
        parts = PurePosixPath(path).parts if unsafe_reason(path) is None else ()
        if parts[:2] == (".agent", self.name):
            return PurePosixPath(*parts[2:]).as_posix()
        return PurePosixPath(path).as_posix() if parts else path

    def json_files(self, base: str) -> tuple[str, ...]:
        """The names of the `*.json` files directly in a folder; empty when it cannot be listed."""
        try:
            return tuple(sorted(file.name for file in (self.path / base).glob("*.json") if file.is_file()))
        except OSError:
            return ()

    def files(self) -> tuple[str, ...]:
        """The paths of the files below this folder, for messages; at most a few hundred.

        No link is followed and nothing is read.
        """
        return tuple(islice(walk_files(self.path), MAX_LISTED))

    def digest(self, others: Mapping[str, str]) -> str:
        """SHA-256 over the names and contents of all files read, and of `others`, further texts that the agent uses."""
        total = hashlib.sha256()
        more = {name: text.encode() for name, text in others.items()}
        for name, content in sorted({**self._bytes, **more}.items()):
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()

    def _read_now(self, path: str) -> str | FileRefused:
        if reason := unsafe_reason(path):
            return FileRefused(Why.OUTSIDE, reason)
        try:
            content = read_below(self._root, PurePosixPath(self.prefix, path), limit=MAX_FILE_BYTES)
            text = text_of(content)
        except FileRefused as refused:
            return refused
        self._bytes[path] = content
        return text


#: A text that begins like YAML and unlike JSON.
_YAML = re.compile(r"\s*(---|#|[A-Za-z_][\w-]*:(\s|$))")


def file_code(refused: FileRefused) -> str:
    """The code for one of the agent's own files that cannot be read."""
    if refused.unsafe:
        return "SF109"
    return "SF104" if refused.why in (Why.LARGE, Why.NOT_TEXT) else "SF102"


def read_object(folder: AgentFolder, problems: FileProblems, *, what: str) -> JsonObject | None:
    """The object in the JSON file that `problems` is about. `what` names the file's role in messages."""
    try:
        text = folder.read(problems.file)
    except FileRefused as refused:
        near = beside(folder, problems.file) if refused.why is Why.MISSING else ""
        message = f'the {what} "{problems.file}" {refused.message}{near}'
        problems.add(file_code(refused), "", message, refused.fix)
        return None
    try:
        document = parse_json(text)
    except JsonFault as fault:
        report_fault(text, fault, problems, "SF104", f"the {what} {fault.message}")
        return None
    register_document(text, problems)
    if not isinstance(document, dict):
        problems.add("SF106", "", f"the {what} is not a JSON object", "Write one object in braces.")
        return None
    return document


def report_fault(text: str, fault: JsonFault, problems: FileProblems, code: str, message: str) -> None:
    """Report a text that is not JSON; the fix says so when it looks like YAML."""
    fix = "Write valid JSON: no comments, no comma after the last item, every string and key in double quotes."
    if _YAML.match(text):
        fix = "Write the file as JSON: it looks like YAML, which works only in scenarios and front matter."
    problems.add(code, "", message, fix, line=fault.line, column=fault.column)


def beside(folder: AgentFolder, file: str) -> str:
    """What exists with a name like that of a missing file, for a message.

    A file that was already read is not meant.
    """
    there = [name for name in folder.files() if name != file and name not in folder.texts]
    alike = [name for name in there if _one_part_apart(name, file)]
    near = alike or [name for name in there if _without_endings(name) == _without_endings(file)]
    return f"; there is {list_words(near[:3])}" if near else ""


def _one_part_apart(there: str, wanted: str) -> bool:
    """Whether two paths differ in one name only, which is similar and has the same suffix."""
    names, others = there.split("/"), wanted.split("/")
    apart = [(name, other) for name, other in zip(names, others, strict=False) if name != other]
    if len(names) != len(others) or len(apart) != 1:
        return False
    name, other = apart[0]
    same_ending = PurePosixPath(name).suffix == PurePosixPath(other).suffix
    return same_ending and closest_match(name, [other], LIKE_PATHS) is not None


def _without_endings(path: str) -> str:
    above, slash, name = path.rpartition("/")
    return above + slash + name.partition(".")[0]


def register_document(text: str, problems: FileProblems) -> None:
    """Keep the text, so that problems get positions; report each key that an object has twice (SF104)."""
    problems.diagnostics.documents[problems.file] = text
    for pointer, line in Positions(text).repeated if repeats_key(text) else ():
        key = last_key(pointer)
        message = f'the key "{key}" is written twice in one object'
        problems.add("SF104", pointer, message, "Keep one of them; the last one is read.", line=line)
