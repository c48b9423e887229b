"""Describes the events inside a step: its prompt, the model's turns, tools, the answer and the transition."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import assert_never

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ModelChanged
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelTurn, RequestAdapted, ToolCall
from stepflow.domain.json import JsonObject
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.secrets import MASK
from stepflow.domain.text import count, usd
from stepflow.report.safe_text import (
    Tone,
    first_line,
    last_lines,
    line,
    mark_title,
    one_line,
    quote_lines,
    seconds_text,
)
from stepflow.report.wording import (
    REASON_SHOWN,
    REMEDIES,
    EventMessage,
    Part,
    call_text,
    describe_model,
    spoken,
    value_parts,
    warning_message,
    whole_part,
)

WORDS_SHOWN = 8
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")
#: The transitions that check whether the work is done (flow.md §7).
CLOSES = ("closing", "complete")


def describe_step_event(event: events.StepEvent) -> EventMessage | None:  # noqa: PLR0911, PLR0912 - one case per event
    """Return the message of one event inside a step. The start of a tool has none, because the tool's end has it."""
    match event:
        case events.ToolStarted():
            return None
        case events.IterationStarted():
            title, fact = f"Iteration {event.iteration} begins", describe_model(event) or event.model
            return EventMessage(title=title, facts=(fact,), in_log=False)
        case events.SchemaFailed():
            title = mark_title(Tone.BAD, f"answer schema: {one_line(event.reason)}")
            return EventMessage(title=title, tone=Tone.BAD, facts=(f"{event.strikes} of {MAX_STRIKES}",))
        case events.PromptRendered():
            return _describe_prompt(event)
        case events.ModelWaited():
            return _describe_wait(event)
        case ModelTurn():
            return _describe_turn(event)
        case events.AnswerLost():
            tokens = count(event.usage.total, "token")
            message = warning_message(f"an answer broke off; the {tokens} that it used until then count as spent")
            return replace(message, parts=(Part("Reason", event.reason),))
        case events.CacheRenewed():
            return _describe_renewal(event)
        case events.ContextOverflowed():
            overflowed = "the conversation is still too long for the model, so the step starts over"
            return warning_message(f"{overflowed}: {one_line(event.reason)}")
        case ModelChanged():
            return warning_message(f"{event}: {event.reason}")
        case RequestAdapted():
            change = f"from here on {REMEDIES[event.remedy]}: {one_line(event.reason)}"
            return warning_message(f"{one_line(event.model, 80)}: {change}")
        case ToolCall():
            return _describe_call(event)
        case CommandResult():
            return _describe_command(event)
        case events.UserMessage():
            return _describe_user_message(event)
        case events.CheckJudged():
            return _describe_check(event)
        case events.StepAnswered():
            return _describe_answer(event)
        case events.Routed():
            return _describe_route(event)
        case _:
            assert_never(event)


def _describe_prompt(event: events.PromptRendered) -> EventMessage:
    kind = "retry prompt" if event.retry else "prompt"
    first, *context = event.blocks or ("",)
    # A mask and the value that it replaces differ in length, so the positions would be wrong.
    puts = () if MASK in first else event.substitutions
    names = ", ".join(dict.fromkeys(put.name for put in event.substitutions))
    marks = tuple((put.start, put.end, put.name) for put in puts)
    return EventMessage(
        title=f"{kind}: {one_line(event.source)}; tools: {one_line(', '.join(event.tools)) or 'none'}",
        tone=Tone.PROMPT,
        more_facts=(f"put in: {names}",) if names else (),
        parts=(
            Part("System prompt", event.system, is_open=False),
            Part("Prompt", first, puts=marks),
            *(Part("Context", text) for text in context),
        ),
    )


def _describe_wait(event: events.ModelWaited) -> EventMessage:
    deadline = event.deadline_in
    left = f", {seconds_text(deadline)} left before the deadline" if deadline is not None else ""
    tried = f"(try {event.attempt} of {event.tries} failed{left})"
    return warning_message(f"waiting {event.seconds:g} s for the model {tried}: {one_line(event.reason)}")


def _describe_renewal(event: events.CacheRenewed) -> EventMessage:
    title = f"the prompt cache was {'not ' if event.problem else ''}renewed during a long wait"
    fact = one_line(event.problem, REASON_SHOWN) if event.problem else count(event.usage.total, "token")
    return EventMessage(title=title, facts=(fact,))


def _describe_turn(event: ModelTurn) -> EventMessage:
    """Describe an answer. A log shows its prose below the title; a page shows the prose as parts."""
    called = [str(block.get("name", "")) for block in event.content if block.get("type") == "tool_use"]
    text = spoken(event)
    said = (first_line(text),) if event.stop_reason == "tool_use" else last_lines(text, WORDS_SHOWN)
    stopped = line(Tone.WARNING, f"the model stopped: {one_line(event.stop_reason)}")
    left_out = ""
    if cleared := event.cleared:
        results = f"{count(cleared.results, 'old tool result')} ({count(cleared.tokens, 'token')})"
        left_out = f"left out by the service: {results}"
    return EventMessage(
        title=one_line(f"The model calls {', '.join(called)}" if called else "The model answers"),
        tone=Tone.MODEL,
        facts=(
            event.model,
            f"stopped: {event.stop_reason}",
            count(event.usage.total, "token"),
            usd(event.cost_usd),
            seconds_text(event.seconds),
            left_out,
        ),
        parts=tuple(map(_block_part, event.content)),
        in_log=False,
        below=(*quote_lines(filter(None, said)), *(() if event.stop_reason in USUAL_STOPS else (stopped,))),
    )


def _block_part(block: JsonObject) -> Part:
    """Return the part that a page shows for a block."""
    match block.get("type"):
        case "text":
            return Part("Text", str(block.get("text", "")))
        case "tool_use":
            return Part(f"Call of {one_line(str(block.get('name', '')))}", block.get("input"), is_open=False)
        case "thinking":
            return Part("Thinking", str(block.get("thinking", "")), is_open=False)
        case _:
            return Part(one_line(str(block.get("type", "Block"))), block, is_open=False)


def _describe_call(event: ToolCall) -> EventMessage:
    if event.denied:
        ended = "denied: the step may not use it"
    elif event.exit_code is not None:
        ended = f"exit {event.exit_code}"
    else:
        ended = (first_line(event.output, 80) or "error") if event.is_error else ""
    tone = Tone.BAD if event.is_error or event.denied or event.exit_code else Tone.TOOL
    return EventMessage(
        title=mark_title(tone, f"{one_line(event.name, 40)} {call_text(event.input)}").rstrip(),
        tone=tone,
        facts=(ended, seconds_text(event.seconds)),
        parts=(*value_parts("Input", event.input, is_open=True), Part("Output", event.output)),
    )


def _describe_command(event: CommandResult) -> EventMessage:
    ended = "timed out" if event.timed_out else f"exit {event.exit_code}" if event.started else "did not start"
    return EventMessage(
        title=f"Command {one_line(shlex.join(event.argv), 120)}",
        tone=Tone.BAD if event.exit_code else Tone.TOOL,
        facts=(ended, seconds_text(event.seconds)),
        parts=(Part("Error", event.error), Part("Output", event.stdout), Part("Error output", event.stderr)),
        in_log=False,
    )


def _describe_user_message(event: events.UserMessage) -> EventMessage:
    """Describe what stepflow says in a conversation after the prompt."""
    why = one_line("; ".join(event.errors)) if event.errors else first_line(event.text)
    return EventMessage(
        title=f"{'format retry' if event.format_retry else 'asked'}: {why}",
        tone=Tone.WARNING if event.format_retry else Tone.PROMPT,
        parts=(Part("Errors", "\n".join(event.errors)), Part("Text", event.text)),
    )


def _describe_check(event: events.CheckJudged) -> EventMessage:
    tone = Tone.GOOD if event.result == "ok" else Tone.BAD
    said = f": {one_line(event.message, 240)}" if event.message else ""
    return EventMessage(
        title=mark_title(tone, f"check {event.result}{said}"),
        tone=tone,
        parts=whole_part("Message", event.message, 240),
    )


def _describe_answer(event: events.StepAnswered) -> EventMessage:
    """Describe what the gate read in an answer."""
    reason = f": {one_line(event.reason, 240)}" if event.reason else ""
    target = f" to {one_line(event.target)}" if event.target else ""
    return EventMessage(
        title=f"intent {event.intent}{target}{reason}" if event.intent else mark_title(Tone.BAD, f"no intent{reason}"),
        tone=Tone.ROUTE if event.intent else Tone.BAD,
        more_facts=(f"violation: {one_line(event.violation, 200)}",) if event.violation else (),
        parts=(
            *whole_part("Reason", event.reason, 240),
            Part("Answer", event.answer),
            Part("Handed off", event.handoff, is_open=False),
        ),
    )


def _describe_route(event: events.Routed) -> EventMessage:
    if event.to is None:
        title = "→ completion" if event.transition in CLOSES else "no next step"
        return EventMessage(title=title, tone=Tone.ROUTE, more_facts=(event.transition,), in_log=False)
    return EventMessage(
        title=f"→ {one_line(event.to)}",
        tone=Tone.ROUTE,
        more_facts=(event.transition, *(("by the default for next",) if event.by_prefix else ())),
    )
