"""The files at a repository's root, as the layouts read them."""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

MOST_BYTES = 1024 * 1024
#: What a check is for, and its command.
Check = tuple[str, str]


@dataclass(frozen=True)
class RepositoryFiles:
    """The files at the root, read once. A file that cannot be read is empty, and one that cannot be parsed has no
    keys."""

    root: Path
    _texts: dict[str, str] = field(default_factory=dict)

    def find(self, *patterns: str) -> str:
        """Return the first file that matches one of the patterns; empty without one."""
        return next((name for pattern in patterns for name in self.names(pattern)), "")

    def names(self, pattern: str) -> list[str]:
        """Return the files that match, by their paths relative to the root."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if path.is_file())

    def text(self, name: str) -> str:
        """Return the beginning of a file."""
        if name not in self._texts:
            try:
                with (self.root / name).open("rb") as stream:
                    self._texts[name] = stream.read(MOST_BYTES).decode("utf-8", "replace")
            except OSError:
                self._texts[name] = ""
        return self._texts[name]

    @cached_property
    def pyproject(self) -> Mapping[str, Any]:
        """What `pyproject.toml` says."""
        try:
            return tomllib.loads(self.text("pyproject.toml"))
        except tomllib.TOMLDecodeError:
            return {}

    @cached_property
    def package(self) -> Mapping[str, Any]:
        """What `package.json` says."""
        return self.json("package.json")

    def json(self, name: str) -> Mapping[str, Any]:
        """Return what a JSON file says."""
        try:
            value = json.loads(self.text(name))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @cached_property
    def setup_cfg(self) -> configparser.ConfigParser:
        """What `setup.cfg` says."""
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(self.text("setup.cfg"))
        except configparser.Error:
            return configparser.ConfigParser()
        return parser


def table_of(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the nested table; an empty one if there is none."""
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document
