"""The shipped reviewer as an agent of a repository's own, and pull requests of eve's that it reviews in the guide's
workflow."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.action.review_world import propose
from tests.docs.page import DOCS, named_block
from tests.e2e.act_job import stand_ins
from tests.e2e.repository import git, labeled
from tests.e2e.script import EVENT_CANARY, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.action.review_world import Change
    from tests.e2e.script import Answer
    from tests.e2e.world import World

RECIPE = named_block("review workflow", DOCS / "how-to/review.md")
#: The guide's workflow without the inputs that are for another agent and another project.
WORKFLOW = re.sub(r"(?m)^ *(?:agent: builtin/review|checks: .*|setup: .*)\n", "", RECIPE)
#: What act needs beside the workflow: a checkout of the default branch, and the checkout itself in the place of a copy.
OPTIONS = ("--bind", *stand_ins(RECIPE, "checkout"))
_TEMPLATE = Path(__file__).parents[2] / "stepflow" / "definition" / "templates" / "review"


def hire(folder: Path, checks: Mapping[str, str]) -> None:
    """The reviewer, with a shell and with checks by name: commands that must end well."""
    shutil.copytree(_TEMPLATE, folder)
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("agent-name", "review"))
    registry = json.loads((folder / "steps_registry.json").read_text())
    for step in registry["steps"].values():
        del step["permissionMode"]
    conditions = registry["validationSteps"]["closure.default"]["validationConditions"]
    for name, command in checks.items():
        check = {"type": "command", "command": command, "successWhen": "exitCode:0", "failurePattern": name}
        registry["validators"][name] = check
        registry["failurePatterns"][name] = {"description": f"The check {name} failed.", "edition": "failed"}
        conditions.append({"validator": name})
    (folder / "steps_registry.json").write_text(json.dumps(registry))


def open_pull_request(world: World, changes: Change, *, body: str) -> int:
    """eve opens one from her fork, and somebody puts the label on it. Gives its number; the next job begins with a
    checkout of the default branch."""
    world.github.state.accounts["eve"] = 1013
    sides = SimpleNamespace(served=world.server, github=world.github)
    number = propose(sides, changes, fork="eve/widgets", body=body)
    world.github.state.issues[number]["labels"] = ["agent:review"]
    world.check_out()
    return number


def label_event(world: World, number: int) -> dict[str, Any]:
    """bob has put the label on eve's pull request."""
    head = git(world.server, "rev-parse", "topic")
    whole = labeled("agent:review", secret=EVENT_CANARY)
    pull = {
        "number": number,
        "user": {"login": "eve", "type": "User"},
        "author_association": "NONE",
        "head": {"ref": "topic", "sha": head, "repo": {"full_name": "eve/widgets"}},
        "base": {"ref": "main", "sha": git(world.server, "rev-parse", "main"), "repo": {"full_name": "acme/widgets"}},
    }
    return {**{key: whole[key] for key in whole if key != "issue"}, "pull_request": pull}


def says(review: Mapping[str, Any]) -> list[Answer]:
    """The reviewer's three steps, which end in this review."""
    return [
        answer("initial.default", "next", question="Is it sound?", places="everywhere"),
        answer("continuation.default", "handoff", findings="What the review says."),
        answer("closure.default", "closing", missing="nothing", comment="", review=review),
    ]
