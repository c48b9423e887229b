"""`python3 -m release.image_size IMAGE`: what an image and each of its layers weigh, as a Markdown table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zlib
from typing import IO, NamedTuple

_BLOCK = 1 << 20


class Layer(NamedTuple):
    """A layer and the line of the Dockerfile that made it; `unpacked` in bytes."""

    instruction: str
    """`RUN`, `COPY`, or another one, which weighs nothing."""
    made_by: str
    unpacked: int


def main() -> int:
    """Print the table of the image that the first argument names."""
    print(table(sys.argv[1]), end="")
    return 0


def table(image: str) -> str:
    """A row for each layer that weighs something, then the sum, unpacked and compressed, in megabytes (10⁶ bytes)."""
    all_layers = layers(image)
    rows = [
        f"| {layer.unpacked / 1e6:.1f} | `{layer.made_by}` |" for layer in all_layers if layer.unpacked >= _BLOCK / 2
    ]
    whole = sum(layer.unpacked for layer in all_layers)
    packed = compressed_size(image)
    return "\n".join(
        [
            "| MB | made by |",
            "|---:|---|",
            *rows,
            f"| {whole / 1e6:.1f} | all of it, unpacked |",
            f"| {packed / 1e6:.1f} | all of it, compressed (gzip): what a runner downloads |",
            "",
        ]
    )


def layers(image: str) -> list[Layer]:
    """The layers, lowest first."""
    command = ["docker", "history", "--no-trunc", "--human=false", "--format", "{{json .}}", image]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - no shell
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [_read_layer(line["CreatedBy"], int(line["Size"])) for line in reversed(lines)]


def compressed_size(image: str) -> int:
    """What the layers weigh in a registry: each compressed by gzip, as a push compresses them."""
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:  # noqa: S603, S607 - no shell
        assert saving.stdout is not None  # noqa: S101 - for the type checker
        with tarfile.open(fileobj=saving.stdout, mode="r|") as archive:
            files = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
            size = sum(_compressed(content) for name, content in files if content and _is_layer(name))
    if saving.returncode:
        raise subprocess.CalledProcessError(saving.returncode, "docker save")
    return size


def _is_layer(name: str) -> bool:
    return name.endswith("/layer.tar") or name.startswith("blobs/")


def _compressed(content: IO[bytes]) -> int:
    packer = zlib.compressobj(wbits=31)
    size = 0
    while block := content.read(_BLOCK):
        size += len(packer.compress(block))
    return size + len(packer.flush())


def _read_layer(made_by: str, unpacked: int) -> Layer:
    """Without what the two builders put around an instruction: a shell, a mark of theirs, digests of the copied."""
    text = " ".join(made_by.removesuffix("# buildkit").split()).removeprefix("RUN ")
    text = text.replace("/bin/sh -c #(nop) ", "").replace("/bin/sh -c ", "RUN ", 1)
    text = re.sub(r"(?:dir|file|multi):[0-9a-f]{64} in", "…", text)
    short = f"{text[:56]}…" if len(text) > 57 else text or "the base image"
    return Layer(instruction=text.partition(" ")[0], made_by=short, unpacked=unpacked)


if __name__ == "__main__":
    sys.exit(main())
