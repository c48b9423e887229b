"""The JSON examples of the documents that describe the method, taken out of them word for word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SEEDS = Path(__file__).parents[2].parent / "shared" / "seeds"
#: What stands in an example for something that another example shows.
ELLIPSIS = "{ ... }"


def seed_text(number: str) -> str:
    """The document whose name begins with this number; the test is skipped where there is none."""
    files = sorted(SEEDS.glob(f"{number}_*.txt"))
    if not files:
        pytest.skip("the documents lie beside the repository only where it is written")
    return files[0].read_text(encoding="utf-8")


def examples(number: str) -> list[Any]:
    """Every JSON example of a document; comments are taken out, an ellipsis is read as an object that says so."""
    text = seed_text(number)
    blocks = list(_fenced(text)) or list(_braced(text))
    return [json.loads(_strict(block)) for block in blocks]


def example_with(number: str, *keys: str) -> Any:
    """The first example that is an object with these keys."""
    return next(one for one in examples(number) if set(keys) <= set(one))


def _fenced(text: str) -> Iterator[str]:
    return (match[1] for match in re.finditer(r"^```jsonc?\n(.*?)^```$", text, re.M | re.S))


def _braced(text: str) -> Iterator[str]:
    """In a page without fences: from a line that is one brace to the line that closes it."""
    depth, lines = 0, list[str]()
    for line in text.splitlines():
        if depth or line.strip() == "{":
            lines.append(line)
            depth += line.count("{") - line.count("}")
            if depth == 0:
                yield "\n".join(lines)
                lines = []


def _strict(block: str) -> str:
    without_comments = re.sub(r"(?<=[,\d]) *//.*$", "", block, flags=re.M)
    return without_comments.replace(ELLIPSIS, '{"...": null}')


def write_texts(folder: Path, texts: dict[str, str]) -> Path:
    """The folder, with these texts by their paths in it."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder
