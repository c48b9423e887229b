"""A real repository that other users can reach, and a real toolbox in it."""

from __future__ import annotations

import shutil

import pytest
from toolbox_world import Box, copy_packages, git, reachable_folder

from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.options import ToolboxOptions


@pytest.fixture
def open_folder():
    with reachable_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def packages():
    with reachable_folder() as folder:
        yield copy_packages(folder)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    place = tmp_path_factory.mktemp("template") / "checkout"
    place.mkdir()
    git(place, "init", "--quiet", "--initial-branch", "main")
    (place / "hello.txt").write_text("hello\nworld\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "one")
    return place


@pytest.fixture
def checkout(open_folder, template):
    return shutil.copytree(template, open_folder / "checkout", symlinks=True)


@pytest.fixture
def start(checkout):
    """Starts toolboxes in the checkout and closes them at the end."""
    started = []

    def begin(**options: object) -> Box:
        box = Box(Toolbox.start(checkout, options=ToolboxOptions(**options)), checkout)
        started.append(box)
        return box

    yield begin
    for box in started:
        box.toolbox.close()


@pytest.fixture
def box(start):
    return start()


@pytest.fixture(scope="module")
def shared_box(template):
    """One toolbox for many tests of a module that change nothing which another one looks at."""
    with reachable_folder() as folder:
        place = shutil.copytree(template, folder / "checkout", symlinks=True)
        with Toolbox.start(place) as toolbox:
            yield Box(toolbox, place)
