"""The checks that a repository has already, and what they need to be installed, as far as its files say."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST_BYTES = 1024 * 1024
#: Lock file → the program whose scripts they are.
_NODE = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_SCRIPTS = ("test", "lint", "typecheck", "type-check")
#: What `npm init` writes where there are no tests.
_NO_TESTS = "no test specified"
_TARGETS = re.compile(r"^(test|lint|check)[ \t]*::?(?!=)", re.M)


@dataclass(frozen=True, kw_only=True)
class DetectedCheck:
    """A command and where it was found. `installed`: the tools would find its program on this machine."""

    command: str
    source: str
    installed: bool


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a job installs first: Debian packages, and commands; as the inputs of these names want it."""

    apt_packages: str = ""
    setup: tuple[str, ...] = ()


def find_checks(root: Path, programs: Sequence[Path]) -> tuple[DetectedCheck, ...]:
    """Every check, without two for the same purpose: what the Makefile has is what people run. `programs` are the
    folders in which the tools look for theirs."""
    path = ":".join(map(str, programs))
    detected: dict[str, DetectedCheck] = {}
    for name, purposes in _SOURCES.items():
        text = _text(root / name)
        for purpose, command in () if text is None else purposes(text, root):
            if purpose not in detected:
                installed = shutil.which(command.split()[0], path=path) is not None
                detected[purpose] = DetectedCheck(command=command, source=name, installed=installed)
    return tuple(detected.values())


def _text(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def find_setup(root: Path, commands: Sequence[str]) -> Setup:
    """What the repository's lock files and these commands ask for, beyond what the image carries."""
    programs = {command.split()[0] for command in commands}
    locks = [lock for lock in _INSTALL if (root / lock).is_file()]
    python = [program for program in _FROM_PYPI if program in programs]
    required = [f"--requirement {name}" for name in _REQUIREMENTS if (root / name).is_file()]
    pip = [f"{_PIP} {' '.join((*python, *required))}"] if python or (required and "make" in programs) else []
    return Setup(
        apt_packages=" ".join(_FROM_DEBIAN[program] for program in _FROM_DEBIAN if program in programs),
        setup=(*pip, *(_INSTALL[lock] for lock in locks[:1])),
    )


def _make(text: str, _root: Path) -> Iterator[tuple[str, str]]:
    return ((target, f"make {target}") for target in dict.fromkeys(_TARGETS.findall(text)))


def _node(text: str, root: Path) -> Iterator[tuple[str, str]]:
    try:
        package = json.loads(text)
    except ValueError:
        return
    scripts = package.get("scripts") if isinstance(package, dict) else {}
    if not isinstance(scripts, dict):
        return
    program = next((program for lock, program in _NODE.items() if (root / lock).exists()), "npm")
    for name in _SCRIPTS:
        if isinstance(scripts.get(name), str) and _NO_TESTS not in scripts[name]:
            yield name.replace("typecheck", "types").replace("type-check", "types"), f"{program} run {name}"


def _python(text: str, root: Path) -> Iterator[tuple[str, str]]:
    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError:
        return
    if "pytest" in tools or (root / "tests").is_dir() or (root / "pytest.ini").exists():
        yield "test", "pytest -q"
    if "ruff" in tools:
        yield "lint", "ruff check ."
    if "mypy" in tools:
        named = isinstance(tools["mypy"], dict) and {"files", "packages", "modules"} & tools["mypy"].keys()
        yield "types", "mypy" if named else "mypy ."


def _go(_text: str, _root: Path) -> Iterator[tuple[str, str]]:
    yield "test", "go test ./..."
    yield "lint", "go vet ./..."


def _cargo(_text: str, _root: Path) -> Iterator[tuple[str, str]]:
    yield "test", "cargo test --quiet"


def _deno(_text: str, _root: Path) -> Iterator[tuple[str, str]]:
    yield "test", "deno test"
    yield "lint", "deno lint"


_PIP = "python3 -m pip install --user --quiet"
_FROM_PYPI = ("pytest", "ruff", "mypy")
_REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")
_FROM_DEBIAN = {"go": "golang-go", "cargo": "cargo"}
_HOME = "npm install --global --prefix ~/.local"
_INSTALL = {
    "pnpm-lock.yaml": f"{_HOME} pnpm && pnpm install --frozen-lockfile",
    "yarn.lock": f"{_HOME} yarn && yarn install --frozen-lockfile",
    "package-lock.json": "npm ci",
}

_SOURCES: dict[str, Callable[[str, Path], Iterator[tuple[str, str]]]] = {
    "Makefile": _make,
    "package.json": _node,
    "pyproject.toml": _python,
    "deno.json": _deno,
    "go.mod": _go,
    "Cargo.toml": _cargo,
}
