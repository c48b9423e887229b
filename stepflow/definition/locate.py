"""Which folder an agent is in, or why none can be used (registry.md §1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stepflow.definition.diagnostics import did_you_mean, listed, visible
from stepflow.definition.rules import CODES
from stepflow.definition.safe_files import first_link
from stepflow.domain.problem import Problem

AGENTS = ".agent"
_NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, kw_only=True)
class Located:
    """An agent folder that exists. `registry` is set when the path named a registry file itself."""

    folder: Path
    root: Path
    registry: str | None = None


def find_agents(root: Path) -> tuple[str, ...]:
    """The names of the agents of a repository: the folders of `.agent` that hold an `agent.json`."""
    try:
        return tuple(sorted(file.parent.name for file in (root / AGENTS).glob("*/agent.json")))
    except OSError:
        return ()


def find_folders(root: Path) -> tuple[str, ...]:
    """As `find_agents`, with the folders whose agent.json is missing or has another name: they were meant as agents."""
    try:
        inside = [place for place in (root / AGENTS).iterdir() if not place.name.startswith(".") and place.is_dir()]
        folders = (place.name for place in inside if any(place.glob("*.json*")) or any(place.glob("*.y*ml")))
        return tuple(sorted(folders))
    except OSError:
        return ()


def locate(path: str | Path, *, root: Path | None, bare_registry: bool) -> Located | Problem:
    """The folder of an agent. With a `root`, it must lie inside the real root."""
    text = str(path).encode(errors="replace").decode()
    if "\0" in text:
        return _problem("SF101", f"{AGENTS}/?", "the agent name contains a NUL", "Write a plain name.")
    if isinstance(path, str) and not re.search(r"[/\\]", text) and text not in (".", ".."):
        base = (root or Path.cwd()).absolute()
        return _named(text, base) if not (bare_registry and text.endswith(".json")) else _in_file(base / text, base)
    if root is not None and ".." in Path(path).parts:
        message = f'the agent "{text}" would lie outside ".agent"'
        return _problem("SF101", text, message, "Write a plain name, or a path inside the repository.")
    folder = Path(path) if Path(path).is_absolute() else (root or Path.cwd()).absolute() / path
    if bare_registry and folder.suffix == ".json":
        return _in_file(folder, root)
    return _checked(folder, root)


#: What to do where no agent is.
_FIRST = (
    "Write one with `stepflow init` and commit it, or work in the repository that holds it (`working-directory` in the "
    "action, `--repo` at a terminal)."
)


def _named(name: str, root: Path) -> Located | Problem:
    known = find_agents(root)
    fix = f"Use one of the agents that exist: {listed(known)}." if known else _FIRST
    if not _NAME.fullmatch(name):
        message = f'the agent name "{name}" is not allowed: small letters, digits and hyphens, a letter first'
        there = _real_folder(root / AGENTS / name) is not None
        return _problem("SF101", f"{AGENTS}/{name}", message, _renaming(name) if there else fix)
    folder = root / AGENTS / name
    if linked := _link_below(root, folder):
        return linked
    if _real_folder(folder) is None:
        others = f"{did_you_mean(name, known)}; the agents are {listed(known)}" if known else ", nor any other"
        message = f'there is no agent "{name}"{others}'
        return _problem("SF101", f"{AGENTS}/{name}", message, fix)
    return _inside(Located(folder=folder, root=root))


def _in_file(file: Path, root: Path | None) -> Located | Problem:
    located = _checked(file.parent, root)
    if isinstance(located, Problem):
        return located
    return Located(folder=located.folder, root=located.root, registry=file.name)


def _checked(folder: Path, root: Path | None) -> Located | Problem:
    if linked := root and _link_below(root.absolute(), folder):
        return linked
    # The last part is kept as it is: where a symbolic link leads is asked for in `_inside`.
    above = _real_folder(folder if folder.name in ("", "..") else folder.parent)
    plain = above if above is None or folder.name in ("", "..") else above / folder.name
    if plain is None or _real_folder(plain) is None:
        message = f'there is no agent folder "{folder.name}"'
        fix = "Name a folder that holds an agent.json, or an agent by its name."
        return _problem("SF101", folder.name, message, fix)
    if not _NAME.fullmatch(plain.name):
        message = f'the folder name "{plain.name}" is no agent name: small letters, digits and hyphens, a letter first'
        return _problem("SF101", plain.name, message, _renaming(plain.name))
    if root is None:
        root = plain.parent.parent if plain.parent.name == AGENTS else plain.parent
    return _inside(Located(folder=plain, root=root.resolve()))


def _renaming(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
    if not plain:
        return "Rename the folder."
    return f'Rename the folder to "{plain}", and write that as "name" of agent.json and "agentId" of the registry.'


def _link_below(root: Path, folder: Path) -> Problem | None:
    """A folder that a symbolic link leads to has a second name, which no protected path covers."""
    if not folder.is_relative_to(root):
        return None
    shown = first_link(root, folder.relative_to(root))
    if not shown:
        return None
    message = f'"{shown}" is a symbolic link; an agent is read from its own folder only'
    return _problem("SF109", shown, message, "Put the folder itself in the place of the link, and commit that.")


def _inside(located: Located) -> Located | Problem:
    """A symbolic link must not lead an agent out of its repository (security.md case 10)."""
    name = located.folder.name
    below = located.folder.is_relative_to(located.root)
    if not below or not located.folder.resolve().is_relative_to(located.root.resolve()):
        shown = located.folder.relative_to(located.root).as_posix() if below else name
        message = f'the agent folder "{name}" lies outside the repository'
        return _problem("SF109", shown, message, "Put the agent's files into the repository itself.")
    return _link_below(located.root, located.folder) or located


def _real_folder(path: Path) -> Path | None:
    """The folder without symbolic links; None when there is none, or none that can be looked at."""
    try:
        real = path.resolve()
        return real if real.is_dir() else None
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links, before Python 3.13
        return None


def _problem(code: str, file: str, message: str, fix: str) -> Problem:
    severity = CODES[code].severity
    message, file = visible(message), visible(file)
    return Problem(severity=severity, code=code, file=file, path="", line=None, message=message, fix=visible(fix))
