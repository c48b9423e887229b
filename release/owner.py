"""Put the account that publishes stepflow in the place of `org`, in every file: `python -m release.owner ACCOUNT`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from release.refusal import Refused

#: The repository, its image, and the teams in CODEOWNERS. None of them is called so outside this project.
_PLACEHOLDER = re.compile(r"\borg/stepflow-")
#: The README's warning, which is no longer true then.
_WARNING = re.compile(r"^\*\*Not published:\*\* `org` is a placeholder.*\n", re.MULTILINE)
#: A login of GitHub, in lower case, since registries of images know no other.
_ACCOUNT = re.compile(r"(?!-)[a-z0-9-]{1,39}(?<!-)", re.ASCII)


def name_owner(root: Path, account: str) -> tuple[str, ...]:
    """Name the account in every file that git tracks, and return the changed ones. Raises `Refused`."""
    if not _ACCOUNT.fullmatch(account):
        raise Refused(f"{account!r} is no account of GitHub in lower case, such as acme.")
    changed = []
    for name in _tracked_files(root):
        file = root / name
        if file.is_symlink() or not file.is_file():
            continue
        data = file.read_bytes()
        if b"org" not in data:
            continue
        text = data.decode("utf-8", "surrogateescape")
        written = _PLACEHOLDER.sub(f"{account}/stepflow-", _WARNING.sub("", text))
        if written != text:
            file.write_bytes(written.encode("utf-8", "surrogateescape"))
            changed.append(name)
    return tuple(changed)


def _tracked_files(root: Path) -> list[str]:
    words = ["git", "ls-files", "-z"]
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)  # noqa: S603 - fixed words
    return [name for name in listed.stdout.split("\0") if name]


def main(words: list[str] | None = None) -> int:
    """Name the account of the command line here."""
    parser = argparse.ArgumentParser(description="Put the account that publishes stepflow in the place of `org`.")
    parser.add_argument("account", help="the login of the user or the organization, in lower case")
    try:
        changed = name_owner(Path.cwd(), parser.parse_args(words).account)
    except Refused as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"{len(changed)} files changed. Look at them with `git diff`, run `make docs`, and commit them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
