"""What a run does at this moment, for whoever watches it.

Takes: entries in order, then a time. Gives: what is going on and for how long, and the model's last words.
May touch: nothing. Keeps the last event of each kind, so it does not grow with the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    IterationStarted,
    ModelTurned,
    ModelWaited,
    StepAnswered,
    ToolCalled,
    ToolStarted,
    UserSpoke,
)
from stepflow.domain.event import (
    CompletionJudged,
    FlowEnded,
    RunFinished,
    RunResumed,
    RunStarted,
    ValidatorRan,
)
from stepflow.domain.words import Intent
from stepflow.report.plain import cut, first_line, one_line, seconds_text
from stepflow.report.story_steps import call_text, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.event import Entry, Event

BEFORE = "prepares the run"
MODEL = "the model answers"
CHECKS = "validators run"
BOUNDARY = "plans what to write to GitHub"
OVER = "ends the run"
STEP_SHOWN = 32


class Now:
    """The work under way. Times are the journal's, in seconds since the epoch."""

    def __init__(self) -> None:
        #: The model's last words, once something else was told after them.
        self.words = ""
        self._said = ""
        self._step, self._doing = "", BEFORE
        self._since: float | None = None
        self._until: float | None = None
        self._calls: dict[str, str] = {}

    def follow(self, entry: Entry) -> None:
        """Take one entry."""
        event = entry.event
        self._note(event)
        doing = self._begun(event)
        if doing:
            self._doing, self._since = doing, entry.time
            self._until = entry.time + event.seconds if isinstance(event, ModelWaited) else None

    def doing(self, now: float) -> str:
        """The step, for how long already, and what it does: `continuation.issue · 12 s · bash make test`. The end may
        be cut off, so the longest part is the last."""
        parts = [cut(self._step, STEP_SHOWN)]
        if self._until is not None:
            parts.append(f"{seconds_text(max(0.0, self._until - now))} left")
        elif self._since is not None and now - self._since >= 1:
            parts.append(whole_seconds(now - self._since))
        return " · ".join(part for part in (*parts, self._doing) if part)

    def _note(self, event: Event) -> None:
        match event:
            case IterationStarted() | RunResumed():
                self._step, self._calls = one_line(event.step_id), {}
            case ModelTurned():
                self._said = first_line(spoken(event)) or self._said
                self._calls = dict(_calls(event))
            case ToolCalled() | StepAnswered():
                self.words = self._said
            case FlowEnded() | RunFinished():
                self._step = ""
            case _:
                pass

    def _begun(self, event: Event) -> str:  # noqa: PLR0911 - one return per event is the table
        """What begins with the event; nothing for an event in the middle of something."""
        match event:
            case RunStarted() | RunResumed():
                return BEFORE
            case IterationStarted() | ToolCalled() | UserSpoke() | CompletionJudged(done=False):
                return MODEL
            case ModelWaited():
                return f"waits for the model, try {event.attempt} of {event.tries} failed"
            case ToolStarted():
                return f"{one_line(event.name, 40)} {self._calls.get(event.tool_use_id, '')}".rstrip()
            case StepAnswered(intent=Intent.CLOSING) | ValidatorRan():
                return CHECKS
            case CompletionJudged() | FlowEnded():
                return BOUNDARY
            case RunFinished():
                return OVER
            case _:
                return ""


def _calls(turned: ModelTurned) -> Iterator[tuple[str, str]]:
    """The id of each tool call that the turn asks for, and what the call is."""
    for block in turned.content:
        if block.get("type") == "tool_use":
            arguments = block.get("input")
            yield str(block.get("id")), call_text(arguments if isinstance(arguments, dict) else {})


def whole_seconds(seconds: float) -> str:
    """A time that counts up: `7 s`, `2 min 5 s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
