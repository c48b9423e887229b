"""What a folder is at one moment, to the last byte, and what has become different since."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from tests.e2e.hosted_runner import run_as_root

#: As root, since whoever tests need not be allowed to read what belongs to the runner.
_PROGRAM = """
import hashlib, json, os, stat, sys
entries, top = {}, sys.argv[1]
for folder, folders, files in os.walk(top):
    for name in [".", *folders, *files] if folder == top else [*folders, *files]:
        path = os.path.normpath(os.path.join(folder, name))
        info = os.lstat(path)
        held = ""
        if stat.S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                held = hashlib.sha256(file.read()).hexdigest()
        elif stat.S_ISLNK(info.st_mode):
            held = os.readlink(path)
        entries[os.path.relpath(path, top)] = [info.st_uid, info.st_gid, oct(info.st_mode), held]
print(json.dumps(entries))
"""

State = Mapping[str, list[object]]


def look_at(folder: Path, *, image: str) -> State:
    """Owner, group, mode and content of everything."""
    return json.loads(run_as_root(folder, "python3", "-I", "-c", _PROGRAM, image=image))


def differences(before: State, after: State, *, expected: Iterable[str]) -> dict[str, tuple[object, object]]:
    """What is different, but for paths that match one of the patterns; `None` is nothing there.

    A pattern that ends in `!` lets only the content be different.
    """
    patterns = tuple(expected)
    return {
        path: (before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if _without_content(path, before, patterns) != _without_content(path, after, patterns)
    }


def _without_content(path: str, state: State, patterns: tuple[str, ...]) -> object:
    known = state.get(path)
    for pattern in patterns:
        if fnmatchcase(path, pattern.removesuffix("!")):
            return known[:3] if known and pattern.endswith("!") else None
    return known
