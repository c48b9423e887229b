"""A real MCP server from npm, under act: locked by the image's own command, and called by the step that names it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.languages import NODE
from tests.e2e.repository import git
from tests.e2e.script import ALL_SECRETS
from tests.e2e.test_e2e_languages import (
    AUTHORITY,
    EVENT,
    assert_the_repair_was_refused_then_accepted,
    lock_file,
    passed_on,
)
from tests.servers.messages_api import calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.weekly, pytest.mark.timeout(900)]
SERVER = "@modelcontextprotocol/server-everything@2026.8.31"
BINARY = "mcp-server-everything"
NAMED = ["Bash", "mcp__everything__echo", "mcp__everything__get-env"]


def give_server(world: World, image: str) -> None:
    """The agent's first step has tools of the server, which the image's own command locks."""
    folder = world.checkout / ".agent/fixer"
    for name, change in (
        ("agent.json", lambda agent: agent.update(mcpServers={"everything": {"command": "npx", "args": [BINARY]}})),
        ("steps_registry.json", lambda registry: registry["steps"]["initial.default"].update(tools=NAMED)),
    ):
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        change(document)
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    trust = [word for name, value in AUTHORITY.items() for word in ("--env", f"{name}={value}")]
    command = ["docker", "run", "--rm", "--network=host", *trust, f"--volume={world.checkout}:/made"]
    inputs = [word for name, value in {"setup": "npm ci", **passed_on()}.items() for word in (f"--{name}", value)]
    command += ["--entrypoint=stepflow", image, "mcp", "lock", "fixer", "--repo", "/made", *inputs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fixer: everything (" in done.stdout
    git(world.checkout, "add", "--all")
    git(world.checkout, "commit", "--quiet", "--message", "Lock the server")
    git(world.checkout, "push", "--quiet", str(world.server), "HEAD:main")


def answered(body: dict[str, Any]) -> str:
    """The result of the last call, as the model sees it."""
    return str(body["messages"][-1]["content"][0]["content"])


def test_a_server_from_npm_serves_the_step_that_names_it_and_dies_with_it(
    new_world: Callable[[], World], image: str, tmp_path: Path
) -> None:
    world = new_world()
    NODE.write_into(
        world, inputs={**NODE.inputs(), **passed_on()}, extra=lock_file(image, tmp_path, "typescript", SERVER)
    )
    give_server(world, image)
    look, understood, *rest = NODE.turns()
    echo = calls(("mcp__everything__echo", {"message": "from npm"}))
    alive = calls(("bash", {"command": "ps -e -o args= | grep -c '[s]erver-everything'"}))
    turns = [look, echo, calls(("mcp__everything__get-env", {})), understood, echo, alive, *rest]
    job = world.run(turns, EVENT, environment=AUTHORITY)
    assert_the_repair_was_refused_then_accepted(world, job, NODE)
    bodies = world.model_bodies()
    first, second = ({tool["name"] for tool in bodies[number]["tools"]} for number in (0, 4))
    assert first == {"bash", *NAMED[1:]}
    assert not any(name.startswith("mcp__") for name in second)
    assert answered(bodies[2]) == "Echo: from npm"
    assert "HOME" in json.loads(answered(bodies[3]))
    assert [secret for secret in ALL_SECRETS if secret in answered(bodies[3])] == []
    assert "may not use a tool" in answered(bodies[5])
    assert answered(bodies[6]).startswith("0\n")
