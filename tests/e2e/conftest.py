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
        _point_to(BUILT_IMAGE, folder / "action.yml")
    return folder


def _point_to(image: str, metadata: Path) -> None:
    metadata.write_text(metadata.read_text().replace("image: Dockerfile", f"image: docker://{image}"))


@pytest.fixture(scope="session")
def image(engine: None, release: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of the working tree, which the first of the workers builds, or the one that `STEPFLOW_IMAGE` names."""
    if BUILT_IMAGE:
        return BUILT_IMAGE
    tag = "stepflow-action:e2e"
    # What this build replaced has no name any more.
    prune = ["docker", "image", "prune", "--force", "--filter", "label=org.opencontainers.image.title=stepflow-action"]
    session = tmp_path_factory.getbasetemp()
    with ((session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "image").open("a+") as built:
        fcntl.flock(built, fcntl.LOCK_EX)
        for command in (["docker", "build", "-t", tag, release], prune) if not built.seek(0, os.SEEK_END) else ():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        built.write(tag)
    return tag


@pytest.fixture(scope="session")
def published(release: Path, image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a workflow needs of the action when the image is built already, as the tag of a release has it."""
    folder = tmp_path_factory.mktemp("published")
    shutil.copy2(release / "action.yml", folder)
    shutil.copytree(release / ".github", folder / ".github")
    _point_to(image, folder / "action.yml")
    return folder


@pytest.fixture(scope="session")
def new_world(tmp_path_factory: pytest.TempPathFactory, published: Path, image: str) -> Iterator[Callable[[], World]]:
    """Makes a repository with its GitHub and its model, as often as asked."""
    with ExitStack() as stack:
        yield lambda: open_world(tmp_path_factory.mktemp("world"), release=published, image=image, stack=stack)
