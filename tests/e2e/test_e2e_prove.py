"""`stepflow prove` in the image, on fakes and true fixes in Go and TypeScript, with their own tools."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.changes import commit_change, go, typescript
from tests.e2e.repository import git
from tests.e2e.test_e2e_languages import AUTHORITY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.e2e.changes import Change

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: The command, with more time for all trials and for each: on a busy machine a compiler may take longer than when the
#: change was tried first, and what is not tried has no verdict.
PATIENT = """
import sys
from stepflow.cli import main
from stepflow.engine import proof
proof.LEAST_SECONDS, proof.HANGS_SECONDS = 600.0, 120.0
sys.exit(main())
"""


@pytest.fixture(scope="module")
def container(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A container of the image that waits for commands, and its folder of repositories."""
    folder = tmp_path_factory.mktemp("repositories")
    trust = [word for name, value in AUTHORITY.items() for word in ("--env", f"{name}={value}")]
    command = ["docker", "run", "--detach", "--rm", "--network=host", *trust, f"--volume={folder}:/repositories"]
    command += ["--entrypoint=sleep", image, "infinity"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield name, folder
    finally:
        subprocess.run(["docker", "kill", name], capture_output=True, check=True)


def execute(container: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", "exec", "--workdir=/repositories", container, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def succeed(container: str, script: str) -> None:
    done = execute(container, "bash", "-ec", script)
    assert done.returncode == 0, done.stdout + done.stderr


def make_checkout(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with these files, which are not committed yet."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def go_checkout(container: tuple[str, Path]) -> tuple[str, Path]:
    """A checkout with what Go compiled of its standard library, which git ignores."""
    name, folder = container
    checkout = make_checkout(folder / "go", go.FILES)
    succeed(name, "apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go")
    succeed(name, f"cd go && {go.ALL}")
    return name, checkout


@pytest.fixture(scope="module")
def typescript_checkouts(container: tuple[str, Path]) -> tuple[str, Path, Path]:
    """A checkout without packages, which are copied for each trial, and one with them, which git ignores."""
    name, folder = container
    bare, packed = (make_checkout(folder / part, typescript.FILES) for part in ("bare", "packed"))
    succeed(name, f"cd packed && npm install --silent --no-save {' '.join(typescript.PACKAGES)}")
    return name, bare, packed


def assert_proof(container: str, checkout: Path, files: dict[str, str], change: Change) -> None:
    commit_change(checkout, files, change)
    words = ("prove", "HEAD^..HEAD", "--repo", checkout.name, "--command", change.command or go.ALL, "--json")
    done = execute(container, "/opt/stepflow/bin/python", "-I", "-c", PATIENT, *words)
    assert done.stdout, done.stderr
    proof = json.loads(done.stdout)["proof"]
    assert (proof["verdict"], done.returncode) == (change.verdict, int(change.verdict != "proven")), proof
    assert change.says in f"{proof['summary']} {proof['reason']}", proof
    assert change.before is None or proof["before"]["tests"] == [*change.before], proof
    weakened = tuple((each["name"], each["how"]) for each in proof["weakened"])
    assert change.weakened is None or weakened == change.weakened, proof
    holding = [None if each["held_by"] is None else tuple(each["held_by"]) for each in proof["hunks"]]
    found = [(each["file"], each["exempt"] or held) for each, held in zip(proof["hunks"], holding, strict=True)]
    assert not change.held or found == [*change.held], proof


@pytest.mark.weekly  # installing Go takes minutes; tests/cli/test_cli_prove.py has Python's on every change
@pytest.mark.parametrize("name", [*go.FAKES, *go.FIXES])
def test_a_change_in_go_is_named_as_what_it_is(name: str, go_checkout: tuple[str, Path]) -> None:
    assert_proof(*go_checkout, go.FILES, (go.FAKES | go.FIXES)[name])


@pytest.mark.weekly  # tests/e2e/security has a proof in the image
@pytest.mark.parametrize("name", [*typescript.FAKES, *typescript.FIXES])
def test_a_change_in_typescript_is_named_as_what_it_is(name: str, typescript_checkouts: tuple[str, Path, Path]) -> None:
    container, bare, packed = typescript_checkouts
    change = (typescript.FAKES | typescript.FIXES)[name]
    assert_proof(container, packed if "npx" in change.command else bare, typescript.FILES, change)
