"""The type checker that a public agent names, and a folder for its repository."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.toolbox_world import reachable_folder

DENO = "2.9.6"


@pytest.fixture(scope="session")
def deno() -> Path:
    """The real Deno, from npm; installed once on a machine, outside the repository."""
    cache = Path(os.environ.get("STEPFLOW_TEST_CACHE") or Path.home() / ".cache" / "stepflow-tests")
    installed = cache / f"deno-{DENO}"
    if not installed.exists():
        npm = shutil.which("npm")
        if not npm:
            pytest.fail("STEPFLOW_NPM_TESTS is set, but there is no npm; install Node.js, or unset it")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save")
            command = [npm, "install", *options, "--prefix", f"{partial}/whole", f"deno@{DENO}"]
            subprocess.run(command, cwd=partial, check=True, capture_output=True, timeout=300)
            # Another test process may have been faster; what it put there is the same.
            with contextlib.suppress(OSError):
                Path(partial, "whole").rename(installed)
    return next(installed.glob("node_modules/@deno/*/deno"))


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Path]:
    """A folder that lets the tools have a user of their own."""
    with reachable_folder() as folder:
        yield folder
