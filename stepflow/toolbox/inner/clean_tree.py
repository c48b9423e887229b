"""Asks git a second time whether the tree is clean, by the rules of the run's start (security.md case 14).

Takes: what `start.py` read when the run began. Gives: what is changed or not tracked, as `git status` writes it.
May touch: git, with a repository of its own that borrows only the objects; a private folder that is gone afterwards.
An index, `info/exclude`, configuration, attributes or tracked `.gitignore` that say something else have no voice in it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from .digests import digest
from .footing import check_footing
from .git import git, listing, said
from .output import HeadTail
from .rules import ignore_rules
from .start import NESTED_IGNORES, Start, read_start, rules_by_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .family import Family

_LINES_LIMIT = 1000
_LISTING_BYTES = 32 * 1024 * 1024
_MOST_NESTED = 500
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames")


@dataclass(frozen=True)
class _Difference:
    """A line of `git status`: two letters and a path."""

    state: str
    path: str

    def __str__(self) -> str:
        return f"{self.state} {_quoted(self.path)}"


def begin(family: Family) -> dict[str, object]:
    """What later looks need: the rules as they are, and what they find now although git does not show it."""
    start = read_start(family)
    found, _ = _look(family, start)
    shown = _shown(family)
    excused = {one.path: _trace(start, one) for one in found if not _is_shown(one, shown)}
    return {"start": replace(start, excused=excused).as_message()}


def look_again(family: Family, message: object, *, partly: bool) -> dict[str, object]:
    """What is hidden from git in the checkout, and ignore files of folders that are new since the start.

    With `partly`, what git in the checkout does show is left out: a validator may have asked for less than everything.
    """
    start = Start.of(message)
    check_footing(start.top, start.footing)
    found, nested = _look(family, start)
    shown = _shown(family) if partly else frozenset[str]()
    hidden = [one for one in found if start.excused.get(one.path) != _trace(start, one) and not _is_shown(one, shown)]
    return {"hidden": [str(one) for one in hidden[:_LINES_LIMIT]], "ignore_files": nested[:_LINES_LIMIT]}


def _look(family: Family, start: Start) -> tuple[list[_Difference], list[str]]:
    commit = said(git(family, "rev-parse", "--verify", "HEAD^{commit}")).strip()
    with _own_repository(start, commit) as (folder, environment):

        def ask(*arguments: str) -> list[str]:
            kept = HeadTail(_LISTING_BYTES)
            said(git(family, "-C", start.top, *arguments, stdout=kept, extra_env=environment))
            return [record for record in kept.text().split("\0") if record]

        ask("read-tree", "HEAD")
        changed = ask(*_STATUS, "--untracked-files=no", "--ignore-submodules=none")
        rules = os.path.join(folder, "rules")
        _write(rules, start.ignores.encode("latin-1"))
        excluded = f"--exclude-from={rules}"
        nested = _new_ignores(start, ask("ls-files", "--cached", "--others", "-z", excluded, "--", NESTED_IGNORES))
        _write(rules, start.ignores.encode("latin-1") + ignore_rules(rules_by_folder(start.top, nested)))
        others = ask("ls-files", "--others", "--directory", "--no-empty-directory", "-z", excluded)
    found = [_Difference(record[:2], record[3:]) for record in changed]
    found += [_Difference("??", path) for path in others]
    return found, [path for path in nested if path not in start.nested]


def _new_ignores(start: Start, listed: list[str]) -> list[str]:
    """Ignore files below the root that were not tracked at the start, committed since or not: tools write such."""
    new = (path for path in listed if path.endswith("/.gitignore") and path not in start.tracked_ignores)
    return list(islice(new, _MOST_NESTED))


@contextmanager
def _own_repository(start: Start, commit: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A repository that knows one commit and no rules but the start's, and the variables that make git use it."""
    folder = tempfile.mkdtemp(prefix="look-")
    try:
        for name in ("refs", "info", "objects"):
            os.mkdir(os.path.join(folder, name))
        _write(os.path.join(folder, "HEAD"), f"{commit}\n".encode())
        _write(os.path.join(folder, "config"), _CONFIG[len(commit)])
        _write(os.path.join(folder, "info", "attributes"), start.attributes.encode("latin-1"))
        yield folder, _environment(start, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(start: Start, folder: str) -> dict[str, str]:
    settings = [
        *start.settings,
        ["core.attributesFile", os.devnull],
        ["core.excludesFile", os.devnull],
        ["core.hooksPath", os.devnull],
        ["core.fsmonitor", "false"],
        ["core.untrackedCache", "false"],
        ["safe.directory", start.top],
    ]
    named = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(settings)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(settings)}
    return {
        "HOME": folder,
        "XDG_CONFIG_HOME": folder,
        "GIT_DIR": folder,
        "GIT_WORK_TREE": start.top,
        "GIT_OBJECT_DIRECTORY": start.objects,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": str(len(settings)),
        **named,
        **values,
    }


def _shown(family: Family) -> frozenset[str]:
    """The paths that git in the checkout shows, asked as anybody asks."""
    return frozenset(record[3:] for record in listing(git(family, *_STATUS)))


def _is_shown(one: _Difference, shown: frozenset[str]) -> bool:
    parts = one.path.split("/")
    return one.path in shown or any("/".join(parts[:depth]) + "/" in shown for depth in range(1, len(parts)))


def _trace(start: Start, one: _Difference) -> str:
    return f"{one.state} {digest(os.path.join(start.top, one.path))}"


def _quoted(path: str) -> str:
    """A name with characters that would break a line of `git status`, in quotes as git writes it."""
    if not any(letter in '"\\' or not letter.isprintable() for letter in path):
        return path
    octal = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in path.encode())
    return f'"{"".join(octal)}"'


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


_CONFIG = {
    40: b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    64: b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
}
