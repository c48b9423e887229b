"""Repositories in other languages, under act: their own type check and tests are the agent's validators."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.languages import GO, NODE
from tests.e2e.repository import BRANCH, git, labeled
from tests.e2e.script import EVENT_CANARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.act_job import Job
    from tests.e2e.languages import Language
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)
#: Where the machine's own authority stands before the registry, its name comes along, as docs/how-to tell a user to do.
AUTHORITY = {name: os.environ[name] for name in ("NODE_EXTRA_CA_CERTS",) if name in os.environ}


def passed_on() -> dict[str, str]:
    return {"pass-env": ",".join(AUTHORITY)} if AUTHORITY else {}


def lock_file(image: str, folder: Path, *packages: str) -> dict[str, str]:
    """package.json and its lock file with more packages, as npm itself writes them."""
    (folder / "package.json").write_text(NODE.files["package.json"])
    trust = [word for name, value in AUTHORITY.items() for word in ("--env", f"{name}={value}")]
    command = ["docker", "run", "--rm", "--network=host", *trust, f"--volume={folder}:/made", "--workdir=/made"]
    command += ["--entrypoint=npm", image, "install", "--package-lock-only", "--save-dev", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: (folder / name).read_text() for name in ("package.json", "package-lock.json")}


def assert_the_repair_was_refused_then_accepted(world: World, job: Job, language: Language) -> None:
    wanted = (0, "completed", "true")
    assert (job.exit_code, job.outputs["outcome"], job.outputs["validated"]) == wanted, job.everything
    refusals = [prompt for prompt in world.prompts() if "The closing was refused" in prompt]
    assert len(refusals) == 1, job.everything
    assert language.message in refusals[0], refusals[0]
    assert language.right.splitlines()[-1].strip() in git(world.server, "show", f"{BRANCH}:{language.source}")
    assert git(world.server, "diff", "--name-only", f"main..{BRANCH}") == language.source
    for name in language.check_names():
        assert re.search(rf"✓ {name}\s", job.log.rpartition("  checks ")[2]), job.log
    assert world.github.violations == []


def test_a_node_repository_is_checked_by_its_own_tsc_and_tests(
    new_world: Callable[[], World], image: str, tmp_path: Path
) -> None:
    world = new_world()
    NODE.write_into(world, inputs={**NODE.inputs(), **passed_on()}, extra=lock_file(image, tmp_path, "typescript"))
    job = world.run(NODE.turns(), EVENT, environment=AUTHORITY)
    assert_the_repair_was_refused_then_accepted(world, job, NODE)


@pytest.mark.weekly
def test_a_go_repository_is_checked_by_its_own_vet_tests_and_format(new_world: Callable[[], World]) -> None:
    world = new_world()
    assert GO.inputs()["apt-packages"] == "golang-go"
    GO.write_into(world, inputs=GO.inputs())
    job = world.run(GO.turns(), EVENT)
    assert_the_repair_was_refused_then_accepted(world, job, GO)
