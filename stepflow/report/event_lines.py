"""The lines of one event for people who watch a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepflow.domain.checkout import named
from stepflow.domain.effect import EffectStatus
from stepflow.domain.event import (
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    ModelTurned,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    StepAnswered,
    ToolCalled,
    UserSpoke,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count
from stepflow.domain.json import JsonObject, compact
from stepflow.report.lines import WIDTH, LineKind, LogLine, line
from stepflow.report.log import restored_words, resumed_words
from stepflow.report.plain import clean, first_line, first_lines, last_lines, one_line, seconds_text
from stepflow.report.wording import FACT_SHOWN, describe_fact, describe_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.event import Event

WORDS_SHOWN = 8
#: The input of a tool that says most about the call, by the tool set's own names.
TELLING_INPUTS = ("command", "file_path", "pattern", "path")
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")
#: What a watcher of a run that is closed in wants to know of the sandbox.
LAYERS_SHOWN = ("network", "credentials")
TAIL_SHOWN = 6
RETRY_SHOWN = 12
#: Beginnings of log entries that an event of their own shows better, with its reason, prompt or detail.
HAS_OWN_EVENT = ("[Format] retry ", "[Boundary] planned")
#: What a log entry may bring along that most readers need not see: the output of a set-up, the trace of a bug.
FOLDED_DATA = ("output", "traceback")
FOLDED_SHOWN = 400
#: Room for the mark at the left edge.
FULL_WIDTH = WIDTH - 2


def step_lines(event: Event) -> tuple[LogLine, ...]:  # noqa: PLR0911 - one return per event is the table
    """What a watcher sees of one event inside a step."""
    match event:
        case PromptRendered():
            return (line(LineKind.DETAIL, _prompt(event)),)
        case SchemaFailed():
            return (line(LineKind.BAD, f"✗ answer schema: {one_line(event.reason)} ({event.strikes} of 2)"),)
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


def _words(event: ModelTurned) -> tuple[LogLine, ...]:
    text = spoken(event)
    if event.stop_reason == "tool_use":
        said = first_line(text)
        return (line(LineKind.WORDS, f"│ {said}"),) if said else ()
    words = tuple(line(LineKind.WORDS, f"│ {words}") for words in last_lines(text, WORDS_SHOWN))
    if event.stop_reason in USUAL_STOPS:
        return words
    return (*words, line(LineKind.WARNING, f"the model stopped: {one_line(event.stop_reason)}"))


def spoken(event: ModelTurned) -> str:
    """The prose of a turn. What counts of a structured answer is shown elsewhere, as intent and reason."""
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    return "" if event.stop_reason != "tool_use" and text.lstrip().startswith("{") else text


def _tool(event: ToolCalled) -> LogLine:
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


def _answer(event: StepAnswered) -> LogLine:
    reason = f": {one_line(event.reason, 240)}" if event.reason else ""
    if event.intent is None:
        return line(LineKind.BAD, f"✗ no intent{reason}")
    target = f" to {one_line(event.target)}" if event.target else ""
    return line(LineKind.INTENT, f"intent {event.intent}{target}{reason}")


def end_lines(event: Event) -> tuple[LogLine, ...]:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """What a watcher sees of one event outside the steps."""
    if fact := describe_fact(event):
        return (line(LineKind.WARNING if fact[0] else LineKind.DETAIL, one_line(fact[1], FACT_SHOWN)),)
    match event:
        case RunStarted():
            return _start(event)
        case RunResumed():
            return (line(LineKind.RUN, f"The run is {resumed_words(event)}"),)
        case ValidatorRan():
            return _validator(event)
        case CompletionJudged():
            return _judged(event)
        case FlowEnded():
            return (line(LineKind.RUN, f"The flow ended: {event.outcome}."),)
        case WorkCollected():
            return _work(event)
        case EffectPlanned():
            return (line(LineKind.DETAIL, f"planned: {event.kind} {one_line(event.detail)}"),)
        case EffectApplied():
            return (_receipt(event),)
        case FailureReported():
            return (_failure(event),)
        case Noted():
            return _note(event)
        case RunFinished():
            kind, mark = (LineKind.GOOD, "✓") if event.success else (LineKind.BAD, "✗")
            return (
                line(kind, f"{mark} {event.outcome}: {one_line(describe_reason(event.outcome, event.reason), 300)}"),
            )
        case _:
            return ()


def _start(event: RunStarted) -> tuple[LogLine, ...]:
    issue = f"#{event.issue}" if event.issue is not None else ""
    place = f" on {one_line(event.repository)}{issue}" if event.repository or issue else ""
    begins = line(LineKind.RUN, f"Agent {one_line(event.agent)}{place}, run {one_line(event.run_id)}")
    return (begins, *_sandbox(event.isolation))


def _sandbox(isolation: Mapping[str, str]) -> Iterator[LogLine]:
    """One line, with the layers aside. A layer that does not hold has a warning of its own."""
    if isolation:
        named_layers = (f"{layer} {isolation[layer].partition(':')[0]}" for layer in LAYERS_SHOWN if layer in isolation)
        layers = ", ".join((count(len(isolation), "layer"), *named_layers))
        yield line(LineKind.FOLD, f"sandbox: {one_line(layers, 200)}")
        for layer, state in isolation.items():
            yield line(LineKind.ASIDE, f"{one_line(layer)}: {one_line(state, 200)}")


def _validator(event: ValidatorRan) -> tuple[LogLine, ...]:
    name = one_line(event.name)
    # A red validator that exited with 0 failed by its output: the figure would only puzzle.
    exited = f"exit {event.exit_code}, " if event.passed or event.exit_code else ""
    ended = f"({exited}{seconds_text(event.seconds)})"
    restored = (line(LineKind.DETAIL, f"guard: {one_line(restored_words(event), 300)}"),) if event.restored else ()
    warnings = (*restored, *(line(LineKind.WARNING, f"guard: {one_line(text, 300)}") for text in event.warnings))
    if event.passed:
        return (line(LineKind.GOOD, f"✓ {name} {ended}"), *warnings)
    what = f"failed, attempt {event.attempt} of {event.max_attempts}" if event.recoverable else "failed for good"
    leads = f" → {event.action}" if event.action else ""
    tail = (line(LineKind.WORDS, f"│ {text}") for text in last_lines(event.output_tail, TAIL_SHOWN))
    return (line(LineKind.BAD, f"✗ {name} {what}{leads} {ended}"), *warnings, *tail)


def _judged(event: CompletionJudged) -> tuple[LogLine, ...]:
    if event.done:
        red = "" if event.validated else ", with a red validator that may be skipped"
        return (line(LineKind.GOOD, f"✓ done{red}"),)
    if event.retry_prompt is None:
        return (line(LineKind.BAD, "✗ not done, and no attempt is left"),)
    asked = (line(LineKind.WORDS, f"│ {text}") for text in first_lines(event.retry_prompt, RETRY_SHOWN))
    return (line(LineKind.WARNING, f"not done: back to {one_line(event.step_id)} with this retry prompt"), *asked)


def _work(event: WorkCollected) -> tuple[LogLine, ...]:
    lines = [line(LineKind.DETAIL, f"commits of this run: {event.commits}")]
    if event.created_by_checks:
        lines.append(
            line(LineKind.DETAIL, f"made by the checks, so it stays here: {one_line(named(event.created_by_checks))}")
        )
    if event.uncommitted:
        lines.append(
            line(LineKind.WARNING, f"not committed, so it stays here: {one_line(', '.join(event.uncommitted))}")
        )
    return tuple(lines)


def _receipt(event: EffectApplied) -> LogLine:
    detail = one_line(event.url or event.detail)
    what = f"{event.kind} {event.status}{': ' if detail else ''}{detail}"
    match event.status:
        case EffectStatus.APPLIED:
            return line(LineKind.GOOD, f"✓ {what}")
        case EffectStatus.FAILED | EffectStatus.FORBIDDEN:
            return line(LineKind.BAD, f"✗ {what}")
        case _:
            return line(LineKind.DETAIL, what)


def _failure(event: FailureReported) -> LogLine:
    if event.url:
        return line(LineKind.DETAIL, f"the issue's comment tells what happened: {one_line(event.url)}")
    return line(LineKind.WARNING, one_line(event.detail, 300))


def _note(event: Noted) -> tuple[LogLine, ...]:
    if event.message.startswith(HAS_OWN_EVENT):
        return ()
    kinds = {"warning": LineKind.WARNING, "error": LineKind.BAD, "info": LineKind.DETAIL}
    kind = kinds.get(event.level)
    if kind is None:
        return ()
    folded = "\n".join(str(event.data[name]) for name in FOLDED_DATA if event.data.get(name))
    inside = tuple(line(LineKind.FOLDED, text) for text in last_lines(folded, FOLDED_SHOWN))
    return (line(LineKind.FOLD if inside else kind, one_line(event.message, 300)), *inside)


def full_lines(event: Event) -> tuple[LogLine, ...]:
    """What was asked or answered, word by word."""
    match event:
        case PromptRendered():
            texts = [("system prompt", event.system), *(("prompt", block) for block in event.blocks)]
        case UserSpoke():
            texts = [("asked", event.text)]
        case ModelTurned():
            texts = [("answer", _block_text(block)) for block in event.content]
        case _:
            texts = []
    return tuple(each for title, text in texts for each in _full_text(title, text))


def _block_text(block: JsonObject) -> str:
    """The text of a text block; anything else, such as a tool call, as JSON."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return json.dumps(block, ensure_ascii=False, indent=2)


def _full_text(title: str, text: str) -> Iterator[LogLine]:
    yield line(LineKind.DETAIL, f"{title}, in full:")
    for whole in clean(text).split("\n"):
        for start in range(0, max(len(whole), 1), FULL_WIDTH):
            yield line(LineKind.WORDS, f"│ {whole[start : start + FULL_WIDTH]}")
