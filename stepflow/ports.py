"""What the engine needs from outside, as protocols."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stepflow.domain.agent.definition import Step
from stepflow.domain.checkout import CommandRequest, CommandResult, TreeState
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, ToolCall, ToolSpec, ToolUse
from stepflow.domain.event import Event
from stepflow.domain.flow import Violation
from stepflow.domain.json import JsonObject


class Model(Protocol):
    """Answers one turn of a conversation. Keeps no state of its own between turns that a new object could not have."""

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """One call, one try: no retries and no waiting; a failure is a value."""
        ...


class PromptCache(Protocol):
    """The service's cache of earlier requests, which expires some minutes after its last use."""

    def while_waiting(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `look` every few seconds inside the block, while a tool or a command runs."""
        ...

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Use what is cached of a request without asking for an answer. None where that does not pay, because so many
        renewals cost more than writing it anew, or nothing is known of it."""
        ...


class Tools(Protocol):
    """Runs the tools that a model asks for, where no secret is in reach."""

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start what these tools of a step need."""
        ...

    def run_tool(self, use: ToolUse) -> ToolCall:
        """Run one tool call. Bad input, a failed command and a timeout are results with `is_error`."""
        ...

    def end_step(self) -> None:
        """Kill everything that the step's tools have started or left running."""
        ...


class Commands(Protocol):
    """Runs the commands of steps, where the tools run."""

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process to its end or its timeout, and kill its whole process group then."""
        ...


class CheckTree(Commands, Protocol):
    """The files of a closing, apart from those that tools work on. What a command changes does not stay, but for files
    that git ignores."""

    @property
    def closing(self) -> TreeState:
        """The workspace at the closing."""
        ...


#: Opens the files of the workspace, as they are now, to checks. No tool may be used inside the block.
Checks = Callable[[], AbstractContextManager[CheckTree]]


class BoundaryRules(Protocol):
    """Judges a closing by the rules of the boundary, which checks them again before it writes."""

    def judge_request(self, step: Step, answer: JsonObject | None) -> tuple[Violation, ...]:
        """Return what the commits and the answer of a closing break; asked before its validators run."""
        ...

    def judge_checked(self, closing: TreeState) -> tuple[Violation, ...]:
        """Return what keeps validators that pass from speaking for the commits; asked after `judge_request` of the same
        closing."""
        ...


class SchemaFailure(Exception):
    """The answer schema of a step could not be resolved; the message says why."""


class Schemas(Protocol):
    """Resolves answer schemas again at the start of each iteration."""

    def resolve(self, step: Step) -> JsonObject | None:
        """Return the step's answer schema, None when it has none; raises `SchemaFailure`."""
        ...


class Journal(Protocol):
    """Remembers what happens."""

    def append(self, event: Event) -> object:
        """Write the event down, durably, before anything else happens."""
        ...


class Clock(Protocol):
    """The current time, as a port that tests can stop."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a scripted run's clock returns at once."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Everything the flow may use."""

    model: Model
    tools: Tools
    commands: Commands
    checks: Checks
    schemas: Schemas
    journal: Journal
    clock: Clock
    boundary_rules: BoundaryRules | None = None
    cache: PromptCache | None = None
