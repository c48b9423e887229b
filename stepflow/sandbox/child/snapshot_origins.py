"""What the base holds where a snapshot differs from it: kept beside the snapshot, so that people can be shown a diff.

Takes: paths of the base's tree. Gives: mode, size and, of a short text, the content.
May touch: reads the repository, by git; changes nothing. Nothing of it is needed to put a snapshot back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .snapshot_git import digest_of
from .snapshot_memory import LINK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .snapshot_git import Git
    from .snapshot_memory import Entry, Tree

#: Bytes of a file, and of all that one snapshot brings: nobody reads a longer diff.
FILE_LIMIT = 256 * 1024
TOTAL_LIMIT = 4 * 1024 * 1024
MOST_FILES = 1000
#: git takes what holds a zero among its first bytes for no text.
_LOOKED_AT = 8000


def untold(tree: Tree, told: set[bytes], old: dict[bytes, Entry], new: dict[bytes, Entry]) -> list[bytes]:
    """The paths that were as in the base before, or are now, and of which the base's content was not told yet."""
    changed = (path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return sorted(
        path for path in changed if path in tree and path not in told and (_is_base(old, path) or _is_base(new, path))
    )


def tell_origins(
    git: Git, tree: Tree, paths: list[bytes], send: Callable[[str, bytes], bool]
) -> dict[str, tuple[str | int, ...]]:
    """Of each path ("file", mode, digest, size), ("link", target), or ("bare", mode, size, why) without its content."""
    found: dict[str, tuple[str | int, ...]] = {}
    short: list[bytes] = []
    room = TOTAL_LIMIT
    for path, size in zip(paths, _sizes(git, [tree[path][1] for path in paths]), strict=True):
        if size is None or size > FILE_LIMIT or size > room or len(short) >= MOST_FILES:
            why = "missing" if size is None else "large" if size > FILE_LIMIT else "many"
            found[path.decode("latin-1")] = ("bare", _mode(tree, path), size or 0, why)
        else:
            room -= size
            short.append(path)
    for path, data in zip(short, git.contents(tree[path][1] for path in short) if short else (), strict=True):
        found[path.decode("latin-1")] = _origin(tree, path, data, send)
    return found


def _origin(tree: Tree, path: bytes, data: bytes, send: Callable[[str, bytes], bool]) -> tuple[str | int, ...]:
    if tree[path][0] == LINK:
        return ("link", data.decode("latin-1"))
    if b"\0" in data[:_LOOKED_AT]:
        return ("bare", _mode(tree, path), len(data), "binary")
    digest = digest_of(data)
    if not send(digest, data):
        return ("bare", _mode(tree, path), len(data), "many")
    return ("file", _mode(tree, path), digest, len(data))


def _is_base(overlay: dict[bytes, Entry], path: bytes) -> bool:
    return path not in overlay or overlay[path][0] == "base"


def _mode(tree: Tree, path: bytes) -> int:
    return int(tree[path][0], 8) & 0o777


def _sizes(git: Git, objects: list[str]) -> Iterable[int | None]:
    """The size of each object; None for one that is not there."""
    asked = "".join(f"{name}\n" for name in objects).encode()
    said = git.ask("cat-file", "--batch-check=%(objectsize)", given=asked) if objects else b""
    return [int(line) if line.isdigit() else None for line in said.splitlines()]
