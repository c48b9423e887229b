"""What happens inside a step, as cards.

Takes: one event. Gives: its card, None for events of other kinds.
May touch: nothing.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    AnswerLost,
    CommandRan,
    ContextCompacted,
    ContextOutgrown,
    IterationStarted,
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
from stepflow.domain.figures import count, usd
from stepflow.domain.json import JsonObject
from stepflow.report.event_lines import strategy_words
from stepflow.report.html.card import Card, Part, Tone, json_part, text_part
from stepflow.report.html.put_in import put_in
from stepflow.report.plain import first_line, one_line, seconds_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.event import Event
    from stepflow.report.html.put_in import Template

#: The input of a tool that says most about the call, by the tool set's own names.
TELLING_INPUTS = ("command", "file_path", "pattern", "path")
#: The transitions that ask whether the work is done (flow.md §7).
CLOSES = ("closing", "complete")


def step_card(event: Event, templates: Mapping[str, Template]) -> Card | None:  # noqa: PLR0911, PLR0912 - one per event
    """The card of one event in a step. With the `templates` it is told what was put into a prompt."""
    match event:
        case IterationStarted():
            return Card(title=f"Iteration {event.iteration} begins", facts=(event.model,) if event.model else ())
        case PromptRendered():
            return _prompt(event, templates)
        case SchemaFailed():
            return Card(title=f"The answer schema failed: {one_line(event.reason, 300)}", tone=Tone.BAD)
        case ModelWaited():
            waited = f"Waited {seconds_text(event.seconds)} for the model: {one_line(event.reason, 300)}"
            return Card(title=waited, tone=Tone.WARNING, facts=(f"try {event.attempt} of {event.tries} failed",))
        case AnswerLost():
            lost = f"An answer broke off: {one_line(event.reason, 300)}"
            spent = f"{count(event.usage.total, 'token')} count as spent"
            return Card(title=lost, tone=Tone.WARNING, facts=(spent,))
        case ContextCompacted():
            return _compacted(event)
        case ContextOutgrown():
            outgrown = f"The conversation stayed too long for the model: {one_line(event.reason, 300)}"
            return Card(title=outgrown, tone=Tone.WARNING, facts=("the step begins again",))
        case StrategyChosen():
            return Card(title=strategy_words(event), tone=Tone.WARNING)
        case ModelTurned():
            return _turn(event)
        case ToolCalled():
            return _tool(event)
        case CommandRan():
            return _command(event)
        case UserSpoke():
            return _said(event)
        case StepAnswered():
            return _answer(event)
        case Routed():
            return _routed(event)
        case _:
            return None


def unanswered_part(block: JsonObject) -> tuple[Part, ...]:
    """What a turn asked of a tool when no card of that call exists: the run ended before."""
    return json_part(f"Call of {one_line(str(block.get('name', '')))}, not answered", block.get("input"))


def _prompt(event: PromptRendered, templates: Mapping[str, Template]) -> Card:
    tools = f"tools: {', '.join(event.tools)}" if event.tools else "no tools"
    first, *context = event.blocks or ("",)
    puts = put_in(event.source, visible(first), templates)
    names = ", ".join(dict.fromkeys(name for _, _, name in puts))
    return Card(
        title="Retry prompt" if event.retry else "Prompt",
        tone=Tone.PROMPT,
        facts=(event.source, *filter(None, (f"put in: {names}" if names else "",)), tools),
        parts=(
            *text_part("System prompt", event.system, is_open=False),
            *(replace(part, puts=puts) for part in text_part("Prompt", first)),
            *(part for text in context for part in text_part("Context", text)),
        ),
    )


def _compacted(event: ContextCompacted) -> Card:
    too_long = f"The conversation was too long for the model: {one_line(event.reason, 300)}"
    removed = f"removed {count(event.results, 'old tool result')}, {count(event.characters, 'character')}"
    return Card(title=too_long, tone=Tone.WARNING, facts=(removed, f"{count(event.left, 'character')} left"))


def _turn(event: ModelTurned) -> Card:
    called = [str(block.get("name", "")) for block in event.content if block.get("type") == "tool_use"]
    words = f"The model calls {', '.join(called)}" if called else "The model answers"
    facts = [event.model, f"stopped: {event.stop_reason}", count(event.usage.total, "token"), usd(event.cost_usd)]
    return Card(
        title=one_line(words),
        tone=Tone.MODEL,
        facts=(*filter(None, facts), seconds_text(event.seconds)),
        parts=tuple(part for block in event.content for part in _block(block)),
    )


def _block(block: JsonObject) -> Iterator[Part]:
    match block.get("type"):
        case "text":
            yield from text_part("Text", str(block.get("text", "")))
        case "thinking":
            yield from text_part("Thinking", str(block.get("thinking", "")), is_open=False)
        case "tool_use":
            # The card of the call itself has its input.
            return
        case _:
            yield from json_part(one_line(str(block.get("type", "Block"))), block, is_open=False)


def _tool(event: ToolCalled) -> Card:
    denied = ("denied: the step may not use it",) if event.denied else ()
    exited = (f"exit {event.exit_code}",) if event.exit_code is not None else ()
    failed = ("error",) if event.is_error and event.exit_code is None and not event.denied else ()
    return Card(
        title=f"{one_line(event.name, 40)} {_call(event.input)}".rstrip(),
        tone=Tone.BAD if event.is_error or event.denied or event.exit_code else Tone.TOOL,
        facts=(*denied, *exited, *failed, seconds_text(event.seconds)),
        parts=(*_inputs(event.input), *text_part("Output", event.output)),
    )


def _command(event: CommandRan) -> Card:
    ended = "timed out" if event.timed_out else f"exit {event.exit_code}" if event.started else "did not start"
    return Card(
        title=f"Command {one_line(shlex.join(event.argv), 120)}",
        tone=Tone.BAD if event.exit_code else Tone.TOOL,
        facts=(ended, seconds_text(event.seconds)),
        parts=(
            *text_part("Error", event.error),
            *text_part("Output", event.stdout),
            *text_part("Error output", event.stderr),
        ),
    )


def _call(arguments: JsonObject) -> str:
    told = next((arguments[name] for name in TELLING_INPUTS if isinstance(arguments.get(name), str)), "")
    return first_line(str(told), 120)


def _inputs(arguments: JsonObject) -> Iterator[Part]:
    """Long texts of the input with their line breaks; the rest as JSON."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and "\n" in value}
    yield from json_part("Input", {name: value for name, value in arguments.items() if name not in texts})
    for name, value in texts.items():
        yield from text_part(f"Input: {one_line(name, 40)}", value)


def _said(event: UserSpoke) -> Card:
    return Card(
        title="Format correction" if event.format_retry else "The engine asks",
        tone=Tone.WARNING if event.format_retry else Tone.PROMPT,
        facts=(count(len(event.errors), "error"),) if event.errors else (),
        parts=(*text_part("Errors", "\n".join(event.errors)), *text_part("Text", event.text)),
    )


def _answer(event: StepAnswered) -> Card:
    target = f" to {one_line(event.target)}" if event.target else ""
    violation = (f"violation: {one_line(event.violation, 200)}",) if event.violation else ()
    return Card(
        title=f"Intent {event.intent}{target}" if event.intent else "No intent could be determined",
        tone=Tone.ROUTE if event.intent else Tone.BAD,
        facts=violation,
        parts=(
            *text_part("Reason", event.reason),
            *json_part("Answer", event.answer),
            *json_part("Handed off", event.handoff, is_open=False),
        ),
    )


def _routed(event: Routed) -> Card:
    by_prefix = ("by the default for next",) if event.by_prefix else ()
    leads = f"→ {one_line(event.to)}" if event.to else "→ completion" if event.transition in CLOSES else "No way on"
    return Card(title=leads, tone=Tone.ROUTE, facts=(event.transition, *by_prefix))
