"""The rules that a definition must keep, each with its reason and examples (registry.md §9.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.problem import Severity


@dataclass(frozen=True, kw_only=True)
class Example:
    """A piece of a file. `pointer` is the JSON Pointer of the piece, empty for a whole file."""

    file: str
    pointer: str
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where the piece stands, in words."""
        return f"{self.file}, {self.pointer}" if self.pointer else self.file


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`broken` says in a few words what is wrong, `why` why that matters."""

    code: str
    severity: Severity
    broken: str
    why: str
    wrong: tuple[Example, ...]
    right: tuple[Example, ...]
