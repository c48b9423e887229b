"""What every end-to-end test needs: an engine, the release, the image."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.act_job import one_at_a_time
from tests.e2e.world import World, open_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).parents[2]
BUILT_IMAGE = os.environ.get("STEPFLOW_IMAGE", "")


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker engine that answers. Without one these tests fail: they were asked for, and a skip looks like a pass.

    Workers of one session share it; a session without workers waits until it has it for itself.
    """
    if shutil.which("docker") is None:
        pytest.fail("no docker command on this machine; the end-to-end tests need a Docker engine")
    version = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if version.returncode:
        pytest.fail(f"no Docker engine answers; start one or set DOCKER_HOST:\n{version.stderr}")
    with (Path(tempfile.gettempdir()) / f"stepflow-e2e-{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if "PYTEST_XDIST_WORKER" in os.environ else fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a release would carry it: the working tree without what git ignores.

    With `STEPFLOW_IMAGE` its action.yml points to that image, as the action.yml of a release does.
    """
    folder = tmp_path_factory.mktemp("release")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    if BUILT_IMAGE:
        metadata = (folder / "action.yml").read_text()
        (folder / "action.yml").write_text(metadata.replace("image: Dockerfile", f"image: docker://{BUILT_IMAGE}"))
    return folder


@pytest.fixture(scope="session")
def image(engine: None, release: Path) -> str:
    """The image of the working tree, or the one that `STEPFLOW_IMAGE` names.

    What act builds of the tree afterwards comes out of the same layers.
    """
    if BUILT_IMAGE:
        return BUILT_IMAGE
    tag = "stepflow-action:e2e"
    # What this build replaced has no name any more.
    prune = ["docker", "image", "prune", "--force", "--filter", "label=org.opencontainers.image.title=stepflow-action"]
    with one_at_a_time():
        # Of two workers the second finds every layer made.
        for command in (["docker", "build", "-t", tag, release], prune):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return tag


@pytest.fixture(scope="session")
def new_world(tmp_path_factory: pytest.TempPathFactory, release: Path, image: str) -> Iterator[Callable[[], World]]:
    """Makes a repository with its GitHub and its model, as often as asked."""
    with ExitStack() as stack:
        yield lambda: open_world(tmp_path_factory.mktemp("world"), release=release, image=image, stack=stack)
