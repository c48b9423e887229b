"""A pull request that the action made, what its job kept of the run, and the command that verifies it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepflow.cli import main
from tests.checkout import Invocation, git
from tests.signing import Signer
from tests.world import World

AGENT_WORKFLOW = "org/stepflow-action/.github/workflows/agent.yml@refs/tags/v1"
FILES = ("journal.jsonl", "statement.json", "predicate.json")
Json = dict[str, Any]


@dataclass
class Proven:
    """A pull request with the folder of the run that made it, and a clone to verify it in."""

    world: World
    folder: Path
    clone: Path
    commit: str
    capture: Callable[[], str] = field(default=str)

    def verify(self, *words: str, code: int | None = None) -> Json:
        """What the command says, as JSON."""
        api = self.world.github.plain_url
        done = main(["verify", "8", "--repo", str(self.clone), "--github-api-url", api, "--json", *words])
        said = json.loads(self.capture())
        assert "checks" in said, said["reason"]
        assert done == (1 if any(check["state"] == "failed" for check in said["checks"]) else 0)
        assert code in (None, done), json.dumps(said, indent=1)
        return said

    def of_folder(self, folder: Path) -> Json:
        """The same of a run folder, whoever signed."""
        return self.verify("--run-folder", str(folder), "--unsigned")


def failed(said: Json) -> list[str]:
    return [check["name"] for check in said["checks"] if check["state"] == "failed"]


def keep(world: World, folder: Path, commit: str) -> None:
    """Upload what the shipped workflow uploads."""
    files = {name: (folder / name).read_bytes() for name in FILES}
    world.github.state.artifacts.append({"name": f"stepflow-{commit}", "files": files, "expired": False})


def made_by(world: World, done: Invocation, clone: Path) -> Proven:
    """The pull request of a completed run, whose job has kept what the shipped workflow keeps."""
    assert done.outputs["outcome"] == "completed", done.log
    folder, commit = done.folder, done.outputs["commit"]
    keep(world, folder, commit)
    if not clone.exists():
        git("clone", "--quiet", str(world.served), str(clone), cwd=clone.parent)
    return Proven(world, folder, clone, commit)


def signed(proven: Proven, signer: Signer, file: Path, *, statement: Json | None = None, **facts: str) -> list[str]:
    """The words that give the command a signature by the shipped workflow, but for these facts."""
    said = statement or json.loads((proven.folder / "statement.json").read_text())
    file.write_text(json.dumps(signer.sign(said, **{"repository": "o/r", "workflow": AGENT_WORKFLOW, **facts})))
    return ["--bundle", str(file), "--trusted-root", str(signer.trusted_root)]


def copy_of(proven: Proven, folder: Path) -> Path:
    """A run folder to change."""
    folder.mkdir()
    for name in FILES:
        shutil.copyfile(proven.folder / name, folder / name)
    return folder
