"""The documents' fenced blocks by their names, and the files of the agent to paste."""

from __future__ import annotations

from pathlib import Path

from tests.docs.page import DOCS, ROOT, page_blocks

README = ROOT / "README.md"
#: The page that shows a whole agent.
AGENT_PAGE = DOCS / "agent.md"
USE_PAGE, REFERENCE_PAGE, RESUME_PAGE = DOCS / "use.md", DOCS / "reference.md", DOCS / "how-to" / "costs.md"
SCENARIOS_PAGE = DOCS / "scenarios.md"
RECIPES = DOCS / "how-to" / "recipes.md"
BUILT_PAGE = DOCS / "how-it-is-built.md"

AGENT = ".agent/fixer/"


def named_block(name: str, document: Path = README) -> str:
    """The text of the one block of this name."""
    (text,) = [block.text for block in page_blocks(document) if block.name == name]
    return text


def agent_files() -> dict[str, str]:
    """The files of the agent to paste, by their path in its folder."""
    blocks = page_blocks(AGENT_PAGE)
    return {block.name.removeprefix(AGENT): block.text for block in blocks if block.name.startswith(AGENT)}
