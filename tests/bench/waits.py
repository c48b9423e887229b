"""What a long wait in a long conversation is billed: the service forgets what it has cached after five minutes.

`python -m tests.bench.waits` prints a Markdown table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from bench.long import KEY
from stepflow.domain.agent.definition import SourceText
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, ToolCall, ToolUse
from stepflow.domain.event import CacheRenewed
from stepflow.domain.words import Outcome
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.models import price_of
from stepflow.ports import Ports
from tests.build import issue_agent, make_validator
from tests.engine.played import play
from tests.fakes import RecordingTools, StillClock, TableCommands, WaitingCache
from tests.servers.messages_api import MessagesApi, calls, says

MINUTES = 6 * 60
READS = 40


@dataclass(kw_only=True)
class Wait(WaitingCache):
    """The port `PromptCache` before a real server; without a `model` nothing is renewed."""

    model: AnthropicModel | None

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        return self.model.renew(request, number) if self.model else None


@dataclass
class Tools(RecordingTools):
    wait: Wait | None = None

    def run_tool(self, use: ToolUse) -> ToolCall:
        if use.input.get("command") == "make test" and self.wait:
            self.wait.wait(MINUTES)
        return ToolCall(**vars(use), output=f"{use.tool_use_id} " * 250)


@dataclass
class Commands(TableCommands):
    wait: Wait | None = None

    def run_command(self, request: CommandRequest) -> CommandResult:
        if self.wait:
            self.wait.wait(MINUTES)
        return super().run_command(request)


def answer(action: str):
    return says(json.dumps({"next_action": {"action": action, "reason": "so it is"}}))


def reads(number: int, *, slow: bool = False):
    """A turn that reads, or runs the tests."""
    return calls(("bash", {"command": "make test" if slow else f"cat {number}"}), first_id=number)


def run(*, slow_tool: bool, renews: bool, expires: bool) -> Ports:
    """A run with long conversations whose tests take six minutes: by a tool, or as a validator that is red at first."""
    clock = StillClock()
    work = [*map(reads, range(READS)), reads(READS, slow=slow_tool), *map(reads, range(READS + 1, READS + 5))]
    replies = [
        answer("next"),
        *work,
        answer("handoff"),
        answer("closing"),
        *work[:4],
        answer("handoff"),
        answer("closing"),
    ]
    now = (lambda: clock.time) if expires else (lambda: 0.0)
    agent = issue_agent(make_validator("tests", "make test"))
    agent = replace(agent, system_prompt=SourceText(text="Look after the repository. " * 800, file="system.md"))
    red, green = CommandResult(exit_code=1, stdout="a.py:3: bad"), CommandResult(exit_code=0)
    with MessagesApi(replies, api_key=KEY, now=now) as api, AnthropicModel(KEY, api.url) as model:
        wait = Wait(clock=clock, model=model if renews else None)
        result, ports = play(
            agent,
            [],
            model=model,
            clock=clock,
            cache=wait,
            tools=Tools(wait=wait if slow_tool else None),
            commands=Commands({"make test": [red, green]}, wait=None if slow_tool else wait),
        )
    assert result.outcome is Outcome.COMPLETED, result.reason
    return ports


def billed(ports: Ports) -> float:
    """What all input costs, in dollars."""
    paid = [*ports.journal.of(ModelTurn), *ports.journal.of(CacheRenewed)]
    return sum(price_of("opus", replace(event.usage, output_tokens=0)) for event in paid)


def main() -> None:
    """Print what a wait of six minutes is billed, in thousandths of a dollar of input."""
    print(
        "| six minutes, in which | nothing expires | the cache is renewed | it expires |\n| --- | ---: | ---: | ---: |"
    )
    for slow_tool, name in ((True, "a tool runs"), (False, "a validator runs, red at first")):
        ways = ((False, False), (True, True), (False, True))
        figures = (billed(run(slow_tool=slow_tool, renews=renews, expires=expires)) for renews, expires in ways)
        print(f"| {name} | {' | '.join(f'{figure * 1000:.1f}' for figure in figures)} |")


if __name__ == "__main__":
    main()
