"""Unpacks the artifact in which a job keeps the journal and the statement of its run."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

_CHUNK = 1024 * 1024


def artifact_name(commit: str) -> str:
    """Return the name of the artifact of the run that pushed this commit."""
    return f"stepflow-{commit}"


def unpack_artifact(packed: bytes, sizes: Mapping[str, int], folder: Path) -> bool:
    """Write these files of the artifact into the folder, each of at most so many bytes, and return False if it does not
    have them all. Anybody's workflow may have made it, so nothing else of it is unpacked."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            return all(_unpack_file(archive, name, folder / name, size) for name, size in sizes.items())
    except (zipfile.BadZipFile, KeyError, RuntimeError, ValueError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


def _unpack_file(archive: zipfile.ZipFile, name: str, path: Path, largest: int) -> bool:
    with archive.open(name) as packed, path.open("wb") as file:
        size = 0
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > largest:
                return False
            file.write(chunk)
    return True
