"""A place for runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkout import make_checkout
from tests.run.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(root=make_checkout(tmp_path / "checkout"), folder=tmp_path / "run")
