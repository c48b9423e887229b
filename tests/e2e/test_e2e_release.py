"""A release rehearsed on a bare copy of the repository, and what `uses: org/stepflow-action@v1` runs afterwards.

Nothing stands in for git, the engine or the registry. Attestations need GitHub's own services, so none are made here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from release.versions import Version, read_version
from tests.e2e.act_job import RUNNER_IMAGE
from tests.e2e.repository import git, labeled
from tests.e2e.script import EVENT_CANARY, fix_shortly
from tests.e2e.world import open_world

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.weekly, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parents[2]
#: Debian's Docker Registry, without a login.
REGISTRY_IMAGE = "stepflow-registry:e2e"
REGISTRY = rf"""
FROM {RUNNER_IMAGE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends docker-registry >/dev/null
RUN printf 'version: 0.1\nstorage: {{filesystem: {{rootdirectory: /srv}}}}\nhttp: {{addr: ":5000"}}\n' > /srv/config.yml
CMD ["docker-registry", "serve", "/srv/config.yml"]
"""


def docker(*arguments: str, given: str = "") -> str:
    done = subprocess.run(["docker", *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A registry in a container, and the repository of our image in it."""

    container: str
    repository: str

    def is_pulled(self, digest: str) -> bool:
        """Whether the engine has the image under its name in this registry. The engine remembers manifests by their
        digest, so what it asks the registry for says nothing when an image is pushed again."""
        look = ["docker", "image", "inspect", f"{self.repository}@{digest}"]
        return subprocess.run(look, capture_output=True, check=False).returncode == 0

    def push(self, image: str) -> str:
        """Push the image, drop its name in this registry from the engine, and return its digest."""
        name = f"{self.repository}:pushed"
        docker("tag", image, name)
        (digest,) = re.findall(r"digest: (sha256:[0-9a-f]{64})", docker("push", name))
        docker("rmi", name)
        return digest


@pytest.fixture(scope="module")
def registry(engine: None) -> Iterator[Registry]:
    docker("build", "--network=host", "--quiet", "--tag", REGISTRY_IMAGE, "-", given=REGISTRY)
    container = docker("run", "--detach", "--publish=127.0.0.1::5000", REGISTRY_IMAGE)
    try:
        address = docker("port", container, "5000/tcp")
        yield Registry(container=container, repository=f"{address}/org/stepflow-action")
    finally:
        docker("rm", "--force", "--volumes", container)


@dataclass(frozen=True, kw_only=True)
class BareCopy:
    """This repository as GitHub would have it, without the tags of earlier releases, and a checkout of its main."""

    server: Path
    checkout: Path
    version: Version

    def publish(self, *what: str) -> str:
        """Run the program of the workflow's first and last job."""
        command = [sys.executable, "-m", "release.publish", "--version", str(self.version), *what]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        done = subprocess.run(command, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tags(self) -> dict[str, str]:
        lines = git(self.server, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags").splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture
def copy(tmp_path: Path) -> BareCopy:
    """The first step of RELEASING.md is done on its main."""
    server, checkout = tmp_path / "server.git", tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--bare", "--no-tags", str(PROJECT), str(server))
    git(server, "update-ref", "refs/heads/main", "HEAD")
    git(tmp_path, "clone", "--quiet", "--branch=main", str(server), str(checkout))
    version = read_version(tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"])
    changelog = (checkout / "CHANGELOG.md").read_text()
    if f"## [{version}]" not in changelog:
        heading = f"## [Unreleased]\n\n## [{version}] - 2030-01-01\n"
        (checkout / "CHANGELOG.md").write_text(changelog.replace("## [Unreleased]\n", heading))
        git(checkout, "commit", "--quiet", "--all", "--message", f"Prepare {version}")
        git(checkout, "push", "--quiet", "origin", "main")
    return BareCopy(server=server, checkout=checkout, version=version)


def test_a_release_is_tagged_and_a_workflow_that_uses_the_major_tag_runs_the_pushed_image(
    copy: BareCopy, registry: Registry, image: str, tmp_path: Path
) -> None:
    copy.publish("--check")
    digest = registry.push(image)
    printed = copy.publish("--image", registry.repository, "--digest", digest)
    print(printed)
    tag, major = copy.version.tag, copy.version.major_tag
    commit = git(copy.server, "rev-parse", tag)
    assert copy.tags() == {tag: commit, major: commit}
    assert git(copy.server, "diff", "--name-only", f"main..{major}") == "action.yml"

    # What a runner fetches for `uses: org/stepflow-action@v1`.
    used = tmp_path / "used"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"--branch={major}", f"file://{copy.server}", str(used))
    pinned = f"docker://{registry.repository}@{digest}"
    assert yaml.safe_load((used / "action.yml").read_text())["runs"] == {"using": "docker", "image": pinned}
    assert not registry.is_pulled(digest)
    with ExitStack() as stack:
        world = open_world(tmp_path / "world", release=used, image=image, stack=stack)
        assert f"org/stepflow-action@{major}" in (world.checkout / ".github/workflows/stepflow.yml").read_text()
        job = world.run(fix_shortly(), labeled("agent:fixer", secret=EVENT_CANARY))
        assert (job.exit_code, job.outputs.get("outcome")) == (0, "completed"), job.everything
        assert len(world.pulls()) == 1
    assert registry.is_pulled(digest), job.everything
    docker("rmi", f"{registry.repository}@{digest}")
