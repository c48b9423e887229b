"""Prints JSON on stdout, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject


def print_json(document: JsonObject, *, indent: int | None = None) -> None:
    """Everything but ASCII is escaped, since a text of a model or a file may be none that the terminal can encode; the
    `##[` of a text is too, since the runner of a job obeys it anywhere in a line."""
    print(json.dumps(document, indent=indent).replace("##[", "##\\u005b"))
