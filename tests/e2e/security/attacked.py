"""A repository under attack: validators that a test chooses, and a model that does what the test says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import git, labeled
from tests.e2e.script import CLOSING, COMMIT, EVENT_CANARY, REPAIR, answer
from tests.servers.messages_api import Answer, calls

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.hosted_runner import Ended
    from tests.e2e.world import World


class Attacked:
    """A repository whose validators a test chooses, and runs of a model that does what the test says."""

    def __init__(self, world: World, exploits: Path) -> None:
        self.world, self._exploits = world, exploits

    def checks(self, *validators: dict[str, Any], action: str = "abort") -> None:
        """Let the fixer be checked by these, in this order."""
        path = self.world.checkout / ".agent/fixer/steps_registry.json"
        registry = json.loads(path.read_text())
        names = [f"check-{number}" for number in range(len(validators))]
        registry["validators"] = {
            name: {"type": "command", "successWhen": "exitCode:0", "failurePattern": "git-dirty", **validator}
            for name, validator in zip(names, validators, strict=True)
        }
        step = registry["validationSteps"]["closure.issue"]
        step["validationConditions"] = [{"validator": name} for name in names]
        step["onFailure"] = {"action": action, "maxAttempts": 3}
        path.write_text(json.dumps(registry))
        self.commit("Check otherwise")

    def commit(self, message: str) -> None:
        """Let the repository have what is in the checkout."""
        git(self.world.checkout, "add", "--all")
        git(self.world.checkout, "commit", "--quiet", "--message", message)
        git(self.world.checkout, "push", "--quiet", str(self.world.server), "main")

    def run(
        self,
        *commands: str,
        owner: tuple[int, int] = RUNNER,
        closing: dict[str, Any] | None = None,
        planted: dict[str, str] | None = None,
        **inputs: str,
    ) -> Ended:
        """The repair, then these commands, then the closing, on which the model insists."""
        replies: list[Answer] = [
            answer("initial.issue", "next", understanding="the number is repeated"),
            calls(("edit", REPAIR), ("bash", {"command": COMMIT}), *(("bash", {"command": one}) for one in commands)),
            *[
                answer("continuation.issue", "handoff", summary="repaired"),
                answer("closure.issue", "closing", **(closing or CLOSING)),
            ]
            * 3,
        ]
        event = labeled("agent:fixer", secret=EVENT_CANARY)
        runner = self.world.hosted_runner(replies, event, owner=owner, planted=planted)
        volumes = {self._exploits: "/opt/exploits:ro"}
        given = {**self.world.inputs(), **{name.replace("_", "-"): value for name, value in inputs.items()}}
        with runner.started(given, event_name="issues", volumes=volumes) as process:
            return runner.finish(process, timeout=200)

    def said(self) -> str:
        """What the tools said in this run."""
        return "\n".join(self.world.tool_results())

    def pushed(self) -> list[str]:
        """The branches that a run has made."""
        return [branch for branch in self.world.branches() if branch != "main"]
