"""One event as lines for a person who watches.

Takes: one event. Gives: lines of one kind each, clean and cut, that no runner or terminal obeys.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectStatus
from stepflow.domain.event import (
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    ModelTurned,
    ModelWaited,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunStarted,
    SchemaFailed,
    StepAnswered,
    ToolCalled,
    UserSpoke,
    ValidatorRan,
)
from stepflow.domain.json import JsonObject, compact
from stepflow.report.plain import cut, defuse, first_line, last_lines, one_line, seconds_text

if TYPE_CHECKING:
    from stepflow.domain.event import Event

WORDS_SHOWN = 8
TAIL_SHOWN = 6
WIDTH = 400
#: The input of a tool that says most about the call, by the tool set's own names.
TELLING_INPUTS = ("command", "file_path", "pattern", "path")
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")


class LineKind(StrEnum):
    """What a line is, for whoever colours or folds it."""

    RUN = "run"
    STEP = "step"
    STEP_END = "step_end"
    DETAIL = "detail"
    WORDS = "words"
    INTENT = "intent"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PROGRESS = "progress"


@dataclass(frozen=True, kw_only=True)
class StoryLine:
    """One line without its line break."""

    kind: LineKind
    text: str


def line(kind: LineKind, text: str) -> StoryLine:
    """A line of text that is clean already; cut, and defused for the runner."""
    return StoryLine(kind=kind, text=defuse(cut(text, WIDTH)))


def event_lines(event: Event) -> tuple[StoryLine, ...]:  # noqa: PLR0911, PLR0912 - one case per event is the table
    """What a watcher sees of one event. Steps are opened and closed by `Story`, which knows the state."""
    match event:
        case RunStarted():
            return (line(LineKind.RUN, _start(event)),)
        case PromptRendered():
            return (line(LineKind.DETAIL, _prompt(event)),)
        case SchemaFailed():
            return (line(LineKind.BAD, f"✗ answer schema: {one_line(event.reason)} ({event.strikes} of 2)"),)
        case ModelWaited():
            waited = f"waiting {event.seconds:g} s for the model: {one_line(event.reason)}"
            return (line(LineKind.WARNING, waited),)
        case ModelTurned():
            return _words(event)
        case ToolCalled():
            return (_tool(event),)
        case UserSpoke():
            why = one_line("; ".join(event.errors)) if event.errors else first_line(event.text)
            return (line(LineKind.DETAIL, f"{'format retry' if event.format_retry else 'asked'}: {why}"),)
        case StepAnswered():
            return (_answer(event),)
        case Routed() if event.to is not None:
            return (line(LineKind.INTENT, f"→ {one_line(event.to)}"),)
        case ValidatorRan():
            return _validator(event)
        case CompletionJudged():
            return (_judged(event),)
        case FlowEnded():
            return (line(LineKind.RUN, f"The flow ended: {event.outcome}. {one_line(event.reason, 300)}"),)
        case EffectPlanned():
            return (line(LineKind.DETAIL, f"planned: {event.kind} {one_line(event.detail)}"),)
        case EffectApplied():
            return (_receipt(event),)
        case FailureReported():
            return (line(LineKind.DETAIL, f"the issue's comment says so: {one_line(event.url or event.detail)}"),)
        case Noted():
            return _note(event)
        case RunFinished():
            kind = LineKind.GOOD if event.success else LineKind.BAD
            mark = "✓" if event.success else "✗"
            return (line(kind, f"{mark} {event.outcome}: {one_line(event.reason, 300)}"),)
        case _:
            return ()


def _start(event: RunStarted) -> str:
    issue = f"#{event.issue}" if event.issue is not None else ""
    place = f" on {one_line(event.repository)}{issue}" if event.repository or issue else ""
    layers = ", ".join(f"{one_line(layer)} {one_line(state)}" for layer, state in event.isolation.items())
    sandbox = f" Sandbox: {layers}." if layers else ""
    return f"Agent {one_line(event.agent)}{place}, run {one_line(event.run_id)}.{sandbox}"


def _prompt(event: PromptRendered) -> str:
    kind = "retry prompt" if event.retry else "prompt"
    return f"{kind}: {one_line(event.source)}; tools: {one_line(', '.join(event.tools)) or 'none'}"


def _words(event: ModelTurned) -> tuple[StoryLine, ...]:
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    if event.stop_reason == "tool_use":
        said = first_line(text)
        return (line(LineKind.WORDS, f"│ {said}"),) if said else ()
    words = tuple(line(LineKind.WORDS, f"│ {words}") for words in last_lines(text, WORDS_SHOWN))
    if event.stop_reason in USUAL_STOPS:
        return words
    return (*words, line(LineKind.WARNING, f"the model stopped: {one_line(event.stop_reason)}"))


def _tool(event: ToolCalled) -> StoryLine:
    name = one_line(event.name, 40)
    if event.denied:
        return line(LineKind.BAD, f"✗ {name}: denied, this step may not use it")
    ended = [f"exit {event.exit_code}"] if event.exit_code is not None else []
    if event.is_error and event.exit_code is None:
        ended.append(first_line(event.output, 80) or "error")
    shown = f"{name} {_call(event.input)}".rstrip()
    mark, kind = ("✗", LineKind.BAD) if event.is_error or event.exit_code else ("✓", LineKind.GOOD)
    return line(kind, f"{mark} {shown} ({', '.join([*ended, seconds_text(event.seconds)])})")


def _call(arguments: JsonObject) -> str:
    for name in TELLING_INPUTS:
        value = arguments.get(name)
        if isinstance(value, str):
            return first_line(value, 120)
    return one_line(compact(arguments), 120) if arguments else ""


def _answer(event: StepAnswered) -> StoryLine:
    reason = f": {one_line(event.reason, 240)}" if event.reason else ""
    if event.intent is None:
        return line(LineKind.BAD, f"✗ no intent{reason}")
    target = f" to {one_line(event.target)}" if event.target else ""
    return line(LineKind.INTENT, f"intent {event.intent}{target}{reason}")


def _validator(event: ValidatorRan) -> tuple[StoryLine, ...]:
    name = one_line(event.name)
    ended = f"(exit {event.exit_code}, {seconds_text(event.seconds)})"
    if event.passed:
        return (line(LineKind.GOOD, f"✓ {name} {ended}"),)
    what = f"failed, attempt {event.attempt} of {event.max_attempts}" if event.recoverable else "failed for good"
    leads = f" → {event.action}" if event.action else ""
    tail = (line(LineKind.WORDS, f"│ {text}") for text in last_lines(event.output_tail, TAIL_SHOWN))
    return (line(LineKind.BAD, f"✗ {name} {what}{leads} {ended}"), *tail)


def _judged(event: CompletionJudged) -> StoryLine:
    if event.done:
        red = "" if event.validated else ", with a red validator that may be skipped"
        return line(LineKind.GOOD, f"✓ done{red}")
    if event.retry_prompt is None:
        return line(LineKind.BAD, "✗ not done, and no attempt is left")
    return line(LineKind.WARNING, f"not done: back to {one_line(event.step_id)} with a retry prompt")


def _receipt(event: EffectApplied) -> StoryLine:
    detail = one_line(event.url or event.detail)
    what = f"{event.kind} {event.status}{': ' if detail else ''}{detail}"
    match event.status:
        case EffectStatus.APPLIED:
            return line(LineKind.GOOD, f"✓ {what}")
        case EffectStatus.FAILED | EffectStatus.FORBIDDEN:
            return line(LineKind.BAD, f"✗ {what}")
        case _:
            return line(LineKind.DETAIL, what)


def _note(event: Noted) -> tuple[StoryLine, ...]:
    kinds = {"warning": LineKind.WARNING, "error": LineKind.BAD, "info": LineKind.DETAIL}
    kind = kinds.get(event.level)
    return (line(kind, one_line(event.message, 300)),) if kind else ()
