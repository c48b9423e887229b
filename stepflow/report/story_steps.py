"""What happens inside a step, as lines for a person who watches.

Takes: one event. Gives: its lines, none for events of other kinds.
May touch: nothing. Steps are opened and closed by `Story`, which knows the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    AnswerLost,
    ContextCompacted,
    ContextOutgrown,
    ModelTurned,
    ModelWaited,
    PromptRendered,
    Routed,
    SchemaFailed,
    StepAnswered,
    StrategyChosen,
    ToolCalled,
    UserSpoke,
)
from stepflow.domain.figures import count
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.words import Strategy
from stepflow.report.plain import first_line, last_lines, one_line, seconds_text
from stepflow.report.story_line import LineKind, StoryLine, line

if TYPE_CHECKING:
    from stepflow.domain.event import Event

WORDS_SHOWN = 8
#: The input of a tool that says most about the call, by the tool set's own names.
TELLING_INPUTS = ("command", "file_path", "pattern", "path")
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")


def step_lines(event: Event) -> tuple[StoryLine, ...]:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """What a watcher sees of one event inside a step."""
    match event:
        case PromptRendered():
            return (line(LineKind.DETAIL, _prompt(event)),)
        case SchemaFailed():
            return (line(LineKind.BAD, f"✗ answer schema: {one_line(event.reason)} ({event.strikes} of 2)"),)
        case ModelWaited():
            return (line(LineKind.WARNING, _wait(event)),)
        case AnswerLost():
            used = count(event.usage.total, "token")
            return (line(LineKind.WARNING, f"an answer broke off; the {used} that it used until then count as spent"),)
        case ContextCompacted():
            removed = f"{count(event.results, 'old tool result')} ({count(event.characters, 'character')})"
            return (line(LineKind.WARNING, f"the conversation was too long for the model: removed {removed} from it"),)
        case ContextOutgrown():
            outgrown = f"the conversation stays too long for the model, the step begins again: {one_line(event.reason)}"
            return (line(LineKind.WARNING, outgrown),)
        case StrategyChosen():
            return (line(LineKind.WARNING, strategy_words(event)),)
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
        case _:
            return ()


def _prompt(event: PromptRendered) -> str:
    kind = "retry prompt" if event.retry else "prompt"
    return f"{kind}: {one_line(event.source)}; tools: {one_line(', '.join(event.tools)) or 'none'}"


def _wait(event: ModelWaited) -> str:
    tried = f"try {event.attempt} of {event.tries} failed"
    left = f", {seconds_text(event.deadline_in)} left before the deadline" if event.deadline_in is not None else ""
    return f"waiting {event.seconds:g} s for the model ({tried}{left}): {one_line(event.reason)}"


def strategy_words(event: StrategyChosen) -> str:
    """That the model is asked for its answers in another way, how, why, and how to spare the next run the detour."""
    ways = {
        Strategy.NATIVE: "by output_config",
        Strategy.TOOL: "as the input of a tool",
        Strategy.PROMPT: "by the schema in words",
    }
    asked = f"{one_line(event.model, 80)} is asked for structured output {ways[event.strategy]} from here on"
    return f"{asked}: {one_line(event.reason)} (input structured-output: {event.strategy} begins with it)"


def _words(event: ModelTurned) -> tuple[StoryLine, ...]:
    text = spoken(event)
    if event.stop_reason == "tool_use":
        said = first_line(text)
        return (line(LineKind.WORDS, f"│ {said}"),) if said else ()
    words = tuple(line(LineKind.WORDS, f"│ {words}") for words in last_lines(text, WORDS_SHOWN))
    if event.stop_reason in USUAL_STOPS:
        return words
    return (*words, line(LineKind.WARNING, f"the model stopped: {one_line(event.stop_reason)}"))


def spoken(event: ModelTurned) -> str:
    """The prose of a turn. What counts of a structured answer is told elsewhere, as intent and reason."""
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    return "" if event.stop_reason != "tool_use" and text.lstrip().startswith("{") else text


def _tool(event: ToolCalled) -> StoryLine:
    name = one_line(event.name, 40)
    if event.denied:
        return line(LineKind.BAD, f"✗ {name}: denied, this step may not use it")
    ended = [f"exit {event.exit_code}"] if event.exit_code is not None else []
    if event.is_error and event.exit_code is None:
        ended.append(first_line(event.output, 80) or "error")
    shown = f"{name} {call_text(event.input)}".rstrip()
    mark, kind = ("✗", LineKind.BAD) if event.is_error or event.exit_code else ("✓", LineKind.GOOD)
    return line(kind, f"{mark} {shown} ({', '.join([*ended, seconds_text(event.seconds)])})")


def call_text(arguments: JsonObject) -> str:
    """The part of a tool's input that says most about the call."""
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
