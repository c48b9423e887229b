"""The run as lines for a person who watches; the job log and the terminal show the same ones.

Takes: entries in order. Gives: the lines of each, with the progress against the limits.
May touch: nothing. Keeps the folded state, which does not grow with the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted, Routed
from stepflow.domain.event import CompletionJudged, FlowEnded, RunFinished, RunResumed, RunStarted
from stepflow.domain.figures import usd
from stepflow.domain.run import Limits
from stepflow.domain.state import RunState, advance, fold
from stepflow.report.plain import one_line
from stepflow.report.story_ends import end_lines
from stepflow.report.story_full import full_lines
from stepflow.report.story_line import LineKind, StoryLine, line
from stepflow.report.story_now import Now
from stepflow.report.story_steps import step_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.event import Entry, Event
    from stepflow.domain.json import JsonValue

#: The options that limit a run, beside its iterations.
LIMITING = ("budget-usd", "budget-tokens", "timeout-minutes")


class Story:
    """Tells a run. `limits` are the caller's, so that a watcher sees how far the run is; with `debug` prompts and
    answers are told in full."""

    def __init__(self, limits: Limits | None = None, *, debug: bool = False) -> None:
        self._limits, self._debug = limits, debug
        self._iterations = limits.iterations if limits else 0
        self._state = RunState()
        self.now = Now()
        self._began = self._now = 0.0
        self._step = ""
        self._leads = ""

    def recall(self, events: Iterable[Event]) -> None:
        """Know what a run that goes on did before, without telling it again."""
        self._state = fold(events, self._state)

    def tell(self, entry: Entry) -> tuple[StoryLine, ...]:
        """The lines of one entry."""
        event = entry.event
        self._now = entry.time
        self._began = self._began or entry.time
        ends = isinstance(event, IterationStarted | FlowEnded | RunFinished)
        closing = self._close_step() if ends and self._step else ()
        self._follow(entry)
        opening = self._opening(event)
        full = full_lines(event) if self._debug else ()
        if isinstance(event, RunResumed):
            return (*end_lines(event), *opening)
        return (*closing, *opening, *step_lines(event), *full, *end_lines(event))

    def pass_over(self, entry: Entry) -> None:
        """Follow an entry without telling it."""
        self._step = ""
        self._follow(entry)

    def progress(self, now: float | None = None) -> str:
        """Iterations, money, tokens and minutes so far, each against its limit if it has one."""
        limits, state = self._limits, self._state
        cost = usd(state.cost_usd) + (" and unpriced turns" if state.unpriced else "")
        minutes = f"{max(0.0, (now or self._now) - self._began) / 60:.1f}"
        deadline = (limits.deadline - self._began) / 60 if limits and limits.deadline is not None else None
        parts = (
            _against(f"iteration {state.iteration}", str(self._iterations or "")),
            _against(cost, usd(limits.usd) if limits and limits.usd is not None else ""),
            _against(f"{state.usage.total:,}", f"{limits.tokens:,}" if limits and limits.tokens else "") + " tokens",
            _against(minutes, f"{deadline:.0f}" if deadline is not None else "") + " min",
        )
        return " · ".join(parts)

    def _follow(self, entry: Entry) -> None:
        event = entry.event
        self._state = advance(self._state, event)
        self.now.follow(entry)
        match event:
            case RunStarted() if self._limits is None:
                self._limits, self._iterations = limits_told(event, entry.time), event.max_iterations
            case Routed():
                self._leads = one_line(event.to) if event.to is not None else ""
            case CompletionJudged():
                self._leads = "done" if event.done else one_line(event.step_id)
            case _:
                pass

    def _opening(self, event: Event) -> tuple[StoryLine, ...]:
        match event:
            case IterationStarted():
                return self._open_step(event, f" ({event.kind})" if event.kind else "")
            case RunResumed() if event.step_id:
                return self._open_step(event, " (goes on)")
            case _:
                return ()

    def _open_step(self, event: IterationStarted | RunResumed, how: str) -> tuple[StoryLine, ...]:
        self._step, self._leads = one_line(event.step_id) or "(no id)", ""
        number = _against(f"Iteration {event.iteration}", str(self._iterations or ""))
        return (line(LineKind.STEP, f"{number} · {self._step}{how}"),)

    def _close_step(self) -> tuple[StoryLine, ...]:
        """The end of the step that is open: how far the run is, and what a reader of folded steps must see."""
        leads = f" → {self._leads}" if self._leads else ""
        came_to = f"{self._state.iteration} · {self._step}: {self._state.intent or 'no intent'}{leads}"
        self._step = ""
        return (line(LineKind.PROGRESS, self.progress()), line(LineKind.STEP_END, came_to))


def limits_told(started: RunStarted, began: float) -> Limits:
    """The limits of a run that another process drives, as its options tell them."""
    usd_most, tokens, minutes = (_figure(started.options.get(name)) for name in LIMITING)
    return Limits(
        iterations=started.max_iterations,
        usd=usd_most,
        tokens=int(tokens) if tokens is not None else None,
        deadline=began + minutes * 60 if minutes is not None else None,
    )


def _figure(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _against(value: str, limit: str) -> str:
    return f"{value} of {limit}" if limit else value
