"""The documents' fenced blocks and the README's generated parts, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
#: The page that shows a whole agent.
AGENT_PAGE = ROOT / "docs" / "agent.md"
PULL_REQUESTS = ROOT / "docs" / "how-to" / "pull-requests.md"
PYTHON_PAGE = ROOT / "docs" / "python.md"
BUILT_PAGE = ROOT / "docs" / "how-it-is-built.md"

_NAME = r"(?:<!-- (?P<name>[^\n]+?) -->|\*\*`(?P<file>[^\n`]+)`\*\*)\n"
_BLOCK = re.compile(rf"(?:{_NAME})?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
AGENT = ".agent/fixer/"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block; `name` is the comment or the bold file name right above it."""

    language: str
    name: str
    text: str


def readme_blocks(document: Path = README) -> list[Block]:
    """Every fenced block, in order."""
    blocks = _BLOCK.finditer(document.read_text(encoding="utf-8"))
    return [
        Block(language=match["language"], name=match["name"] or match["file"] or "", text=match["text"])
        for match in blocks
    ]


def named_block(name: str, document: Path = README) -> str:
    """The text of the one block of this name."""
    (text,) = [block.text for block in readme_blocks(document) if block.name == name]
    return text


def agent_files() -> dict[str, str]:
    """The files of the agent to paste, by their path in its folder."""
    blocks = readme_blocks(AGENT_PAGE)
    return {block.name.removeprefix(AGENT): block.text for block in blocks if block.name.startswith(AGENT)}


def part_pattern(name: str) -> re.Pattern[str]:
    """Finds what stands between the markers of a part; groups: begin, text, end."""
    return re.compile(rf"(<!-- {name}: begin[^\n]*-->\n)(.*?)(<!-- {name}: end -->)", re.S)


def part(name: str) -> str:
    """What stands between the markers of a part."""
    match = part_pattern(name).search(README.read_text(encoding="utf-8"))
    assert match is not None, f"README.md has no part {name}"
    return match[2]
