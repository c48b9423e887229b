"""Describes the events inside a step: its prompt, the model's turns, tools, the answer and the transition."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ModelChanged
from stepflow.domain.conversation import Remedy, RequestAdapted
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.secrets import MASK
from stepflow.domain.text import count, usd
from stepflow.report.safe_text import first_line, last_lines, one_line, seconds_text
from stepflow.report.wording import REASON_SHOWN, EventMessage, Part, Tone, line, mark_title, quote_lines, whole_part

WORDS_SHOWN = 8
#: The inputs that describe a tool call best, by the names in the tool set.
MAIN_INPUTS = ("command", "file_path", "pattern", "path")
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")
#: The transitions that check whether the work is done (flow.md §7).
CLOSES = ("closing", "complete")
CHANGES: Mapping[Remedy, str] = {
    Remedy.ASK_IN_WORDS: "answers are requested with the schema in words",
    Remedy.LEAVE_OUT_IMAGES: "images are left out",
    Remedy.DROP_THINKING: "the service leaves out earlier thinking of this conversation",
    Remedy.SHORTEN: "the conversation begins again",
}


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
            return prompt_rendered(event)
        case events.ModelWaited():
            return model_waited(event)
        case events.ModelTurned():
            return model_turned(event)
        case events.AnswerLost():
            tokens = count(event.usage.total, "token")
            message = _hindrance(f"an answer broke off; the {tokens} that it used until then count as spent")
            return replace(message, parts=(Part("Reason", event.reason),))
        case events.CacheRenewed():
            return cache_renewed(event)
        case events.ContextOverflowed():
            overflowed = "the conversation is still too long for the model, so the step starts over"
            return _hindrance(f"{overflowed}: {one_line(event.reason)}")
        case ModelChanged():
            return _hindrance(f"{event}: {event.reason}")
        case RequestAdapted():
            change = CHANGES[event.remedy]
            return _hindrance(f"{one_line(event.model, 80)}: from here on {change}: {one_line(event.reason)}")
        case events.ToolCalled():
            return tool_called(event)
        case events.CommandRan():
            return command_ran(event)
        case events.UserMessage():
            return user_message(event)
        case events.CheckJudged():
            return check_judged(event)
        case events.StepAnswered():
            return step_answered(event)
        case events.Routed():
            return describe_route(event)
        case _:
            assert_never(event)


def describe_model(event: events.IterationStarted) -> str:
    """Return the model and the agent's settings for its answers. Empty if there are no settings."""
    effort = f"effort {event.effort}" if event.effort else ""
    most = f"at most {count(event.max_output_tokens, 'output token')} an answer" if event.max_output_tokens else ""
    return ", ".join((event.model, *filter(None, (effort, most)))) if effort or most else ""


def prompt_rendered(event: events.PromptRendered) -> EventMessage:
    """Describe the prompt."""
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


def model_waited(event: events.ModelWaited) -> EventMessage:
    """Describe the pause before the next try."""
    deadline = event.deadline_in
    left = f", {seconds_text(deadline)} left before the deadline" if deadline is not None else ""
    tried = f"(try {event.attempt} of {event.tries} failed{left})"
    return _hindrance(f"waiting {event.seconds:g} s for the model {tried}: {one_line(event.reason)}")


def cache_renewed(event: events.CacheRenewed) -> EventMessage:
    """Describe what it cost to keep the prompt cache during a long wait, so that the next request does not cost
    more."""
    title = f"the prompt cache was {'not ' if event.problem else ''}renewed during a long wait"
    fact = one_line(event.problem, REASON_SHOWN) if event.problem else count(event.usage.total, "token")
    return EventMessage(title=title, facts=(fact,))


def _hindrance(sentence: str) -> EventMessage:
    """Describe a problem between a prompt and its answer."""
    return EventMessage(title=one_line(sentence, REASON_SHOWN), tone=Tone.WARNING)


def model_turned(event: events.ModelTurned) -> EventMessage:
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
        parts=tuple(_block_part(block) for block in event.content if block.get("type") != "tool_use"),
        in_log=False,
        below=(*quote_lines(filter(None, said)), *(() if event.stop_reason in USUAL_STOPS else (stopped,))),
    )


def spoken(event: events.ModelTurned) -> str:
    """Return the prose of a turn. The words of a model between its calls may be its thinking. A structured answer has
    no prose, because its intent and reason are shown elsewhere."""
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    if event.stop_reason == "tool_use" and not text.strip():
        text = "".join(str(block.get("thinking", "")) for block in event.content if block.get("type") == "thinking")
    return "" if event.stop_reason != "tool_use" and text.lstrip().startswith("{") else text


def _block_part(block: JsonObject) -> Part:
    """Return the part that a page shows for a block. The input of a call is in the message of the call itself."""
    match block.get("type"):
        case "text":
            return Part("Text", str(block.get("text", "")))
        case "thinking":
            return Part("Thinking", str(block.get("thinking", "")), is_open=False)
        case _:
            return Part(one_line(str(block.get("type", "Block"))), block, is_open=False)


def tool_called(event: events.ToolCalled) -> EventMessage:
    """Describe a call and its output."""
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
        parts=(*_inputs(event.input), Part("Output", event.output)),
    )


def call_text(arguments: JsonObject) -> str:
    """Return the part of a tool's input that describes the call best."""
    for name in MAIN_INPUTS:
        value = arguments.get(name)
        if isinstance(value, str):
            return first_line(value, 120)
    return one_line(compact(arguments), 120) if arguments else ""


def _inputs(arguments: JsonObject) -> Iterator[Part]:
    """Yield long texts of the input with their line breaks, and the rest as JSON."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and "\n" in value}
    yield Part("Input", {name: value for name, value in arguments.items() if name not in texts})
    for name, value in texts.items():
        yield Part(f"Input: {one_line(name, 40)}", value)


def command_ran(event: events.CommandRan) -> EventMessage:
    """Describe a command from the agent's definition."""
    ended = "timed out" if event.timed_out else f"exit {event.exit_code}" if event.started else "did not start"
    return EventMessage(
        title=f"Command {one_line(shlex.join(event.argv), 120)}",
        tone=Tone.BAD if event.exit_code else Tone.TOOL,
        facts=(ended, seconds_text(event.seconds)),
        parts=(Part("Error", event.error), Part("Output", event.stdout), Part("Error output", event.stderr)),
        in_log=False,
    )


def user_message(event: events.UserMessage) -> EventMessage:
    """Describe what stepflow says in a conversation after the prompt."""
    why = one_line("; ".join(event.errors)) if event.errors else first_line(event.text)
    return EventMessage(
        title=f"{'format retry' if event.format_retry else 'asked'}: {why}",
        tone=Tone.WARNING if event.format_retry else Tone.PROMPT,
        parts=(Part("Errors", "\n".join(event.errors)), Part("Text", event.text)),
    )


def check_judged(event: events.CheckJudged) -> EventMessage:
    """Describe the outcome of a check-dialect step."""
    tone = Tone.GOOD if event.result == "ok" else Tone.BAD
    said = f": {one_line(event.message, 240)}" if event.message else ""
    return EventMessage(
        title=mark_title(tone, f"check {event.result}{said}"),
        tone=tone,
        parts=whole_part("Message", event.message, 240),
    )


def step_answered(event: events.StepAnswered) -> EventMessage:
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


def describe_route(event: events.Routed) -> EventMessage:
    """Describe where the flow continues."""
    if event.to is None:
        title = "→ completion" if event.transition in CLOSES else "no next step"
        return EventMessage(title=title, tone=Tone.ROUTE, more_facts=(event.transition,), in_log=False)
    return EventMessage(
        title=f"→ {one_line(event.to)}",
        tone=Tone.ROUTE,
        more_facts=(event.transition, *(("by the default for next",) if event.by_prefix else ())),
    )
