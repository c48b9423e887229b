"""A real repository that other users can reach, and a real toolbox in it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from toolbox_world import Box, copy_packages, git, reachable_folder

from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.workspace import give_to


@pytest.fixture
def open_folder():
    with reachable_folder() as folder:
        yield folder


@pytest.fixture
def temp(open_folder):
    """The runner's folder for temporary files."""
    folder = open_folder / "temp"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def packages():
    with reachable_folder() as folder:
        yield copy_packages(folder)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    checkout = tmp_path_factory.mktemp("template") / "checkout"
    checkout.mkdir()
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    (checkout / "hello.txt").write_text("hello\nworld\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "one")
    return checkout


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


@pytest.fixture
def cleared_box(shared_box, template):
    """The shared toolbox at the beginning of a step, with its checkout as it was."""
    shared_box.toolbox.end_step()
    owner = shared_box.checkout.stat()
    for path in shared_box.checkout.iterdir():
        subprocess.run(["rm", "-rf", "--", str(path)], check=True)
    shutil.copytree(template, shared_box.checkout, symlinks=True, dirs_exist_ok=True)
    give_to(shared_box.checkout, owner.st_uid, owner.st_gid)
    return shared_box


@pytest.fixture(scope="module")
def shared_box(template):
    """One toolbox for many tests of a module that change nothing which another one looks at."""
    with reachable_folder() as folder:
        checkout = shutil.copytree(template, folder / "checkout", symlinks=True)
        with Toolbox.start(checkout) as toolbox:
            yield Box(toolbox, checkout)
