"""What is in flight when the deadline passes does not carry the run on (flow.md §10)."""

from __future__ import annotations

import pytest

from stepflow.domain.conversation import ToolResult, ToolUse
from stepflow.run.clock import GRACE, Deadline, TimelyTools
from tests.fakes import RecordingTools, StillClock


def until(seconds: float | None) -> Deadline:
    clock = StillClock()
    return Deadline(clock=clock, at=None if seconds is None else clock.now() + seconds)


class SeenTools(RecordingTools):
    """Remembers the inputs too."""

    def run_tool(self, use: ToolUse) -> ToolResult:
        self.seen = use.input
        return super().run_tool(use)


def timeout_of_call(given: dict, seconds: float | None) -> object:
    """The timeout in milliseconds with which a call of bash reaches the tools."""
    tools = SeenTools()
    TimelyTools(tools=tools, deadline=until(seconds), default_timeout=120.0).run_tool(
        ToolUse(id="1", name="bash", input=given)
    )
    return tools.seen.get("timeout_ms")


@pytest.mark.parametrize(
    ("given", "seconds", "timeout"),
    [
        ({"command": "x"}, None, None),
        ({"command": "x"}, 1000, None),
        ({"command": "x"}, 60, (60 + GRACE) * 1000),
        ({"command": "x"}, -5, GRACE * 1000),
        ({"command": "x", "timeout_ms": 600_000}, 100, (100 + GRACE) * 1000),
        ({"command": "x", "timeout_ms": 5000}, 60, 5000),
        ({"command": "x", "timeout_ms": "soon"}, 60, "soon"),
    ],
)
def test_a_call_of_bash_has_the_time_that_is_left(given: dict, seconds: float | None, timeout: object) -> None:
    assert timeout_of_call(given, seconds) == timeout
