"""The folders that tools are given besides the checkout: a private one, and the interpreter's programs."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.words import Isolation
from stepflow.sandbox.identity import closed_folder, closed_interpreter

if TYPE_CHECKING:
    from stepflow.sandbox.identity import Identity
    from stepflow.sandbox.options import ToolboxOptions


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The folder with the interpreter's programs (mypy, pytest), None when tools must not be sent there."""

    folder: Path | None
    note: str = ""

    def state(self, identity: Identity | None) -> str:
        """What the report says about PATH."""
        closed = closed_interpreter(identity.uid) if identity else None
        notes = [self.note] if self.note else []
        notes += [f"the interpreter's programs are behind {closed}, which only its owner may enter"] if closed else []
        return "; ".join(["fixed", *notes])


def private_place(options: ToolboxOptions) -> Path:
    """Where a private folder will be; nothing is there yet."""
    root = options.private_root or Path(tempfile.gettempdir())
    return root.resolve() / f"stepflow-tools-{secrets.token_hex(8)}"


def make_private_folder(private: Path, identity: Identity | None) -> None:
    """A folder of the tools' user with `home` and `tmp` in it."""
    for folder in (private, private / "home", private / "tmp"):
        folder.mkdir(mode=0o700)
        if identity:
            shutil.chown(folder, identity.uid, identity.gid)


def interpreter_programs(checkout: Path, options: ToolboxOptions, identity: Identity | None) -> Programs:
    """A virtual environment inside the checkout can be changed by the tools, so it is no place for programs; nor is
    one that they cannot enter: every program that does not exist would look forbidden."""
    folder = Path(sys.executable).parent
    if identity and closed_folder(folder, identity.uid):
        return Programs(folder=None)
    if not folder.resolve().is_relative_to(checkout):
        return Programs(folder=folder)
    if options.isolation is Isolation.REQUIRED:
        return Programs(folder=None, note=f"without {folder}, which lies inside the checkout")
    return Programs(folder=folder, note=f"its last folder {folder} lies inside the checkout, where tools can change it")


def own_code_below(checkout: Path) -> tuple[Path, ...]:
    """Folders of the checkout from which this process loads its own code.

    Whoever changes a file there decides what runs outside the sandbox, for much is loaded when it is needed.
    """
    places = {Path(entry).resolve() for entry in (*sys.path, sys.prefix, str(Path(__file__).parents[1]))}
    return tuple(sorted(place for place in places if place.is_relative_to(checkout)))
