"""Git's configuration as settings, read by git itself, and how a file is written without secrets."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.errors import IsolationError
from stepflow.sandbox.credentials.files import bytes_of, text_of
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
#: What stands in a file for a secret. It may stand in the name of a ref, so no other character than letters.
_HIDDEN = "hidden"


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


def read_settings(text: str, location: str) -> tuple[Setting, ...]:
    """Every setting of a file; includes are not followed. Raises `IsolationError` for what git cannot read."""
    if not text.strip():
        return ()
    git = shutil.which("git", path=_ENVIRONMENT["PATH"])
    if git is None:
        raise unknown_credential(location, "there is no git on the fixed PATH")
    try:
        done = subprocess.run(  # noqa: S603 - an absolute path and fixed words
            [git, *_WORDS],
            input=bytes_of(text),
            env=_ENVIRONMENT,
            cwd="/",
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise unknown_credential(location, "it took too long") from exc
    if done.returncode != 0:
        # Git may quote the file, which may hold a secret that nobody knows yet: only the number of the line is shown.
        line = re.search(rb"line \d+", done.stderr)
        reason = f"{line[0].decode()} is no configuration" if line else "it is no configuration"
        raise unknown_credential(location, reason)
    return tuple(map(_setting, text_of(done.stdout).split("\0")[:-1]))


def unknown_credential(location: str, reason: str) -> IsolationError:
    """Why a file cannot be shown to tools."""
    return IsolationError(
        f"It cannot be known whether {location} holds a credential: {reason}.",
        hint="Correct the file or its rights, or check the repository out again, and install git.",
    )


def _setting(entry: str) -> Setting:
    key, has_value, value = entry.partition("\n")
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return Setting(
        section=section, subsection=subsection if dot else None, name=name, value=value if has_value else None
    )


def write_settings(settings: Iterable[Setting]) -> str:
    """The same settings in git's plainest form, each under its own heading."""
    lines: list[str] = []
    for setting in settings:
        subsection = "" if setting.subsection is None else f" {_quoted(setting.subsection)}"
        value = "" if setting.value is None else f" = {_quoted(setting.value)}"
        lines.append(f"[{setting.section}{subsection}]\n\t{setting.name}{value}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """How the secrets may stand in a file, the longest first. What is too short to be masked is no secret."""
    long = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
    forms = {*long, *(quote(bytes_of(secret), safe="") for secret in long)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def hide(text: str, forms: tuple[str, ...]) -> str:
    """The text with a word in the place of each form."""
    for form in forms:
        text = text.replace(form, _HIDDEN)
    return text


def holds(path: Path, forms: tuple[str, ...]) -> bool:
    """Whether one of the forms stands in a regular file, however large it is; in one that has vanished none does."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(bytes_of(form)) >= 0 for form in forms)
