"""The addresses of the images that GitHub shows in issues and comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from urllib.parse import urlsplit

from stepflow.domain.run import IMAGE_ID

#: The host whose pages show images that people attach to issues.
_GITHUB = "github.com"
#: Where github.com keeps attachments, and where it redirects to. `camo.githubusercontent.com` is not among them: it
#: serves other people's images.
_STORAGE = (
    "cloud.githubusercontent.com",
    "objects.githubusercontent.com",
    "private-user-images.githubusercontent.com",
    "user-images.githubusercontent.com",
    "github-production-user-asset-6210df.s3.amazonaws.com",
)
#: Paths of attachments: today's, that of 2023, those of the older and the signed addresses, and Enterprise Server's.
#: No file of a repository, which somebody could change, has such a path.
_PATHS = (
    "/user-attachments/assets/ID",
    r"/[\w.-]+/[\w.-]+/assets/\d+/ID",
    r"/assets/\d+/\d+/ID\.\w+",
    r"/\d+/\d+-ID\.\w+",
    r"(?:/storage)?/user/\d+/files/ID",
)
#: The lines of one part of a diff, before and after.
_PATH = re.compile("|".join(_PATHS).replace("ID", IMAGE_ID.pattern), re.ASCII | re.IGNORECASE)


def image_hosts(server_url: str) -> frozenset[str]:
    """Return the hosts, with ports, where a GitHub server keeps attachments. A server with subdomain isolation has a
    separate host for them (Enterprise Server, "Enabling subdomain isolation")."""
    host = urlsplit(server_url).netloc.lower()
    return frozenset((host, *_STORAGE) if host == _GITHUB else (host, f"media.{host}"))


def is_at(address: str, hosts: frozenset[str]) -> bool:
    """Return whether an address leads to one of these hosts."""
    try:
        return urlsplit(address).netloc.lower() in hosts
    except ValueError:
        return False


def attached_id(address: str, hosts: frozenset[str]) -> str:
    """Return the id of the attachment at an address; empty if there is none. The content of an id never changes."""
    path = urlsplit(address).path if is_at(address, hosts) else ""
    return IMAGE_ID.findall(path)[-1].lower() if _PATH.fullmatch(path) else ""


def signed_addresses(pages: Iterable[str], hosts: frozenset[str]) -> Mapping[str, str]:
    """Return the addresses of the images on some of GitHub's pages, by id; the first address of each counts."""
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
