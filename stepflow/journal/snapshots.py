"""The snapshots of a run folder: a manifest and a git pack each, read back only when they are what their names say.

No git is ever started in the run folder, which may have come from anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from stepflow.domain.checkout import SnapshotInfo
from stepflow.domain.secrets import UnsearchablePack, search_pack
from stepflow.errors import InputError, StepflowError

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import IO

#: A run's snapshots together: what an artifact or a cache of GitHub takes without becoming the slowest part of a job.
STORE_LIMIT = 4 * 1024 * 1024 * 1024
#: Snapshots of version 1 were no packs of git.
VERSION: Literal[2] = 2
_MANIFEST_LIMIT = 128 * 1024 * 1024
_LONGEST_CHAIN = 100_000
_PIECE = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{64}")
_PACK_HEADER = b"PACK\0\0\0\2"
#: The empty tree, which git knows without having it.
_EMPTY_TREES = frozenset(
    hashlib.new(kind, b"tree 0\0", usedforsecurity=False).hexdigest() for kind in ("sha1", "sha256")
)
_HOLDERS = {
    "blob": "A file of the working tree",
    "tree": "A name in the working tree",
    "commit": "A commit",
    "tag": "A commit",
}
HINT = "The run folder was changed or damaged; start a new run, or restore the folder from its artifact."
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ObjectName = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
NoName = Literal[""]
Why = Literal["large", "many", "missing", "secret"]
#: The entries of a mapping, looked at up to the first that does not fit: each that does not takes a kilobyte.
_LEFT_OUT = TypeAdapter(Annotated[list[tuple[str, str]], FailFast()], config=ConfigDict(defer_build=True))
_BARE = TypeAdapter(
    Annotated[list[tuple[ObjectName, tuple[int, Why]]], FailFast()], config=ConfigDict(defer_build=True)
)


def _demand_entries(
    entries: TypeAdapter[list[tuple[str, str]]] | TypeAdapter[list[tuple[str, tuple[int, Why]]]],
) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, dict):
            try:
                entries.validate_python(list(value.items()))
            except ValidationError as exc:
                raise ValueError(_first_words(exc)) from exc
        return value

    return BeforeValidator(check)


def _first_words(exc: ValidationError) -> str:
    """Where the first thing that is wrong stands, and what it is."""
    first = exc.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'manifest'}: {first['msg']}"


class _Tree(BaseModel):
    """The commit that a fresh clone has (`base`, empty without one), the tree of the files, HEAD's branch (empty when
    it is detached) and commit (empty when there is none), the tree of the index (empty when it is as HEAD). Why what
    was left out, with the bytes of paths as Latin-1; and of old contents that are not kept the size, and why."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    base: ObjectName | NoName
    tree: ObjectName
    head: str
    commit: ObjectName | NoName
    index: ObjectName | NoName
    left_out: Annotated[dict[str, str], _demand_entries(_LEFT_OUT)]
    bare: Annotated[dict[ObjectName, tuple[int, Why]], _demand_entries(_BARE)]

    @model_validator(mode="before")
    @classmethod
    def _demand_known_keys(cls, value: object) -> object:
        if isinstance(value, dict) and (unknown := next((key for key in value if key not in cls.model_fields), None)):
            raise ValueError(f"the key {str(unknown)[:100]!r} is unknown")
        return value


class SentSnapshot(_Tree):
    """What the toolbox says of a snapshot; so many `files` differ from the one before."""

    files: int


class Manifest(_Tree):
    """What is stored: `parent` is the snapshot that this one builds on, `pack` the digest of its own pack, if any."""

    v: Literal[2]
    parent: Digest | None
    pack: Digest | None

    @property
    def place(self) -> dict[str, str]:
        """What the toolbox must know of it to put it back, or to say what is new since."""
        return {name: getattr(self, name) for name in ("base", "tree", "head", "commit", "index")}

    @property
    def described_left_out(self) -> tuple[str, ...]:
        """Why which paths are not in it. Names are the tools' own: no line break and no control character gets
        further."""
        return tuple(f"{_printable(path)}: {why}" for path, why in sorted(self.left_out.items()))


class IncomingPack:
    """A pack on its way into the store, in a file without a name: what holds a secret never stands in the folder.

    What goes wrong on the disk is told at the end: it must not strike the toolbox's answer, which is to be read whole.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._problem: OSError | None = None
        self._hash = hashlib.sha256()
        self.size = 0

    def feed(self, data: bytes) -> None:
        """The next bytes of it."""
        self._hash.update(data)
        self.size += len(data)
        try:
            if not self._problem:
                self._file.write(data)
        except OSError as exc:
            self._problem = exc

    @property
    def digest(self) -> str | None:
        """The digest of what came, if anything came."""
        return self._hash.hexdigest() if self.size else None

    def objects(self, secrets: Collection[bytes], object_format: str) -> tuple[set[str], dict[str, str]]:
        """The names of all objects in it, and the kinds of those that hold a secret by their names. Raises
        `UnsearchablePack` for what is no whole pack, and OSError."""
        if self._problem:
            raise self._problem
        names, secret = set[str](), dict[str, str]()
        self._file.seek(0)
        for packed in search_pack(self._file, secrets, object_format=object_format) if self.size else ():
            names.add(packed.name)
            if packed.has_secret:
                secret[packed.name] = packed.kind
        return names, secret

    def pieces(self) -> Iterator[bytes]:
        """All of it."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Snapshots by their names with all that they build on, and their packs, the oldest first."""

    manifests: Mapping[str, Manifest]
    packs: tuple[Path, ...]
    object_format: str

    @cached_property
    def size(self) -> int:
        """Bytes of all packs as one."""
        overhead = len(_PACK_HEADER) + 4 + hashlib.new(self.object_format, usedforsecurity=False).digest_size
        content = sum(pack.stat().st_size - overhead for pack in self.packs)
        return content + overhead if self.packs else 0

    def pack(self) -> Iterator[bytes]:
        """All packs as one. They have no deltas, so that one may follow the other as it is."""
        if not self.packs:
            return
        digest = hashlib.new(self.object_format, usedforsecurity=False)
        start = len(_PACK_HEADER)
        number = sum(int.from_bytes(_read(pack, start, 4), "big") for pack in self.packs)
        header = _PACK_HEADER + number.to_bytes(4, "big")
        digest.update(header)
        yield header
        for pack in self.packs:
            left = pack.stat().st_size - start - 4 - digest.digest_size
            with pack.open("rb") as file:
                file.seek(start + 4)
                while left > 0 and (piece := file.read(min(left, _PIECE))):
                    left -= len(piece)
                    digest.update(piece)
                    yield piece
        yield digest.digest()


class SnapshotStore:
    """The store. `last` is the snapshot that the next one builds on, empty before there is one."""

    def __init__(self, folder: Path, *, limit: int = STORE_LIMIT, secrets: Collection[bytes] = ()) -> None:
        self._folder, self._secrets = folder, secrets
        self.last = ""
        self.manifest: Manifest | None = None
        #: What came in packs since this process began.
        self._names: set[str] = set()
        self._free = limit - _size_of(folder)

    @property
    def free_bytes(self) -> int:
        """How many bytes the store may still grow by."""
        return max(self._free, 0)

    @contextlib.contextmanager
    def incoming(self) -> Iterator[IncomingPack]:
        """Takes the pack of one snapshot; what is not stored by `store` is gone afterwards."""
        with tempfile.TemporaryFile() as file:
            yield IncomingPack(file)

    def store(
        self, coming: IncomingPack, answer: Mapping[str, object], *, withheld: Collection[str] = ()
    ) -> SnapshotInfo | tuple[str, ...]:
        """Make a snapshot of what came, complete or not at all; or give the objects with a secret in them that shall be
        withheld if only old contents: the snapshot is then to be asked for again. Raises `StepflowError`, `InputError`
        for nonsense."""
        sent = _read_answer(answer)
        last = self.manifest
        if last and not coming.size and _same(sent, last):
            return SnapshotInfo(name=self.last, left_out=last.described_left_out)
        try:
            names, secret = coming.objects(self._secrets, _object_format(sent.tree))
        except UnsearchablePack as exc:
            raise InputError(f"The toolbox sent a pack that cannot be read: {exc}.", hint=HINT) from exc
        except OSError as exc:
            raise _unwritable(self._folder, exc) from exc
        if secret and (withheld or set(secret.values()) != {"blob"}):
            raise _holds_secret(_HOLDERS[next(iter(secret.values()))])
        if secret:
            return tuple(secret)
        if sent.tree not in self._names | names | _EMPTY_TREES | {last.tree if last else ""}:
            raise InputError(f"The toolbox's snapshot has the tree {sent.tree[:12]}, which did not come.", hint=HINT)
        fields = sent.model_dump(mode="json", exclude={"files"})
        manifest = Manifest(**fields, v=VERSION, parent=self.last or None, pack=coming.digest)
        content = manifest.model_dump_json().encode()
        if any(json.dumps(secret.decode("latin-1"))[1:-1].encode() in content for secret in self._secrets):
            raise _holds_secret("A name in the working tree")
        name = hashlib.sha256(content).hexdigest()
        try:
            if coming.size:
                _write_whole(self._folder / f"{name}.pack", coming.pieces())
            _write_whole(self._folder / f"{name}.json", [content])
        except OSError as exc:
            raise _unwritable(self._folder, exc) from exc
        self.last, self.manifest = name, manifest
        self._names |= names
        size = len(content) + coming.size
        self._free -= size
        return SnapshotInfo(name=name, files=sent.files, bytes=size, left_out=manifest.described_left_out)

    def resolve(self, *names: str) -> Resolved:
        """The snapshots with all that they build on, read from the folder. Raises `InputError` for any damage."""
        manifests: dict[str, Manifest] = {}
        for name in names:
            manifests |= self._chain(name, manifests)
        formats = {_object_format(manifest.tree) for manifest in manifests.values()}
        if len(formats) != 1:
            raise InputError("The snapshots are of repositories with different formats.", hint=HINT)
        packs = tuple(self._pack_of(one, manifest.pack) for one, manifest in manifests.items() if manifest.pack)
        return Resolved(manifests=manifests, packs=packs, object_format=formats.pop())

    def build_on(self, name: str, manifest: Manifest) -> None:
        """The next snapshot builds on this one, which is how the tree stands."""
        self.last, self.manifest = name, manifest

    def _chain(self, name: str, known: Container[str]) -> dict[str, Manifest]:
        """From the first snapshot, or a known one, to this one. A name is a digest of what names the one before, so
        there can be no ring."""
        chain: list[tuple[str, Manifest]] = []
        wanted: str | None = name
        while wanted is not None and wanted not in known:
            if not _NAME.fullmatch(wanted) or len(chain) > _LONGEST_CHAIN:
                raise InputError(f"There is no snapshot {wanted!r}.", hint=HINT)
            manifest = self._read(wanted)
            chain.append((wanted, manifest))
            wanted = manifest.parent
        return dict(reversed(chain))

    def _read(self, name: str) -> Manifest:
        path = self._folder / f"{name}.json"
        try:
            if path.stat().st_size > _MANIFEST_LIMIT:
                raise InputError(f"The snapshot {path} is damaged: it is too large.", hint=HINT)
            data = path.read_bytes()
        except OSError as exc:
            raise InputError(f"The snapshot {path} cannot be read: {exc.strerror}.", hint=HINT) from exc
        return read_manifest(data, name=name, location=f"The snapshot {path}")

    def _pack_of(self, name: str, digest: str) -> Path:
        path = self._folder / f"{name}.pack"
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return path
        except OSError as exc:
            raise InputError(f"The snapshot's file {path} cannot be read: {exc.strerror}.", hint=HINT) from exc
        raise InputError(f"The snapshot's file {path} is damaged.", hint=HINT)


def read_manifest(data: bytes, *, name: str, location: str) -> Manifest:
    """What is in a file of the store. Raises `InputError` when it is not what its name says."""
    if hashlib.sha256(data).hexdigest() != name:
        raise InputError(f"{location} is damaged: its content is not what its name says.", hint=HINT)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise InputError(f"{location} is no snapshot: it is no JSON.", hint=HINT) from exc
    if isinstance(fields, dict) and (version := fields.get("v")) != VERSION:
        raise InputError(
            f"{location} has version {repr(version)[:100]}; this stepflow reads version {VERSION}.",
            hint="Start a new run, or go on with the version that began this one.",
        )
    try:
        return Manifest.model_validate(fields)
    except ValidationError as exc:
        raise _no_snapshot(location, exc) from exc


def _holds_secret(what: str) -> StepflowError:
    return StepflowError(
        f"{what} holds a secret of this run, so no snapshot of it is kept.",
        hint="Keep secrets out of the checkout, or name such files in .gitignore; else the run cannot be resumed.",
    )


def _read_answer(answer: Mapping[str, object]) -> SentSnapshot:
    try:
        return SentSnapshot.model_validate(answer)
    except ValidationError as exc:
        raise _no_snapshot("The toolbox's answer", exc) from exc


def _no_snapshot(location: str, exc: ValidationError) -> InputError:
    return InputError(f"{location} is no snapshot: {_first_words(exc)}.", hint=HINT)


def _object_format(name: str) -> str:
    return "sha256" if len(name) == 64 else "sha1"


def _same(sent: SentSnapshot, last: Manifest) -> bool:
    names = ("base", "tree", "head", "commit", "index", "left_out")
    return all(getattr(sent, name) == getattr(last, name) for name in names)


def _printable(path: str) -> str:
    text = path.encode("latin-1", "replace").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """There with all of its bytes or not at all, also when the machine dies."""
    draft = path.with_name(f"{path.name}.part")
    draft.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(fd)
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unwritable(folder: Path, exc: OSError) -> StepflowError:
    """What a person can do about it."""
    return StepflowError(
        f"A snapshot cannot be written to {folder}: {exc.strerror}.",
        hint="Free space on the disk of the run folder, or choose another one with the input run-folder.",
    )


def _size_of(folder: Path) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return 0
