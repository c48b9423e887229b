"""Shared parts of the loader's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stepflow.engine.prompt.render import TEMPLATE_KEYS


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small texts in place of the shipped templates, so that the loader is tested by itself."""
    folder = tmp_path_factory.mktemp("templates")
    for key in TEMPLATE_KEYS:
        (folder / f"{key}.md").write_text(f"# Template {key}: {{uv-iteration}} {{uv-nothing}}\n")
    return folder
