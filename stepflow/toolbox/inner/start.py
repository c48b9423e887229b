"""What git went by when the run began, so that it can be asked again by the same rules (security.md case 14).

Takes: the checkout. Gives: `Start` as a JSON object that the parent keeps and sends back, and the way back.
May touch: git in the checkout; reads its ignore and attribute files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, cast

from .footing import footing
from .git import git, listing, said
from .places import FILE_FLAGS
from .rules import attribute_rules, ignore_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .family import Family

#: What decides whether a file in the work tree is the one that was committed. Filters belong to it: without Git LFS's,
#: each of its files would look changed.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_FILTER = ("clean", "smudge", "process", "required")
_RULE_BYTES = 1024 * 1024
NESTED_IGNORES = ":(top,glob)*/**/.gitignore"


@dataclass(frozen=True, kw_only=True)
class Start:
    """`footing` tells the repository apart from any other; `ignores` and `attributes` are complete, as
    one file each; `tracked_ignores` are the ignore files that git tracked, `nested` those of folders that it did not;
    `excused` are the differences that git did not show even then, such as files that a sparse checkout leaves out, with
    their digests.
    """

    top: str
    footing: dict[str, str]
    objects: str
    settings: list[list[str]]
    ignores: str
    attributes: str
    tracked_ignores: list[str]
    nested: list[str] = field(default_factory=list)
    excused: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: object) -> Start:
        """Read what `as_message` wrote."""
        return cls(**cast("dict[str, object]", message))  # type: ignore[arg-type]

    def as_message(self) -> dict[str, object]:
        """A JSON object; bytes are written as Latin-1, which keeps them all."""
        return asdict(self)


def read_start(family: Family) -> Start:
    """Read everything but what is excused. Raises `Refusal` when there is no repository."""
    places = said(git(family, "rev-parse", "--show-toplevel", "--git-path", "objects")).splitlines()
    own = said(git(family, "rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes")).splitlines()
    top = places[0]
    read = _reader(top)
    tracked = _tracked(family, ".gitignore")
    return Start(
        top=top,
        footing=footing(top),
        objects=os.path.abspath(places[1]),
        settings=_settings(family),
        ignores=_text(
            read(_configured_excludes(family)) + read(os.path.abspath(own[0])) + ignore_rules(_by_folder(tracked, read))
        ),
        attributes=_text(
            attribute_rules(_by_folder(_tracked(family, ".gitattributes"), read)) + read(os.path.abspath(own[1]))
        ),
        tracked_ignores=tracked,
        nested=listing(git(family, "ls-files", "--others", "-z", "--full-name", "--", NESTED_IGNORES)),
    )


def read_rules(path: str) -> bytes:
    """A rule file as git would read it: regular and of a sane size, else nothing; ends with a line break."""
    with contextlib.suppress(OSError):
        info = os.lstat(path)
        if stat.S_ISREG(info.st_mode) and info.st_size <= _RULE_BYTES:
            with os.fdopen(os.open(path, FILE_FLAGS), "rb") as file:
                return file.read(_RULE_BYTES) + b"\n"
    return b""


def rules_by_folder(top: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The rule files at these paths by the folders they stand in."""
    return _by_folder(paths, _reader(top))


def _reader(top: str) -> Callable[[str], bytes]:
    return lambda path: read_rules(os.path.join(top, path)) if path else b""


def _by_folder(paths: Iterable[str], read: Callable[[str], bytes]) -> dict[str, bytes]:
    return {os.path.dirname(path): read(path) for path in paths}


def _tracked(family: Family, name: str) -> list[str]:
    """The files of this name that git tracks; the root's belongs to them even when it is not tracked yet."""
    tracked = listing(git(family, "ls-files", "-z", "--full-name", "--", f":(top,glob)**/{name}"))
    return [name, *(path for path in tracked if path != name)]


def _settings(family: Family) -> list[list[str]]:
    """Every setting that counts, in git's order: where a key stands twice, the later one holds."""
    found = []
    for record in said(git(family, "config", "--list", "-z")).split("\0"):
        key, assigned, value = record.partition("\n")
        section, _, name = key.rpartition(".")
        if key in _SETTINGS or (section.startswith("filter.") and name in _FILTER):
            found.append([key, value if assigned else "true"])
    return found


def _configured_excludes(family: Family) -> str:
    ended = git(family, "config", "--type=path", "--get", "core.excludesFile")
    return ended.stdout.rstrip("\n") if ended.exit_code == 0 else ""


def _text(data: bytes) -> str:
    return data.decode("latin-1")
