"""MCP tools as a run opens them: until its deadline, and with their changes kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import cast

import pytest

from stepflow.domain.agent.agent_settings import mcp_name
from stepflow.domain.conversation import ToolCall, ToolSpec, ToolUse
from stepflow.domain.event import Event, SnapshotTaken, ToolStarted
from stepflow.ports import Ports
from stepflow.run.clock import Cancellation, Deadline
from stepflow.run.request import RunRequest
from stepflow.run.snapshots import Snapshotter, SnapshottingPorts
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import open_tools
from tests.mcp.steps import speaks

#: It answers each call after three seconds.
SLOW = """
def late(message):
    time.sleep(3)
    send(id=message["id"], result={"content": [{"type": "text", "text": "late"}]})
serve(answer=late)
"""


@dataclass
class StoppedClock:
    """A clock that shows the same time for ever."""

    time: float

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.mark.whole
@pytest.mark.parametrize(
    ("seconds_left", "passing", "bash_timeout"),
    [(0.0, 0.0, 120.0), (1000.0, 1000.0, 120.0), (1000.0, 0.0, 1.0)],
)
def test_a_call_outlasts_neither_the_deadline_of_its_run_nor_the_limit_of_tools(
    toolbox, monkeypatch, seconds_left: float, passing: float, bash_timeout: float
) -> None:
    """It has what is left with the grace behind it, a second here, and the server answers after three."""
    monkeypatch.setattr("stepflow.run.workspace.GRACE", 1.0)
    monkeypatch.setattr(toolbox, "options", replace(toolbox.options, bash_timeout=bash_timeout))
    server = speaks(SLOW)
    deadline = Deadline(clock=StoppedClock(1000.0), at=1000.0 + seconds_left)
    folder = toolbox.checkout
    trigger = Trigger(agent="demo", actor="", actor_is_bot=False)
    request = RunRequest(run_id="r-1", inputs=read_inputs({}), trigger=trigger, root=folder, folder=folder)
    with open_tools(toolbox, (server,), Cancellation(), deadline=deadline, request=request) as tools:
        tools.begin_step(tuple(map(server.spec_of, server.tools)))
        deadline.clock.sleep(passing)
        result = tools.run_tool(ToolUse(tool_use_id="t", name=mcp_name("docs", "search"), input={}))
    assert result.is_error
    assert "did not answer" in result.output


@dataclass
class Snapshots:
    """A tree that changes whenever somebody looks."""

    numbers: count[int] = field(default_factory=lambda: count(1))

    left_out: tuple[str, ...] = ()

    def take(self, **_: str) -> SnapshotTaken:
        return SnapshotTaken(name=str(next(self.numbers)))


@dataclass
class Journal:
    events: list[Event] = field(default_factory=list)

    def append(self, event: Event) -> None:
        self.events.append(event)


class Answering:
    """Tools that answer every call."""

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        pass

    def run_tool(self, use: ToolUse) -> ToolCall:
        return ToolCall(**vars(use), output="done")

    def end_step(self) -> None:
        pass


PORTS = cast("Ports", SimpleNamespace(tools=Answering()))
SEARCH = ToolSpec(name=mcp_name("docs", "search"), description="", input_schema={"type": "object"})
READ = ToolSpec(name="read", description="", input_schema={"type": "object"})


def kept(journal: Journal) -> list[str]:
    return [type(event).__name__ for event in journal.events if isinstance(event, ToolStarted | SnapshotTaken)]


def test_what_a_servers_tool_changed_is_kept_before_it_is_answered() -> None:
    """A run that is stopped then goes on with it; what only reads is kept nowhere."""
    journal = Journal()
    tools = SnapshottingPorts(ports=PORTS, snapshotter=Snapshotter(Snapshots(), journal))
    tools.begin_step((SEARCH, READ))
    tools.run_tool(ToolUse(tool_use_id="1", name="read", input={}))
    assert kept(journal) == ["ToolStarted"]
    for number in ("2", "3"):
        tools.run_tool(ToolUse(tool_use_id=number, name=SEARCH.name, input={}))
    assert kept(journal) == ["ToolStarted", *["ToolStarted", "SnapshotTaken"] * 2]


def test_what_a_server_changed_without_a_call_is_kept_at_the_end_of_its_step() -> None:
    """In the third step as in the first; a step without servers changes nothing."""
    journal = Journal()
    snapshotter = Snapshotter(Snapshots(), journal)
    snapshotter.keep()
    tools = SnapshottingPorts(ports=PORTS, snapshotter=snapshotter)
    for offered in ((SEARCH,), (READ,), (SEARCH,)):
        before = len(kept(journal))
        tools.begin_step(offered)
        tools.end_step()
        assert len(kept(journal)) - before == (offered == (SEARCH,))
