"""Git's configuration as settings, read by git itself and written by us without its secrets."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.errors import IsolationError
from stepflow.sandbox.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
#: What stands in a file for a secret. It may stand in the name of a ref, so no other character than letters.
HIDDEN = "hidden"


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


def read_settings(data: bytes, location: str) -> tuple[Setting, ...]:
    """Every setting of a file; includes are not followed. Raises `IsolationError` for what git cannot read."""
    if not data.strip():
        return ()
    try:
        done = subprocess.run(  # noqa: S603 - an absolute path and fixed words
            [_git(location), *_WORDS],
            input=data,
            env=_ENVIRONMENT,
            cwd="/",
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise _unreadable(location, "it took too long") from exc
    if done.returncode != 0:
        # Git may quote the file, which may hold a secret that nobody knows yet: only the number of the line is shown.
        line = re.search(rb"line \d+", done.stderr)
        raise _unreadable(location, f"{line[0].decode()} is no configuration" if line else "it is no configuration")
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


def _git(location: str) -> str:
    git = shutil.which("git", path=os.pathsep.join(SYSTEM_PATH))
    if git is None:
        raise _unreadable(location, "there is no git on the fixed PATH")
    return git


def _unreadable(location: str, reason: str) -> IsolationError:
    return IsolationError(
        f"It cannot be known whether {location} holds a credential: {reason}.",
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


def secret_forms(secrets: set[str]) -> tuple[bytes, ...]:
    """How the secrets may stand in a file, the longest first. What is too short to be masked is no secret."""
    long = (secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
    forms = {form for secret in long for data in [_bytes(secret)] for form in (data, quote(data, safe="").encode())}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def clean_config(
    data: bytes,
    settings: tuple[Setting, ...],
    visible: tuple[Setting, ...],
    secrets: set[str],
    forms: tuple[bytes, ...],
) -> bytes:
    """A configuration without what is not visible; its own bytes where nothing has to go."""
    clean = tuple(_strip(setting, secrets) for setting in visible)
    if clean == settings and hide(data, forms) == data:
        return data
    return hide(write_settings(clean), forms)


def _strip(setting: Setting, secrets: set[str]) -> Setting:
    """Before it is written: quoting may tear a secret apart that git would put together again."""
    value, subsection = setting.value, setting.subsection
    for secret in sorted((s for s in secrets if len(s) >= SHORTEST_SECRET), key=len, reverse=True):
        value = None if value is None else value.replace(secret, HIDDEN)
        subsection = None if subsection is None else subsection.replace(secret, HIDDEN)
    return replace(setting, value=value, subsection=subsection)


def hide(data: bytes, forms: tuple[bytes, ...]) -> bytes:
    """The bytes with a word in the place of each form."""
    for form in forms:
        data = data.replace(form, HIDDEN.encode())
    return data


def holds(path: Path, forms: tuple[bytes, ...]) -> bool:
    """Whether one of the forms stands in the file, however large it is."""
    with path.open("rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(content.find(form) >= 0 for form in forms)
    return False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
