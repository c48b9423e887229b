"""What git went by when the run began, so that it can be asked again by the same rules (security.md case 14).

Takes: the checkout. Gives: `Start`, which the supervisor keeps.
May touch: git in the checkout; reads its ignore and attribute files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .git import git, listing, said
from .paths import FILE_FLAGS, digest
from .rules import attribute_rules, ignore_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .family import Family

#: What decides whether a file in the work tree is the one that was committed. Filters do not belong to it, for they are
#: programs: what they make of a file is excused for as long as it stays what it was at the start.
_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol")
)
_RULE_BYTES = 1024 * 1024
NESTED_IGNORES = ":(top,glob)*/**/.gitignore"
_SUBMODULE = "160000 "


@dataclass(frozen=True, kw_only=True)
class Start:
    """`settings` are git's, in its order; `ignores` and `attributes` are complete, as one file each; `tracked_ignores`
    are the ignore files that git tracked, `nested` those of folders that it did not; `submodule_files` are the digests
    of the files that git tracked inside submodules; `excused` are the differences that git did not show even then, such
    as files that a sparse checkout leaves out or a filter makes, with their digests.
    """

    settings: tuple[tuple[str, str], ...]
    ignores: bytes
    attributes: bytes
    tracked_ignores: frozenset[str]
    nested: frozenset[str]
    submodule_files: Mapping[str, str]
    excused: Mapping[str, str] = field(default_factory=dict)


def read_start(family: Family, top: str) -> Start:
    """Read everything but what is excused, with the git of the checkout: no tool has run yet. Raises `Refusal`."""
    own = said(git(family, "rev-parse", "--git-path", "info/exclude", "--git-path", "info/attributes")).splitlines()
    read = _reader(top)
    tracked = _tracked(family, ".gitignore")
    return Start(
        settings=_settings(family),
        ignores=(
            read(_configured_excludes(family)) + read(os.path.abspath(own[0])) + ignore_rules(_by_folder(tracked, read))
        ),
        attributes=(
            attribute_rules(_by_folder(_tracked(family, ".gitattributes"), read)) + read(os.path.abspath(own[1]))
        ),
        tracked_ignores=frozenset(tracked),
        nested=frozenset(listing(git(family, "ls-files", "--others", "-z", "--full-name", "--", NESTED_IGNORES))),
        submodule_files=_submodule_files(family, top),
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


def _settings(family: Family) -> tuple[tuple[str, str], ...]:
    """Every setting that counts, in git's order: where a key stands twice, the later one holds."""
    found = []
    for record in said(git(family, "config", "--list", "-z")).split("\0"):
        key, assigned, value = record.partition("\n")
        if key in _SETTINGS:
            found.append((key, value if assigned else "true"))
    return tuple(found)


def _configured_excludes(family: Family) -> str:
    ended = git(family, "config", "--type=path", "--get", "core.excludesFile")
    return ended.stdout.rstrip("\n") if ended.exit_code == 0 else ""


def _submodule_files(family: Family, top: str) -> dict[str, str]:
    """What git tracks inside submodules belongs to the tree by the commit of each, so it has to stay as it is."""
    stages = listing(git(family, "-C", top, "ls-files", "--stage", "-z"))
    if not any(stage.startswith(_SUBMODULE) for stage in stages):
        return {}
    own = {stage.partition("\t")[2] for stage in stages}
    every = listing(git(family, "-C", top, "ls-files", "--recurse-submodules", "-z"))
    return {path: digest(os.path.join(top, path)) for path in every if path not in own}
