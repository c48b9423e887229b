"""An answer of the loopback API other than success."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Answer(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, errors: list[Json] | list[str] | None = None) -> None:
        super().__init__(message)
        self.status, self.data = status, {"message": message, "documentation_url": "https://docs.github.com/rest"}
        if errors:
            self.data["errors"] = errors
