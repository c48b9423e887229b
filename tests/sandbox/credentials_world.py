"""Credentials as real programs leave them in a checkout, and a look at everything that is left of them."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

TOKEN = "ghs_tokenOfTheCheckout0123456789"
HEADER = "basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
PAYLOAD = HEADER.split()[1]


def files_holding(secret: str | bytes, *places: Path) -> list[str]:
    """Every file below these places that holds the secret, or has it in its name."""
    needle = secret if isinstance(secret, bytes) else secret.encode()
    return [
        str(path)
        for root in places
        for path in root.rglob("*")
        if needle in os.fsencode(path.name) or (path.is_file() and needle in path.read_bytes())
    ]


def snapshot(*places: Path) -> dict[str, tuple[object, ...]]:
    """Kind, mode, owner and content of everything below these places."""
    paths = [path for root in places for path in (root, *root.rglob("*"))]
    return {str(path): _state(path) for path in paths}


def _state(path: Path) -> tuple[object, ...]:
    info = path.lstat()
    facts = (info.st_mode, info.st_uid, info.st_gid)
    if stat.S_ISLNK(info.st_mode):
        return (*facts, path.readlink())
    return (*facts, path.read_bytes()) if stat.S_ISREG(info.st_mode) else facts


def persist_as_v5(checkout: Path) -> None:
    """actions/checkout up to version 5: a header in the configuration."""
    append(checkout, f'[http "https://github.com/"]\n\textraheader = AUTHORIZATION: {HEADER}\n')


def persist_as_v6(checkout: Path, temp: Path) -> Path:
    """actions/checkout from version 6 on: a file beside the checkout, included under its two names."""
    file = temp / "git-credentials-0d8ba5b4-4a1c-4bd2-9d2f-8f4ad9b6f9b5.config"
    file.write_text(f'[http "https://github.com/"]\n\textraheader = AUTHORIZATION: {HEADER}\n')
    append(
        checkout,
        f'[includeIf "gitdir:{checkout}/.git"]\n\tpath = {file}\n'
        f'[includeIf "gitdir:/github/workspace/.git"]\n\tpath = /github/runner_temp/{file.name}\n',
    )
    return file


def append(checkout: Path, text: str) -> None:
    """Add to the checkout's configuration."""
    with (checkout / ".git/config").open("a", newline="") as config:
        config.write(text)
