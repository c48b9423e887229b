"""Git's configuration as settings, read by git itself and written by us."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError
from stepflow.sandbox.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECONDS = 30.0
#: No other configuration and no repository, wherever this machine may have one.
_ENVIRONMENT = {
    "PATH": os.pathsep.join(SYSTEM_PATH),
    "HOME": os.devnull,
    "LC_ALL": "C",
    "GIT_DIR": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
_WORDS = ("config", "--file", "-", "--no-includes", "--list", "-z")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting under git's canonical names: section and name in lower case; None where a part is missing."""

    section: str
    subsection: str | None
    name: str
    value: str | None

    @property
    def key(self) -> str:
        """The key without its subsection."""
        return f"{self.section}.{self.name}"


def read_settings(data: bytes, place: str) -> tuple[Setting, ...]:
    """Every setting of a file; includes are not followed. Raises `IsolationError` for what git cannot read."""
    if not data.strip():
        return ()
    try:
        done = subprocess.run(  # noqa: S603 - an absolute path and fixed words
            [_git(place), *_WORDS],
            input=data,
            env=_ENVIRONMENT,
            cwd="/",
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise _unreadable(place, "it took too long") from exc
    if done.returncode != 0:
        # Git may quote the file, which may hold a secret that nobody knows yet: only the number of the line is told.
        line = re.search(rb"line \d+", done.stderr)
        raise _unreadable(place, f"{line[0].decode()} is no configuration" if line else "it is no configuration")
    return tuple(_setting(entry.decode("utf-8", "surrogateescape")) for entry in done.stdout.split(b"\0")[:-1])


def write_settings(settings: Iterable[Setting]) -> bytes:
    """The same settings in git's plainest form."""
    lines: list[str] = []
    heading = ""
    for setting in settings:
        previous, heading = heading, _heading(setting)
        lines += [heading] if heading != previous else []
        lines.append(f"\t{setting.name}" if setting.value is None else f'\t{setting.name} = "{_escape(setting.value)}"')
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _git(place: str) -> str:
    found = shutil.which("git", path=os.pathsep.join(SYSTEM_PATH))
    if found is None:
        raise _unreadable(place, "there is no git on the fixed PATH")
    return found


def _unreadable(place: str, reason: str) -> IsolationError:
    return IsolationError(
        f"It cannot be known whether {place} holds a credential: {reason}.",
        hint="Correct or remove this file, or check the repository out anew, and install git.",
    )


def _setting(entry: str) -> Setting:
    key, has_value, value = entry.partition("\n")
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return Setting(
        section=section, subsection=subsection if dot else None, name=name, value=value if has_value else None
    )


def _heading(setting: Setting) -> str:
    if setting.subsection is None:
        return f"[{setting.section}]"
    escaped = setting.subsection.replace("\\", "\\\\").replace('"', '\\"')
    return f'[{setting.section} "{escaped}"]'


def _escape(value: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in value)
