"""The released action.yml: the same bytes, but for the image, which is named by digest."""

from __future__ import annotations

import re

from release.refusal import Refused

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[a-z0-9.-]+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+")
# The last block of the file and its `image`, whatever it points to now. The line's end stays as it is.
_IMAGE = re.compile(rb"(?<=^  image: )(?:Dockerfile|docker://[^\s#]+)(?=\r?$)", re.M)


def pin_image(metadata: bytes, repository: str, digest: str) -> bytes:
    """Let `runs.image` be exactly this image. Raises `Refused` when the file or the name is not what it must be."""
    if not _REPOSITORY.fullmatch(repository):
        raise Refused(f"{repository!r} is no image repository, such as ghcr.io/org/stepflow-action in lower case.")
    if not _DIGEST.fullmatch(digest):
        raise Refused(f"{digest!r} is no digest. It is sha256: and 64 hexadecimal digits, an output of the build job.")
    if len(_IMAGE.findall(metadata)) != 1:
        raise Refused("action.yml must have exactly one line `  image: Dockerfile` (or `docker://…`). Look at its end.")
    return _IMAGE.sub(f"docker://{repository}@{digest}".encode(), metadata)
