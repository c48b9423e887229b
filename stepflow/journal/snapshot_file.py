"""A snapshot's manifest as a file: what changed since the snapshot before it."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stepflow.domain.json import JsonObject
from stepflow.errors import InputError

VERSION = 1
Shape = TypeVar("Shape")
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Mode = Annotated[int, Field(ge=0, le=0o777)]
#: What became of a path since the base; bytes of names and targets are written as Latin-1.
EntryValue = (
    tuple[Literal["file"], Mode, Digest, int]
    | tuple[Literal["base", "folder"], Mode]
    | tuple[Literal["link", "left out"], str]
    | tuple[Literal["gone"]]
)
#: What the base holds at a path; where its content is not kept, its size and why; or that nobody knows it.
OriginValue = (
    tuple[Literal["file"], Mode, Digest, int]
    | tuple[Literal["link"], str]
    | tuple[Literal["bare"], Mode, int, Literal["binary", "large", "many", "missing", "secret"]]
    | tuple[Literal["unsure"]]
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class GitPart(_Strict):
    """HEAD's branch (empty when it is detached), its commit (empty when there is none), the index in pieces."""

    head: str
    commit: str
    index: tuple[Digest, ...] | None
    index_mtime: int


class SentManifest(_Strict):
    """What the toolbox sends. `git` is left out when it is as before, null without a repository. `origins` are of the
    paths that were as in the base until now, or are so again; one that is not named is not in the base. It is left out
    of a snapshot that builds on none, null when nobody can tell."""

    base: str
    modes: tuple[Mode, Mode, Mode]
    whole: bool
    set: dict[str, EntryValue]
    drop: tuple[str, ...]
    packs: tuple[Digest, ...]
    git: GitPart | None = None
    origins: dict[str, OriginValue] | None = None


class Manifest(SentManifest):
    """What is stored: `parent` is the snapshot that this one builds on, `blobs` what its own file of blobs holds."""

    v: Literal[1]
    parent: Digest | None
    blobs: tuple[tuple[Digest, int], ...]


def read_sent_manifest(data: bytes) -> SentManifest:
    """What came from the toolbox. Raises `InputError`."""
    return _read(_sent_manifest(), data, "The toolbox's manifest of a snapshot")


def read_manifest(data: bytes, *, name: str, location: str) -> Manifest:
    """What is in a file of the store. Raises `InputError` when it is not what its name says."""
    if name_of(data) != name:
        raise InputError(f"{location} is damaged: its content is not what its name says.", hint=HINT)
    return _read(_manifest(), data, location)


def write_manifest(sent: SentManifest, *, parent: str | None, blobs: tuple[tuple[str, int], ...]) -> bytes:
    """The content of the file."""
    fields: JsonObject = sent.model_dump(mode="json", exclude_unset=True)
    manifest = Manifest.model_validate({**fields, "v": VERSION, "parent": parent, "blobs": blobs})
    return manifest.model_dump_json(exclude_unset=True).encode()


def name_of(data: bytes) -> str:
    """What a snapshot with this content is called."""
    return hashlib.sha256(data).hexdigest()


@cache
def _sent_manifest() -> TypeAdapter[SentManifest]:
    return TypeAdapter(SentManifest)


@cache
def _manifest() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _read(adapter: TypeAdapter[Shape], data: bytes, location: str) -> Shape:
    try:
        return adapter.validate_json(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "manifest"
        raise InputError(f"{location} is no snapshot: {where}: {first['msg']}.", hint=HINT) from exc


HINT = "The run folder was changed or damaged; start a new run, or restore the folder from its artifact."
