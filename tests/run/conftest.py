"""A place for runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkout import make_checkout
from tests.run.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(root=make_checkout(tmp_path / "checkout"), folder=tmp_path / "run")
