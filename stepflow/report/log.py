"""The log of a run: for the job's page with each step folded, and for a terminal with live last lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from stepflow.domain import event as events
from stepflow.domain.conversation import ModelTurn, ToolCall
from stepflow.domain.flow import RunState, advance, fold
from stepflow.domain.json import JsonObject, value_at
from stepflow.domain.run import Limits
from stepflow.domain.text import cut, minutes, usd
from stepflow.domain.words import Intent
from stepflow.report.event_message import describe_event
from stepflow.report.safe_text import Command, Line, Tone, first_line, line, one_line, seconds_text, whole_lines
from stepflow.report.wording import call_text, describe_model, spoken

BEFORE = "prepares the run"
MODEL = "the model answers"
CHECKS = "validators run"
BOUNDARY = "plans what to write to GitHub"
OVER = "ends the run"
STEP_SHOWN = 32
#: The limits of a run in its options, other than its iterations.
LIMITS_SHOWN = ("usd", "tokens", "minutes")
#: Tones of lines that are not indented, because they are not inside a step.
OUTSIDE = (Tone.RUN, Tone.STEP, Tone.STEP_END)
#: Tones of lines inside a fold.
INSIDE = (Tone.FOLDED, Tone.ASIDE)


def event_lines(event: events.Event) -> tuple[Line, ...]:
    """Return the lines that a watcher sees for one event."""
    message = describe_event(event)
    if message is None:
        return ()
    if not message.in_log:
        return message.below
    facts = ", ".join(filter(None, message.facts))
    return (line(message.tone, f"{message.title} ({facts})" if facts else message.title), *message.below)


class CurrentActivity:
    """The work in progress. Times come from the journal, in seconds since the epoch."""

    def __init__(self) -> None:
        #: The model's last words, once another event has followed them.
        self.words = ""
        self._said = ""
        self._step, self._doing = "", BEFORE
        self._since: float | None = None
        self._until: float | None = None
        self._calls: dict[str, str] = {}

    def follow(self, entry: events.Entry) -> None:  # noqa: PLR0912 - one case per event is the table
        """Follow one entry. An event inside an activity does not restart its time."""
        event, begins = entry.event, ""
        match event:
            case events.RunStarted():
                begins = BEFORE
            case events.RunResumed():
                self._step, self._calls, begins = one_line(event.step_id), {}, BEFORE
            case events.IterationStarted():
                self._step, self._calls, begins = one_line(event.step_id), {}, MODEL
            case ModelTurn():
                self._said = first_line(spoken(event)) or self._said
                self._calls = dict(_calls(event))
            case events.ModelWaited():
                begins = f"waits for the model, try {event.attempt} of {event.tries} failed"
            case events.ToolStarted():
                begins = f"{one_line(event.name, 40)} {self._calls.get(event.tool_use_id, '')}".rstrip()
            case ToolCall():
                self.words, begins = self._said, MODEL
            case events.UserMessage() | events.CompletionJudged(done=False):
                begins = MODEL
            case events.StepAnswered():
                self.words, begins = self._said, CHECKS if event.intent is Intent.CLOSING else ""
            case events.ValidatorRan():
                begins = CHECKS
            case events.CompletionJudged():
                begins = BOUNDARY
            case events.FlowEnded():
                self._step, begins = "", BOUNDARY
            case events.RunFinished():
                self._step, begins = "", OVER
            case _:
                pass
        if begins:
            self._doing, self._since = begins, entry.time
            self._until = entry.time + event.seconds if isinstance(event, events.ModelWaited) else None

    def describe(self, now: float, command: str = "") -> str:
        """Return the current step, its duration and its activity: `continuation.issue · 12 s · bash make test`. The
        end may be cut off, so the longest part comes last. `command` is run by the engine, and no event names it."""
        parts = [cut(self._step, STEP_SHOWN)]
        if self._until is not None:
            parts.append(f"{seconds_text(max(0.0, self._until - now))} left")
        elif self._since is not None and now - self._since >= 1:
            minutes, rest = divmod(int(now - self._since), 60)
            parts.append(f"{minutes} min {rest} s" if minutes else f"{rest} s")
        doing = f"{self._doing}: {command}" if command and self._doing in (BEFORE, CHECKS) else self._doing
        return " · ".join(part for part in (*parts, doing) if part)


def _calls(turn: ModelTurn) -> Iterator[tuple[str, str]]:
    """Yield the ID and a description of each tool call in the turn."""
    for block in turn.content:
        if block.get("type") == "tool_use":
            arguments = block.get("input")
            yield str(block.get("id")), call_text(arguments if isinstance(arguments, dict) else {})


class RunLog:
    """Formats the lines of a run.

    `limits` come from the caller, so that a watcher sees how far the run is. With `debug`, prompts and answers are
    shown in full.
    """

    def __init__(self, limits: Limits | None = None, *, debug: bool = False) -> None:
        self._limits, self._debug = limits, debug
        self._iterations = limits.iterations if limits else 0
        self._state = RunState()
        self.activity = CurrentActivity()
        self._began = self._now = 0.0
        self._step = ""
        self._leads = ""

    def recall(self, past: Iterable[events.Event]) -> None:
        """Follow the earlier events of a resumed run without showing them again."""
        self._state = fold(past, self._state)

    def lines(self, entry: events.Entry) -> tuple[Line, ...]:
        """Return the lines of one entry."""
        event = entry.event
        self._now = entry.time
        self._began = self._began or entry.time
        ends = isinstance(event, events.IterationStarted | events.FlowEnded | events.RunFinished)
        closing = self._close_step() if ends and self._step else ()
        self._follow(entry)
        opening = self._opening(event)
        full = full_lines(event) if self._debug else ()
        if isinstance(event, events.RunResumed):
            return (*event_lines(event), *opening)
        return (*closing, *opening, *event_lines(event), *full)

    def skip(self, entry: events.Entry) -> None:
        """Follow an entry without showing it."""
        self._step = ""
        self._follow(entry)

    def progress(self, now: float | None = None) -> str:
        """Return iterations, money, tokens and minutes so far, each with its limit if it has one."""
        limits, state = self._limits, self._state
        cost = usd(state.cost_usd) + (" and unpriced turns" if state.unpriced else "")
        now = now or self._now
        # Before its first event, a run begins now.
        began = self._began or now
        passed = f"{max(0.0, now - began) / 60:.1f}"
        whole = max(0.0, limits.deadline - began) / 60 if began and limits and limits.deadline is not None else None
        parts = (
            _against(f"iteration {state.iteration}", str(self._iterations or "")),
            _against(cost, usd(max(0.0, limits.usd)) if limits and limits.usd is not None else ""),
            _against(f"{state.usage.total:,}", f"{limits.tokens:,}" if limits and limits.tokens else "") + " tokens",
            _against(passed, minutes(whole) if whole is not None else "") + " min",
        )
        return " · ".join(parts)

    def _follow(self, entry: events.Entry) -> None:
        event = entry.event
        self._state = advance(self._state, event)
        self.activity.follow(entry)
        match event:
            case events.RunStarted() if self._limits is None:
                self._limits, self._iterations = _limits_of(event, entry.time), event.max_iterations
            case events.Routed():
                self._leads = one_line(event.to) if event.to is not None else ""
            case events.CompletionJudged():
                self._leads = "done" if event.done else one_line(event.step_id)
            case _:
                pass

    def _opening(self, event: events.Event) -> tuple[Line, ...]:
        match event:
            case events.IterationStarted():
                how = f" ({event.kind})" if event.kind else ""
                how += f" · {one_line(model)}" if (model := describe_model(event)) else ""
            case events.RunResumed() if event.step_id:
                how = " (goes on)"
            case _:
                return ()
        self._step, self._leads = one_line(event.step_id) or "(no id)", ""
        number = _against(f"Iteration {event.iteration}", str(self._iterations or ""))
        return (line(Tone.STEP, f"{number} · {self._step}{how}"),)

    def _close_step(self) -> tuple[Line, ...]:
        """Return the end of the open step: how far the run is, and what readers must see even if the steps are
        folded."""
        leads = f" → {self._leads}" if self._leads else ""
        summary = f"{self._state.iteration} · {self._step}: {self._state.intent or 'no intent'}{leads}"
        self._step = ""
        return (line(Tone.PROGRESS, self.progress()), line(Tone.STEP_END, summary))


def _limits_of(started: events.RunStarted, began: float) -> Limits:
    """Return the limits of a run that another process drives, from its options."""
    options = (value_at(started.options, f"limits.{name}") for name in LIMITS_SHOWN)
    usd_most, tokens, minutes = (float(each) if isinstance(each, int | float) else None for each in options)
    return Limits(
        iterations=started.max_iterations,
        usd=usd_most,
        tokens=int(tokens) if tokens is not None else None,
        deadline=began + minutes * 60 if minutes is not None else None,
    )


def _against(value: str, limit: str) -> str:
    return f"{value} of {limit}" if limit else value


class ActionLog:
    """The job log, with one `::group::` per step attempt. No other line can act as a workflow command."""

    def __init__(self, limits: Limits | None = None, *, debug: bool = False) -> None:
        self.run_log = RunLog(limits, debug=debug)
        self._open = False

    def render(self, entry: events.Entry) -> tuple[Line | Command, ...]:
        """Return the lines of one entry."""
        lines = self.run_log.lines(entry)
        texts = tuple(text for line in lines for text in self._texts(line))
        # A fold ends with its entry. Groups do not nest: a group inside a step ends the group of the step.
        return (*texts, *self.close()) if lines and lines[-1].tone in INSIDE else texts

    def close(self) -> tuple[Command, ...]:
        """Close the group that a crash left open."""
        lines = (Command("endgroup"),) if self._open else ()
        self._open = False
        return lines

    def _texts(self, line: Line) -> tuple[Line | Command, ...]:
        match line.tone:
            case Tone.STEP | Tone.FOLD:
                before = self.close()
                self._open = True
                return (*before, Command("group", line))
            case Tone.STEP_END:
                return (*self.close(), line)
            case _:
                return (line.indented() if self._open else line,)


def folded_traceback(trace: str) -> tuple[Line | Command, ...]:
    """Fold the traceback of a bug that no run could record, for the job log."""
    noted = events.Noted(level="error", message="internal error", data={"traceback": trace})
    return ActionLog().render(events.Entry(seq=1, time=0.0, event=noted))


class TerminalLog:
    """The same lines for a terminal."""

    def __init__(self, limits: Limits | None = None, *, debug: bool = False) -> None:
        self.run_log = RunLog(limits, debug=debug)
        # A terminal cannot fold lines, so asides are left out.
        self._left_out = (Tone.STEP_END,) if debug else (Tone.STEP_END, Tone.ASIDE)

    def render(self, entry: events.Entry) -> tuple[Line, ...]:
        """Return the lines of one entry."""
        return tuple(
            line if line.tone in OUTSIDE else line.indented()
            for line in self.run_log.lines(entry)
            if line.tone not in self._left_out
        )

    def now(self, time: float, command: str = "") -> tuple[Line, ...]:
        """Return the lines below the log during the run: the current work, the model's last words, and the progress.
        `command` is what the engine runs."""
        activity = self.run_log.activity
        words = (Line(Tone.WORDS, f"│ {activity.words}"),) if activity.words else ()
        progress = Line(Tone.PROGRESS, self.run_log.progress(time))
        return (Line(Tone.STEP, activity.describe(time, one_line(command))), *words, progress)


def full_lines(event: events.Event) -> Iterator[Line]:
    """Yield the full text of a prompt or an answer."""
    match event:
        case events.PromptRendered():
            texts = [("system prompt", event.system), *(("prompt", block) for block in event.blocks)]
        case events.UserMessage():
            texts = [("asked", event.text)]
        case ModelTurn():
            texts = [("answer", _block_text(block)) for block in event.content]
        case _:
            texts = []
    for title, text in texts:
        yield line(Tone.PLAIN, f"{title}, in full:")
        yield from whole_lines(text)


def _block_text(block: JsonObject) -> str:
    """Return the text of a text block. Return any other block, such as a tool call, as JSON."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return json.dumps(block, ensure_ascii=False, indent=2)
