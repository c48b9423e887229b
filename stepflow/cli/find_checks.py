"""The checks that a repository has already, as far as its files say."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.sandbox.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def find_checks(root: Path) -> tuple[DetectedCheck, ...]:
    """Every check, without two for the same purpose: what the Makefile has is what people run."""
    detected: dict[str, DetectedCheck] = {}
    for name, purposes in _SOURCES.items():
        text = _text(root / name)
        for purpose, command in () if text is None else purposes(text, root):
            check = DetectedCheck(command=command, source=name, installed=_is_installed(command.split()[0]))
            if purpose not in detected:
                detected[purpose] = check
    return tuple(detected.values())


def _text(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _is_installed(program: str) -> bool:
    """On the PATH that tools get: the system's programs, then those beside this Python."""
    return shutil.which(program, path=":".join((*SYSTEM_PATH, str(Path(sys.executable).parent)))) is not None


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


_SOURCES: dict[str, Callable[[str, Path], Iterator[tuple[str, str]]]] = {
    "Makefile": _make,
    "package.json": _node,
    "pyproject.toml": _python,
    "deno.json": _deno,
    "go.mod": _go,
    "Cargo.toml": _cargo,
}
