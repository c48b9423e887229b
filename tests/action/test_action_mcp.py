"""MCP servers in a run: for the step that names them, and with no secret in reach of anything else."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import tests.servers
from stepflow.definition.mcp import lock_text, pinned_tools
from stepflow.domain.agent.agent_settings import McpServer
from stepflow.mcp.servers import OpenServers
from stepflow.mcp.transports import RemoteAccess
from tests.checkout import Invocation, git
from tests.sandbox.toolbox_world import gone_within
from tests.servers.mcp_remote import RemoteMcp
from tests.servers.messages_api import calls
from tests.world import BRANCH, World, bash, label_event, solve

pytestmark = pytest.mark.whole

SECRET = "mcp-token-0123456789"
NAMED = ["Bash", "mcp__docs__search", "mcp__docs__process", "mcp__docs__note"]
LOCAL = {"command": sys.executable, "args": ["mcp_docs.py"], "env": {"DOCS_PATH": "docs"}}


REASON = "Whoever reads this repository may read the docs."


def with_server(world: World, entry: dict[str, Any], *, changed: str = "", accepts: str = REASON) -> None:
    """Give the agent's first step the tools of a server, locked as it lists them; or with a description `changed`."""
    shutil.copy(Path(tests.servers.__path__[0]) / "mcp_docs.py", world.checkout)
    with RemoteMcp(SECRET) as same, OpenServers(None, RemoteAccess(secrets={"TOKEN": SECRET})) as servers:
        asked = McpServer(name="docs", url=same.url, headers={"Authorization": "Bearer ${TOKEN}"})
        tools = servers.list_tools(asked)
    locked = lock_text([McpServer(name="docs", tools=tools)])
    if changed:
        (first, *others) = pinned_tools(locked)["docs"]
        locked = lock_text([McpServer(name="docs", tools=(first.model_copy(update={"description": changed}), *others))])
    (world.checkout / ".agent/fixer/mcp.lock.json").write_text(locked)
    git("add", ".", cwd=world.checkout)
    world.edit("agent.json", lambda agent: agent.update(mcpServers={"docs": entry}))
    world.edit("steps_registry.json", lambda registry: registry["steps"]["initial.issue"].update(tools=NAMED))
    if accepts and entry.get("headers"):
        world.edit("steps_registry.json", lambda registry: accept(registry, accepts))


def accept(registry: dict[str, Any], reason: str) -> None:
    for step in registry["steps"].values():
        step["acceptsRisk"] = reason


def offered(body: dict[str, Any]) -> set[str]:
    """The tools of a request to the model."""
    return {tool["name"] for tool in body["tools"]}


def outputs(world: World, done: Invocation, name: str) -> list[str]:
    """What the calls of a tool gave."""
    return [each["output"] for each in world.events(done) if each["event"] == "tool_call" and each["name"] == name]


def asks(tool: str, **inputs: object) -> Any:
    return calls((f"mcp__docs__{tool}", inputs))


def in_repository(*, private: bool) -> dict[str, Any]:
    event = label_event()
    return {**event, "repository": {**event.get("repository", {}), "private": private}}


LOGIN = {"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}


def test_an_agent_that_breaks_the_rule_of_two_is_refused_before_the_model_is_asked(world: World) -> None:
    with_server(world, LOGIN, accepts="")
    done = world.run(solve(), mcp_secrets=f"DOCS_TOKEN: {SECRET}")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition"), done.log
    assert "SF357 /steps/initial.issue" in done.log
    assert world.model.bodies == []


@pytest.mark.parametrize("private", [False, True])
def test_what_a_run_knows_of_its_repository_decides(world: World, *, private: bool) -> None:
    """A server in the sandbox brings in others' text and takes the model's out; only in a private repository is there
    anything private."""
    with_server(world, LOCAL)
    done = world.run(solve(), in_repository(private=private))
    assert done.outputs["outcome"] == ("invalid_definition" if private else "completed"), done.log
    assert ("the private repository: its files" in done.log) is private
    validated = world.run([], in_repository(private=private), mode="validate")
    assert validated.outputs["outcome"] == ("invalid_definition" if private else "completed"), validated.log
    narrowed = world.run(solve(), in_repository(private=private), network="none")
    assert narrowed.outputs["outcome"] == "completed", narrowed.log


def test_a_preflight_names_what_meets_and_who_accepts_it(world: World) -> None:
    with_server(world, LOCAL)
    unknown = world.run([], mode="preflight").log
    assert re.search(
        r"warning +rule of two: initial.issue +in a private repository, all three meet: text that strangers can write "
        r'\(results of the MCP server "docs"\); something private .*; a run there is refused',
        unknown,
    ), unknown
    refused = world.run([], in_repository(private=True), mode="preflight")
    assert (refused.exit_code, refused.outputs["outcome"]) == (2, "invalid_definition")
    assert "SF357" in refused.log
    world.edit("steps_registry.json", lambda registry: accept(registry, REASON))
    accepted = world.run([], in_repository(private=True), mode="preflight").log
    assert re.search(rf"warning +rule of two: initial.issue +all three meet: .*; accepted: {REASON}", accepted), (
        accepted
    )
    safe = world.run([], in_repository(private=False), mode="preflight").log
    assert re.search(r"ok +rule of two +in no step do strangers' text, something private and a way out meet", safe), (
        safe
    )


def test_a_step_that_names_a_server_calls_it_and_another_step_neither_sees_nor_reaches_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_THE_RUNNER", "visible")
    with_server(world, LOCAL)
    understood, *rest = solve()
    script = [asks("search", query="loops"), asks("process"), understood, asks("search", query="more"), *rest]
    done = world.run(script)
    assert done.outputs["outcome"] == "completed", done.log
    first, second = world.model.bodies[0], world.model.bodies[3]
    assert offered(first) == {"bash", *NAMED[1:]}
    assert not any(name.startswith("mcp__") for name in offered(second))
    found, denied = outputs(world, done, "mcp__docs__search")
    assert found == "found loops"
    assert 'Step "continuation.issue" may not use a tool "mcp__docs__search"' in denied
    (process,) = map(json.loads, outputs(world, done, "mcp__docs__process"))
    assert process["environment"]["DOCS_PATH"] == "docs"
    assert "CANARY_OF_THE_RUNNER" not in process["environment"]
    assert gone_within(0, process["pid"])


def test_a_server_of_a_step_is_dead_before_the_next_one_and_what_it_wrote_is_kept(world: World) -> None:
    with_server(world, LOCAL)
    understood, change, *rest = solve()
    count = bash("pgrep -f mcp_docs.py -P $PPID | wc -l; cat note.txt")
    done = world.run(
        [asks("note", name="note.txt", text="noted"), understood, count, bash("rm note.txt"), change, *rest]
    )
    assert done.outputs["outcome"] == "completed", done.log
    assert outputs(world, done, "bash")[0] == "0\nnoted"


def test_a_description_that_changed_ends_the_run_before_the_model_is_asked(world: World) -> None:
    with_server(world, LOCAL, changed="Ends the world.")
    done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition")
    assert 'The MCP server "docs" lists other tools than its lock pins: changed: die.' in done.outputs["reason"]
    assert "stepflow mcp lock" in done.outputs["reason"]
    assert world.model.bodies == []
    assert BRANCH not in world.branches()


def test_a_server_that_does_not_start_ends_the_run_with_its_last_words(world: World) -> None:
    with_server(world, {"command": "sh", "args": ["-c", "echo no such project >&2; exit 3"]})
    done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert 'The MCP server "docs" has ended. Its last words: no such project.' in done.outputs["reason"]
    assert world.model.bodies == []


def test_the_secret_of_a_remote_server_is_nowhere_but_in_its_header(world: World) -> None:
    understood, *rest = solve()
    with RemoteMcp(SECRET) as remote:
        with_server(world, {"url": remote.url, "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}})
        script = [asks("search", query=SECRET), bash("env; cat /proc/$PPID/environ"), understood, *rest]
        done = world.run(script, mcp_secrets=f"DOCS_TOKEN: {SECRET}")
    assert done.outputs["outcome"] == "completed", done.log
    assert outputs(world, done, "mcp__docs__search") == ["found ***"]
    shown = [block for message in world.model.bodies[1]["messages"][2:] for block in message["content"]]
    assert SECRET not in json.dumps(shown)
    assert SECRET not in done.log.replace(f"::add-mask::{SECRET}", "")
    assert [path for path in done.folder.rglob("*") if holds(path, SECRET)] == []
    assert [text for text in (*world.comments(), json.dumps(world.pulls())) if SECRET in text] == []


def holds(path: Path, secret: str) -> bool:
    return path.is_file() and secret.encode() in path.read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", 'The MCP server "docs" needs DOCS_TOKEN: the input mcp-secrets has no such value.'),
        ("OTHER: value-of-another", 'The MCP server "docs" needs DOCS_TOKEN'),
        ("DOCS_TOKEN: 12345678", "input mcp-secrets: DOCS_TOKEN: "),
        ('DOCS_TOKEN: "secret-a\\nb"', "input mcp-secrets: DOCS_TOKEN is empty, or contains what no header can"),
        ("- secret-word", "input mcp-secrets: write a YAML map"),
    ],
)
def test_a_secret_that_is_missing_or_wrong_is_said_before_anything_starts(world: World, given: str, said: str) -> None:
    with_server(world, {"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}})
    done = world.run(solve(), mcp_secrets=given)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert said in done.outputs["reason"]
    assert not any(
        word in done.outputs["reason"] for word in ("12345678", "secret-a", "secret-word", "value-of-another")
    )
    assert world.model.bodies == []


def test_a_run_that_stops_in_a_step_with_a_server_goes_on_with_a_new_one(world: World) -> None:
    with_server(world, LOCAL)
    folder = str(world.runner.folder / "mine")
    first = world.run([asks("search", query="loops"), bash("true")], run_folder=folder, limits={"tokens": 1})
    assert first.outputs["outcome"] == "budget_exhausted", first.log
    done = world.run([asks("search", query="more"), *solve()], run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert outputs(world, done, "mcp__docs__search") == ["found loops", "found more"]
