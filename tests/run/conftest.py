"""A repository for runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.stopped_run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path)
