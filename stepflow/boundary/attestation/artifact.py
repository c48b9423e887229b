"""Unpacks the artifact in which a job keeps the journal and the statement of its run."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

#: Bytes that one file may have when it is unpacked.
LARGEST_FILE = 1_000_000_000
_CHUNK = 1024 * 1024


def artifact_name(commit: str) -> str:
    """Return the name of the artifact of the run that pushed this commit."""
    return f"stepflow-{commit}"


def unpack_artifact(packed: bytes, names: Iterable[str], folder: Path) -> bool:
    """Write these files of the artifact into the folder, and return False if it does not have them all. Anybody's
    workflow may have made it, so nothing else of it is unpacked, and a file only up to a size."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            return all(_unpack_file(archive, name, folder / name) for name in names)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, KeyError, NotImplementedError, RuntimeError, ValueError, OSError):
        return False


def _unpack_file(archive: zipfile.ZipFile, name: str, path: Path) -> bool:
    with archive.open(name) as packed, path.open("wb") as file:
        size = 0
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > LARGEST_FILE:
                return False
            file.write(chunk)
    return True
