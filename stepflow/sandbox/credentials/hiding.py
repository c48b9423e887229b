"""Files without the secrets that stand in them."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.sandbox.credentials.config import Setting, write_settings

if TYPE_CHECKING:
    from pathlib import Path

#: What stands in a file for a secret. It may stand in the name of a ref, so no other character than letters.
HIDDEN = "hidden"


def secret_forms(secrets: set[str]) -> tuple[bytes, ...]:
    """How the secrets may stand in a file, the longest first. What is too short to be masked is no secret."""
    long = (secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
    forms = {form for secret in long for data in [_bytes(secret)] for form in (data, quote(data, safe="").encode())}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def clean_config(
    data: bytes, settings: tuple[Setting, ...], kept: tuple[Setting, ...], secrets: set[str], forms: tuple[bytes, ...]
) -> bytes:
    """A configuration without what is not kept; its own bytes where nothing has to go."""
    clean = tuple(_without(setting, secrets) for setting in kept)
    if clean == settings and hide(data, forms) == data:
        return data
    return hide(write_settings(clean), forms)


def _without(setting: Setting, secrets: set[str]) -> Setting:
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
