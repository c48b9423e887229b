"""The image is built twice from one commit, from nothing each time, and has the same packages.

It takes minutes; only CI runs it.
"""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.image_twice, pytest.mark.timeout(1800)]

PIP = "python3 -m pip --disable-pip-version-check"
#: What is in the image → the command that lists it.
LISTS = {
    "Debian packages": "dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n'",
    "packages of stepflow": f"{PIP} --python /opt/stepflow/bin/python list --format json",
    "packages of the tools' Python": f"{PIP} list --format json",
    "npm's packages": "npm ls --global --all --json --prefix /opt/node",
    "programs": "sha256sum /opt/node/bin/node /usr/bin/git /usr/bin/rg /usr/bin/make /opt/stepflow/bin/stepflow",
    "libraries": "find /opt/stepflow -name '*.so' -exec sha256sum {} + | sort",
    "sources": "find /opt/stepflow /opt/node -type f ! -name '*.pyc' ! -name RECORD -printf '%p %s %m\\n' | sort",
}


@pytest.fixture(scope="module")
def both(engine: None, release: Path) -> Iterator[tuple[str, str]]:
    """Two images, neither of which shares a layer with anything built before, but for the base."""
    names = tuple(f"stepflow-action-twice:{uuid.uuid4().hex[:12]}" for _ in range(2))
    try:
        for name in names:
            command = ["docker", "build", "--no-cache", "--force-rm", "--quiet", "--tag", name, str(release)]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
        yield names
    finally:
        subprocess.run(["docker", "rmi", "--force", *names], capture_output=True, check=False)


def printed(image: str, command: str) -> str:
    run = ["docker", "run", "--rm", "--network=none", "--entrypoint=/bin/bash", image, "-ec", command]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_two_images(both: tuple[str, str]) -> None:
    layers = [
        json.loads(
            subprocess.run(
                ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", image],
                capture_output=True, text=True, check=True,
            ).stdout
        )
        for image in both
    ]  # fmt: skip
    assert layers[0] != layers[1]


@pytest.mark.parametrize("what", LISTS)
def test_what_is_in_them_is_the_same(both: tuple[str, str], what: str) -> None:
    first, second = (printed(image, LISTS[what]) for image in both)
    assert first.count("\n") >= 1
    assert first.splitlines() == second.splitlines()
