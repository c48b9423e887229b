"""Fakes that implement the engine's ports, for tests of the engine rooms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from stepflow.domain.agent.definition import Step
from stepflow.domain.checkout import CommandRequest, CommandResult, TreeState
from stepflow.domain.conversation import (
    ModelFault,
    ModelRequest,
    ModelTurn,
    StopReason,
    ToolCall,
    ToolSpec,
    ToolUse,
    Usage,
    text_block,
)
from stepflow.domain.event import Event
from stepflow.domain.flow import Violation
from stepflow.domain.json import JsonObject
from stepflow.ports import Commands, Ports, SchemaFailure

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
CLOSING = TreeState(commit="c" * 40, tree=EMPTY_TREE)
TURN_USAGE = Usage(input_tokens=100, output_tokens=10)


def says(text: str, stop: StopReason = StopReason.END_TURN, cost: float | None = 0.01) -> ModelTurn:
    """A turn that ends with this text."""
    return ModelTurn(content=(text_block(text),), stop_reason=stop, usage=TURN_USAGE, cost_usd=cost, model="fake")


def answers(action: str, **more: object) -> ModelTurn:
    """A turn that answers with an intent."""
    return says(json.dumps({"next_action": {"action": action, "reason": f"{action} it is"}, **more}))


def calls(name: str, stop: StopReason = StopReason.TOOL_USE, **arguments: object) -> ModelTurn:
    """A turn that calls one tool."""
    use: JsonObject = {"type": "tool_use", "id": f"use-{name}", "name": name, "input": arguments}
    return ModelTurn(content=(use,), stop_reason=stop, usage=TURN_USAGE, cost_usd=0.01, model="fake")


Reply = ModelTurn | ModelFault


@dataclass
class PlayedModel:
    """Answers with the next of its replies and keeps what it was asked."""

    replies: list[Reply]
    requests: list[ModelRequest] = field(default_factory=list)

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        self.requests.append(request)
        return self.replies.pop(0)


@dataclass
class RecordingTools:
    """Answers every tool call with one text and keeps what happened, in order."""

    happened: list[str] = field(default_factory=list)
    begun: list[tuple[ToolSpec, ...]] = field(default_factory=list)

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        self.begun.append(tools)

    def run_tool(self, use: ToolUse) -> ToolCall:
        self.happened.append(f"tool {use.name}")
        return ToolCall(**vars(use), output="fine", seconds=0.5)

    def end_step(self) -> None:
        self.happened.append("step ended")


@dataclass
class TableCommands:
    """Answers the commands of a table; a list is answered in turn, the last of it forever."""

    table: dict[str, list[CommandResult]] = field(default_factory=dict)
    ran: list[CommandRequest] = field(default_factory=list)

    def run_command(self, request: CommandRequest) -> CommandResult:
        self.ran.append(request)
        results = self.table.get(request.argv[-1], [CommandResult(exit_code=0)])
        return results.pop(0) if len(results) > 1 else results[0]


@dataclass
class TableChecks:
    """Checks whose commands a table answers, on the files of one closing."""

    commands: Commands
    closing: TreeState = CLOSING

    @contextmanager
    def opened(self) -> Iterator[TableChecks]:
        yield self

    def run_command(self, request: CommandRequest) -> CommandResult:
        return self.commands.run_command(request)


#: Seconds.
LOOK_EVERY = 5


@dataclass(kw_only=True)
class WaitingCache:
    """What the port `PromptCache` does while somebody waits, on a clock that only waiting moves."""

    clock: StillClock = field(default_factory=lambda: StillClock())
    look: Callable[[], None] | None = None

    @contextmanager
    def while_waiting(self, look: Callable[[], None]) -> Iterator[None]:
        self.look = look
        yield
        self.look = None

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_EVERY)):
            self.clock.time += LOOK_EVERY
            if self.look:
                self.look()


@dataclass
class ListedRules:
    """Finds these violations at one closing after the other, and none when they are used up: before the validators, and
    once they are green."""

    before: list[tuple[Violation, ...]] = field(default_factory=list)
    after: list[tuple[Violation, ...]] = field(default_factory=list)

    def judge_request(self, step: Step, answer: JsonObject | None) -> tuple[Violation, ...]:
        return self.before.pop(0) if self.before else ()

    def judge_checked(self, closing: TreeState) -> tuple[Violation, ...]:
        return self.after.pop(0) if self.after else ()


@dataclass
class LoadedSchemas:
    """Gives the step's own schema; fails as often as it is told to."""

    failures: list[bool] = field(default_factory=list)

    def resolve(self, step: Step) -> JsonObject | None:
        if self.failures and self.failures.pop(0):
            raise SchemaFailure("the pointer leads nowhere")
        return step.schema


@dataclass
class ListJournal:
    """Keeps the events in memory."""

    events: list[Event] = field(default_factory=list)

    def append(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def notes(self) -> list[str]:
        """The messages of all log entries."""
        return [event.message for event in self.events if hasattr(event, "message")]


@dataclass
class StillClock:
    """Time that moves only when somebody sleeps, or by `tick` at each look."""

    time: float = 1000.0
    tick: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        self.time += self.tick
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def fake_ports(replies: Iterable[Reply], **parts: object) -> Ports:
    """A set of fakes around a model that plays these replies."""
    usual: dict[str, object] = {
        "model": PlayedModel(list(replies)),
        "tools": RecordingTools(),
        "commands": TableCommands(),
        "schemas": LoadedSchemas(),
        "journal": ListJournal(),
        "clock": StillClock(),
    }
    parts = {**usual, **parts}
    return Ports(**{"checks": TableChecks(parts["commands"]).opened, **parts})  # type: ignore[arg-type]
