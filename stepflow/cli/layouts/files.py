"""Reads the files that say how a repository is built and tested. None of them is executed: asking `make` for its
targets would run the Makefile's `$(shell …)`."""

from __future__ import annotations

import codecs
import configparser
import io
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1024 * 1024
#: Editors on Windows begin files with these.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: Folders of other people's code.
_FOREIGN = frozenset(("node_modules", "vendor", "third_party", "site-packages"))
#: A string, which stays, a comment, or a comma before a closing bracket.
_JSONC = re.compile(r'("(?>(?:\\.|[^"\\\n])*)"?)|//[^\n]*|/\*.*?(?:\*/|\Z)|,(?=\s*+[}\]])', re.DOTALL)


@dataclass(frozen=True)
class RepositoryFiles:
    """The files of a folder, and those of the folders above it, up to `top`, that hold its lock file. A file that
    cannot be read is empty; one that cannot be parsed has no keys, and `faults` says why."""

    root: Path
    top: Path | None = None
    #: By the file's name.
    faults: dict[str, str] = field(default_factory=dict)

    def find(self, *patterns: str) -> str:
        """Return the first file that matches one of the patterns; empty without one."""
        return next((name for pattern in patterns for name in self.names(pattern)), "")

    def find_above(self, *names: str) -> str:
        """Return the nearest file with one of the names in the folders above, relative to this one."""
        depth = len(self.root.relative_to(self.top).parts) if self.top else 0
        paths = ("../" * up + name for up in range(1, depth + 1) for name in names)
        return next((path for path in paths if (self.root / path).is_file()), "")

    def names(self, pattern: str) -> list[str]:
        """Return the files that match, by their paths relative to the root. Those in folders of dependencies, and in
        hidden ones, match only where the pattern names the folder."""
        found = (path for path in self.root.glob(pattern) if path.is_file())
        names = sorted(path.relative_to(self.root).as_posix() for path in found)
        named = {*pattern.split("/")}
        return [
            name
            for name in names
            if not any(part in _FOREIGN or part[0] == "." for part in name.split("/")[:-1] if part not in named)
        ]

    def text(self, name: str) -> str:
        """Return the beginning of a file, whatever its encoding and its line ends are."""
        try:
            with (self.root / name).open("rb") as stream:
                content = stream.read(MOST_BYTES)
        except OSError:
            return ""
        encoding = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), "utf-8")
        return content.decode(encoding, "replace").replace("\r\n", "\n")

    @cached_property
    def pyproject(self) -> Mapping[str, Any]:
        """What `pyproject.toml` says."""
        return self.toml("pyproject.toml")

    @cached_property
    def package(self) -> Mapping[str, Any]:
        """What `package.json` says."""
        return self.json("package.json")

    def toml(self, name: str) -> Mapping[str, Any]:
        """Return what a TOML file says."""
        try:
            return tomllib.loads(self.text(name))
        except tomllib.TOMLDecodeError as exc:
            self.faults[name] = f"is not valid TOML: {exc}"
            return {}

    def json(self, name: str) -> Mapping[str, Any]:
        """Return what a JSON file says; one with the suffix `.jsonc` may have comments."""
        text = self.text(name)
        if name.endswith(".jsonc"):
            text = _JSONC.sub(lambda match: match[1] or " ", text)
        try:
            value = json.loads(text) if text else {}
        except (ValueError, RecursionError) as exc:
            self.faults[name] = f"is not valid JSON: {exc}"
            return {}
        return value if isinstance(value, dict) else {}

    def yaml(self, name: str) -> Mapping[str, Any]:
        """Return what a YAML file says."""
        try:
            value = yaml.safe_load(self.text(name))
        except (yaml.YAMLError, RecursionError) as exc:
            self.faults[name] = f"is not valid YAML: {' '.join(str(exc).split())}"
            return {}
        return value if isinstance(value, dict) else {}

    def ini(self, name: str) -> configparser.ConfigParser:
        """Return what a file such as `setup.cfg` says."""
        return self.parse_ini(name, self.text(name))

    def parse_ini(self, name: str, text: str) -> configparser.ConfigParser:
        """Return the sections of a text, which the file of this name holds."""
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_file(io.StringIO(text))
        except configparser.Error as exc:
            self.faults[name] = f"cannot be parsed: {' '.join(str(exc).split())}"
            return configparser.ConfigParser()
        return parser

    @cached_property
    def setup_cfg(self) -> configparser.ConfigParser:
        """What `setup.cfg` says."""
        return self.ini("setup.cfg")


def table_of(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the nested table; an empty one if there is none."""
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


def texts_of(document: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the strings of a list."""
    value = document.get(key)
    yield from (each for each in (value if isinstance(value, list) else ()) if isinstance(each, str))
