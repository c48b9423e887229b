"""A snapshot with everything that it builds on, as one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.journal.snapshot_file import SentManifest

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from stepflow.journal.snapshot_file import EntryValue, GitPart, Manifest, OriginValue


@dataclass(kw_only=True)
class BlobLocation:
    """Where a blob stands: in the file of blobs that came with the snapshot `file`."""

    file: str
    offset: int
    size: int


@dataclass(kw_only=True)
class Resolved:
    """A snapshot with all that it builds on; `places` tells where its chain's blobs stand, `origins` what is known of
    the base's own content."""

    base: str
    modes: tuple[int, int, int]
    entries: dict[str, EntryValue] = field(default_factory=dict)
    git: GitPart | None = None
    packs: tuple[str, ...] = ()
    places: dict[str, BlobLocation] = field(default_factory=dict)
    origins: dict[str, OriginValue] = field(default_factory=dict)

    def add(self, name: str, manifest: Manifest) -> None:
        """Put a manifest on top; a whole one builds on nothing but the blobs that are there."""
        if manifest.whole:
            self.origins = self.origins if manifest.base == self.base else {}
            self.base, self.modes = manifest.base, manifest.modes
            self.entries, self.git, self.packs = {}, None, ()
        for path in manifest.drop:
            self.entries.pop(path, None)
        self.entries.update(manifest.set)
        self.origins.update({path: one for path, one in (manifest.origins or {}).items() if one[0] != "unsure"})
        if "git" in manifest.model_fields_set:
            self.git = manifest.git
        self.packs += manifest.packs
        offset = 0
        for digest, size in manifest.blobs:
            self.places[digest] = BlobLocation(file=name, offset=offset, size=size)
            offset += size

    def digests(self) -> tuple[str, ...]:
        """Every blob that the snapshot needs, each once, in a fixed order."""
        contents = (str(entry[2]) for entry in self.entries.values() if entry[0] == "file")
        pieces = self.git.index or () if self.git else ()
        return tuple(dict.fromkeys((*self.packs, *pieces, *contents)))

    def as_message(self) -> bytes:
        """For the toolbox."""
        fields = {
            "base": self.base,
            "modes": self.modes,
            "set": self.entries,
            "git": self.git.model_dump(mode="json") if self.git else None,
            "packs": self.packs,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def since(now: Resolved, sent: SentManifest) -> SentManifest:
    """A whole snapshot as what it changes in the one before: a toolbox that was started anew remembers nothing."""
    if (sent.base, sent.modes) != (now.base, now.modes):
        return sent
    dropped = now.entries.keys() - sent.set.keys()
    fields = {
        "base": sent.base,
        "modes": sent.modes,
        "whole": False,
        "set": {path: entry for path, entry in sent.set.items() if now.entries.get(path) != entry},
        "drop": tuple(dropped),
        "packs": (),
    }
    if sent.origins is not None:
        # The toolbox knows nothing of what was there and is no more.
        origins = {**dict.fromkeys(dropped, ("unsure",)), **sent.origins}
        fields["origins"] = {path: one for path, one in origins.items() if path not in now.origins}
    if sent.git != now.git:
        fields |= {"git": sent.git, "packs": sent.packs}
    return SentManifest.model_validate(fields)


def without_missing(sent: SentManifest, known: Sequence[Container[str]]) -> SentManifest:
    """The same without the base's contents that are nowhere among the `known`: what holds a secret is not kept."""
    bare = {
        path: ("bare", one[1], one[3], "secret")
        for path, one in (sent.origins or {}).items()
        if one[0] == "file" and not any(one[2] in digests for digests in known)
    }
    return sent.model_copy(update={"origins": {**(sent.origins or {}), **bare}}) if bare else sent


def left_out(whole: Resolved) -> tuple[str, ...]:
    """Why which paths are not in it. Names are the tools' own: no line break and no control character gets further."""
    return tuple(
        f"{_printable(path)}: {entry[1]}" for path, entry in sorted(whole.entries.items()) if entry[0] == "left out"
    )


def _printable(path: str) -> str:
    text = path.encode("latin-1", "replace").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
