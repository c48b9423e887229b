"""Where tools find programs: the system's and this interpreter's, or at a terminal the person's own."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.sandbox.child.paths import vanishing_suppressed
from stepflow.sandbox.environment import SYSTEM_PATH
from stepflow.sandbox.identity import closed_folder, closed_interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.sandbox.identity import Identity
    from stepflow.sandbox.options import ToolboxOptions

_BIN = frozenset({"bin", "sbin", "Scripts"})
#: What programs in a `bin` read beside it. Not the whole prefix: below `~/.local` and `~/.cargo` secrets may stand too.
_BESIDE = ("lib", "lib64", "libexec", "include")
#: Version managers (pyenv, rbenv, asdf) keep everything else beside the folder of this name.
_SHIMS = "shims"
_RUSTUP, _RUSTUP_HOME = "rustup", "RUSTUP_HOME"
_ENVIRONMENT = "pyvenv.cfg"
#: Where a virtual environment writes down its own place, and those of packages that are installed editable.
_PLACES = ("bin/*", "lib/*/site-packages/*.pth", "lib/*/site-packages/__editable__*.py")
_LARGEST = 1024 * 1024


_SYSTEM = tuple(Path(folder) for folder in SYSTEM_PATH)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The folders of the tools' PATH, and what the report says about them."""

    folders: tuple[Path, ...]
    state: str


def tool_programs(options: ToolboxOptions, identity: Identity | None) -> Programs:
    """The folders that the caller names, then the system's; or the system's, then this interpreter's (mypy, pytest), so
    that nothing there stands in for a system program. Where tools cannot enter, every program would look forbidden."""
    if options.programs is None:
        return _fixed(identity)
    closed = [folder for folder in options.programs if identity and closed_folder(folder, identity.uid)]
    folders = (folder for folder in (*options.programs, *_SYSTEM) if folder not in closed)
    without = f", without {', '.join(map(str, closed))}, which only their owner may enter" if closed else ""
    return Programs(folders=tuple(dict.fromkeys(folders)), state=f"your own PATH{without}")


def _fixed(identity: Identity | None) -> Programs:
    folder = Path(sys.executable).parent
    if closed := closed_interpreter(identity.uid) if identity else None:
        state = f"fixed; the interpreter's programs are behind {closed}, which only its owner may enter"
        enters = not (identity and closed_folder(folder, identity.uid))
        return Programs(folders=(*_SYSTEM, *((folder,) if enters else ())), state=state)
    return Programs(folders=(*_SYSTEM, folder), state="fixed")


def user_programs(path: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of the person's PATH, but for stepflow's own environment: a check that finds its program there would
    be green by accident. An active environment in which stepflow is installed is the person's own."""
    own = Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    active = environment.get("VIRTUAL_ENV")
    if active and own and own.resolve() == Path(active).resolve():
        own = None
    folders = (Path(entry) for entry in path.split(os.pathsep))
    existing = (folder for folder in folders if folder.is_absolute() and folder.is_dir())
    return tuple(dict.fromkeys(folder for folder in existing if own is None or not folder.is_relative_to(own)))


def variables_for(programs: tuple[Path, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """What programs of these folders look for below HOME, which is another one for tools: Rust's tool chains."""
    manager = next((folder for folder in programs if (folder / _RUSTUP).exists()), None)
    return {_RUSTUP_HOME: environment.get(_RUSTUP_HOME) or str(_rustup_home(manager))} if manager else {}


def _rustup_home(folder: Path) -> Path:
    return folder.parents[1] / ".rustup"


def read_by(folder: Path) -> Iterator[Path]:
    """What programs of the folder must read: the folder, its libraries, and those of the interpreter behind it."""
    yield folder
    if (folder.parent / _ENVIRONMENT).is_file():
        yield folder.parent
        yield from _prefix((folder / "python").resolve().parent)
    elif folder.name == _SHIMS:
        yield folder.parent
    else:
        yield from _prefix(folder.resolve())
        if (folder / _RUSTUP).exists():
            yield _rustup_home(folder)


def _prefix(folder: Path) -> Iterator[Path]:
    yield folder
    if folder.name in _BIN:
        yield from (folder.parent / name for name in _BESIDE)


def programs_of_copy(programs: tuple[Path, ...], source: Path, copy: Path) -> tuple[Path, ...]:
    """The same for a copy of the checkout `source`: virtual environments of the checkout stand beside the copy, where
    tools cannot change them. Other folders of the checkout are left out."""
    moved = {folder: _place(folder.parent, source, copy) / folder.name for folder in _of_checkout(programs, source)}
    outside = (folder for folder in programs if folder in moved or not folder.is_relative_to(source))
    return tuple(moved.get(folder, folder) for folder in outside)


def copy_environments(programs: tuple[Path, ...], source: Path, copy: Path) -> None:
    """Copy the virtual environments of the checkout to where `programs_of_copy` names them; they then lead to the
    copy."""
    for folder in _of_checkout(programs, source):
        target = _place(folder.parent, source, copy)
        shutil.copytree(folder.parent, target, symlinks=True, copy_function=_copy_file)
        _rewrite(target, {folder.parent: target, source: copy})


def _copy_file(source: str, target: str) -> None:
    with vanishing_suppressed(Path(source)):
        shutil.copy2(source, target)


def _of_checkout(programs: tuple[Path, ...], source: Path) -> tuple[Path, ...]:
    below = (folder for folder in programs if folder.is_relative_to(source))
    return tuple(folder for folder in below if (folder.parent / _ENVIRONMENT).is_file())


def _place(environment: Path, source: Path, copy: Path) -> Path:
    return copy.with_name("environments") / environment.relative_to(source)


def _rewrite(environment: Path, places: Mapping[Path, Path]) -> None:
    """Put the new places where the old ones stand, in the order given."""
    files = (path for pattern in _PLACES for path in environment.glob(pattern))
    for file in files:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
            continue
        before = text = file.read_bytes()
        for old, new in places.items():
            text = text.replace(os.fsencode(old), os.fsencode(new))
        if text != before:
            file.write_bytes(text)
