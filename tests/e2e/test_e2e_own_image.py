"""docs/how-to/images.md: an image of a user's own that begins with ours, and the figures of the page."""

from __future__ import annotations

import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from release.image_size import layers
from tests.docs.images import block, made_layers, promised_megabytes, told_layers, told_variants
from tests.docs.page import around_action
from tests.e2e.languages import SHELL
from tests.e2e.repository import labeled, lead_to
from tests.e2e.script import EVENT_CANARY
from tests.e2e.test_e2e_languages import assert_the_repair_was_refused_then_accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
#: What the page calls ours, and the user's own.
OURS, OWN = "ghcr.io/org/stepflow-action:1", "ghcr.io/acme/stepflow-shell:1"


@pytest.fixture(scope="module")
def own_image(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page's Dockerfile, built upon the image under test."""
    name = f"stepflow-own:{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp("own")
    (folder / "Dockerfile").write_text(block("Dockerfile").text.replace(OURS, image))
    built = subprocess.run(
        ["docker", "build", "--network=host", "--tag", name, str(folder)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    yield name
    subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


@pytest.mark.weekly  # an image of one's own is built, which needs Debian's packages
def test_a_repository_of_shell_scripts_is_checked_in_an_image_of_its_peoples_own(
    new_world: Callable[[], World], own_image: str
) -> None:
    world = new_world()
    SHELL.write_into(world, inputs={}, extra={".github/workflows/stepflow.yml": own_workflow(world, own_image)})
    job = world.run(SHELL.turns(), labeled("agent:fixer", secret=EVENT_CANARY), step="docker://")
    assert_the_repair_was_refused_then_accepted(world, job, SHELL)
    # act has no folder of the host's for this, a runner has; what the step was given is what it told.
    assert job.outputs["run-folder"]


def own_workflow(world: World, own_image: str) -> str:
    """The repository's workflow with the page's step instead of the action's, led to the loopback servers."""
    before, _, after = around_action((world.checkout / ".github/workflows/stepflow.yml").read_text())
    return lead_to(before + block("steps").text.replace(OWN, own_image) + after, world.urls())


@pytest.mark.weekly
def test_the_commands_of_the_page_work_in_an_image_of_ones_own(own_image: str, tmp_path: Path) -> None:
    script = block("your image").text.replace(OWN, own_image)
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "This was a dry run" in done.stdout


def test_the_sizes_of_the_page_are_those_of_the_image(image: str) -> None:
    """The base is left out: whose it is, is the machine's choice."""
    ours = [layer for layer in layers(image) if layer.instruction in {"RUN", "COPY"}][1 - len(made_layers()) :]
    for row, layer in zip(told_layers()[1:], ours, strict=True):
        assert abs(layer.unpacked / 1e6 - row.megabytes) < 1 + row.megabytes / 20, (row, layer)
    whole = told_layers()[0].megabytes + sum(layer.unpacked for layer in ours) / 1e6
    assert abs(whole - told_variants()["requirements/run.txt"][0]) < whole / 50
    assert whole < promised_megabytes()
