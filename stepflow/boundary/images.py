"""Images that people attach to issues: where GitHub keeps them, and what is believed to be one."""

from __future__ import annotations

import re
import struct
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.domain.run import IMAGE_ID, LONGEST_SIDE, ImageProblem, ImageType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_GITHUB = "github.com"
#: Where github.com keeps attachments, and leads to from addresses of its own. Not `camo.githubusercontent.com`: what
#: that gives is other people's.
_STORAGE = (
    "cloud.githubusercontent.com",
    "objects.githubusercontent.com",
    "private-user-images.githubusercontent.com",
    "user-images.githubusercontent.com",
    "github-production-user-asset-6210df.s3.amazonaws.com",
)
#: Today's address, that of 2023, those on the two hosts of before and where a signature leads, and Enterprise Server's.
#: No file of a repository has one of these, which somebody could change.
_PATHS = (
    "/user-attachments/assets/ID",
    r"/[\w.-]+/[\w.-]+/assets/\d+/ID",
    r"/assets/\d+/\d+/ID\.\w+",
    r"/\d+/\d+-ID\.\w+",
    r"(?:/storage)?/user/\d+/files/ID",
)
_PATH = re.compile("|".join(_PATHS).replace("ID", IMAGE_ID.pattern), re.ASCII | re.IGNORECASE)


def image_hosts(server_url: str) -> frozenset[str]:
    """The hosts, with their ports, where a GitHub server keeps what people attach. A server with subdomain isolation
    has one of its own for that (Enterprise Server, "Enabling subdomain isolation")."""
    host = urlsplit(server_url).netloc.lower()
    return frozenset((host, *_STORAGE) if host == _GITHUB else (host, f"media.{host}"))


def is_at(address: str, hosts: frozenset[str]) -> bool:
    """Whether an address leads to one of these hosts."""
    try:
        return urlsplit(address).netloc.lower() in hosts
    except ValueError:
        return False


def attached_id(address: str, hosts: frozenset[str]) -> str:
    """The id of the attachment at an address; empty where that is none. What an id stands for never changes."""
    path = urlsplit(address).path if is_at(address, hosts) else ""
    return IMAGE_ID.findall(path)[-1].lower() if _PATH.fullmatch(path) else ""


def signed_addresses(pages: Iterable[str], hosts: frozenset[str]) -> Mapping[str, str]:
    """The addresses of the images on some of GitHub's pages, by their ids; the first counts."""
    found = [address for page in pages for address in _Sources(page).addresses]
    return {id_: address for address in reversed(found) if (id_ := attached_id(address, hosts))}


class _Sources(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and (address := dict(attrs).get("src")):
            self.addresses.append(address)


def inspect_image(data: bytes) -> tuple[ImageType, int, int] | ImageProblem:
    """What a file is by its first bytes, whatever its name or its server says: its type, width and height."""
    try:
        type_, width, height = next(_read_head(data))
    except (StopIteration, struct.error):
        return ImageProblem.NO_IMAGE
    if not (width and height):
        return ImageProblem.NO_IMAGE
    return ImageProblem.TOO_WIDE if max(width, height) > LONGEST_SIDE else (type_, width, height)


def _read_head(data: bytes) -> Iterator[tuple[ImageType, int, int]]:
    """Nothing for another file; raises `struct.error` for one that ends too early."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        yield ImageType.PNG, *struct.unpack_from(">II", data, 16)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        yield ImageType.GIF, *struct.unpack_from("<HH", data, 6)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from ((ImageType.WEBP, *sides) for sides in _webp_sides(data))
    elif data.startswith(b"\xff\xd8\xff"):
        yield from ((ImageType.JPEG, *sides) for sides in _jpeg_sides(data))


def _webp_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """RFC 9649: of the first chunk, which is lossy, lossless or extended."""
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            yield width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20:21] == b"\x2f":
            (bits,) = struct.unpack_from("<I", data, 21)
            yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, high, height, higher = struct.unpack_from("<4xHBHB", data, 20)
            yield width + (high << 16) + 1, height + (higher << 16) + 1
        case _:
            pass


#: The segments in which a frame begins (ITU-T T.81, table B.1): three of this range are others.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Of the first frame."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
        # Any number of bytes may fill the room before a segment.
        at += 1 if marker == 0xFF else 2 + length
