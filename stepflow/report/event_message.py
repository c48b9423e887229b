"""What people read of each event: a title, facts and texts. A log shows the title and a few lines, a page all of it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.checkout import named
from stepflow.domain.event import (
    AnswerLost,
    BaseChecked,
    CanariesTried,
    CheckJudged,
    CommandRan,
    CompletionJudged,
    ContextCompacted,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    IterationStarted,
    ModelTurned,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    SnapshotTaken,
    StepAnswered,
    ToolCalled,
    ToolStarted,
    UserMessage,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count, usd
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.secrets import MASK
from stepflow.report.lines import (
    FAILED,
    KINDS,
    PASSED,
    EventMessage,
    LineKind,
    LogLine,
    Part,
    Tone,
    line,
    mark_of,
    part,
    whole_lines,
)
from stepflow.report.plain import first_line, first_lines, last_lines, one_line, seconds_text, visible
from stepflow.report.wording import (
    Fact,
    describe_changes,
    describe_fact,
    describe_outcome,
    describe_reason,
    describe_restored,
    describe_resumed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.domain.event import Event

WORDS_SHOWN = 8
#: Of a longer prompt a page leaves out the middle, and marks nothing.
PROMPT_MARKED = 20_000
#: The input of a tool that says most about the call, by the tool set's own names.
MAIN_INPUTS = ("command", "file_path", "pattern", "path")
USUAL_STOPS = ("end_turn", "tool_use", "stop_sequence")
#: The transitions that ask whether the work is done (flow.md §7).
CLOSES = ("closing", "complete")
#: What a watcher of a run that is closed in wants to know of the sandbox.
LAYERS_SHOWN = ("network", "credentials")
TAIL_SHOWN = 6
RETRY_SHOWN = 12
REASON_SHOWN = 300
#: Beginnings of log entries that an event of their own shows better, with its reason, prompt or detail.
HAS_OWN_EVENT = ("[Format] retry ", "[Boundary] planned")
#: What a log entry may bring along that most readers need not see: the output of a set-up, the trace of a bug.
FOLDED_DATA = ("output", "traceback")
FOLDED_SHOWN = 400
TONE_OF_LEVEL = {"info": Tone.PLAIN, "warning": Tone.WARNING, "error": Tone.BAD}
#: What a title begins with.
PREFIXES = {Tone.GOOD: f"{PASSED.text} ", Tone.TOOL: f"{PASSED.text} ", Tone.BAD: f"{FAILED.text} "}


def event_lines(event: Event) -> tuple[LogLine, ...]:
    """What a watcher sees of one event."""
    message = describe_event(event)
    if message is None:
        return ()
    if not message.in_log:
        return message.below
    facts = f" ({', '.join(message.facts)})" if message.facts else ""
    return (line(KINDS.get(message.tone, LineKind.DETAIL), f"{message.title}{facts}"), *message.below)


def describe_event(event: Event) -> EventMessage | None:  # noqa: PLR0911, PLR0912 - one case per event
    """The message of one event; None for the start of a tool, whose end has it."""
    if isinstance(event, Fact):
        return _fact(event)
    match event:
        case RunStarted():
            return _run_started(event)
        case RunResumed():
            return EventMessage(title=f"The run is {describe_resumed(event)}", tone=Tone.RUN)
        case IterationStarted():
            return _iteration_started(event)
        case PromptRendered():
            return _prompt_rendered(event)
        case SchemaFailed():
            title = f"✗ answer schema: {one_line(event.reason)}"
            return EventMessage(title=title, tone=Tone.BAD, facts=(f"{event.strikes} of 2",))
        case ModelTurned():
            return _model_turned(event)
        case ToolStarted():
            return None
        case ToolCalled():
            return _tool_called(event)
        case CommandRan():
            return _command_ran(event)
        case UserMessage():
            return _user_message(event)
        case CheckJudged():
            return _check_judged(event)
        case StepAnswered():
            return _step_answered(event)
        case Routed():
            return _routed(event)
        case SnapshotTaken():
            title = f"Snapshot of {count(event.files, 'changed file')}"
            facts = (event.name[:12], count(event.bytes, "byte"), seconds_text(event.seconds))
            return EventMessage(title=title, facts=facts, in_log=False)
        case BaseChecked():
            return _base_checked(event)
        case ValidatorRan():
            return _validator_ran(event)
        case CompletionJudged():
            return _completion_judged(event)
        case FlowEnded():
            return _flow_ended(event)
        case WorkCollected():
            return _work_collected(event)
        case EffectPlanned():
            title = f"planned: {event.kind} {one_line(event.detail)}".rstrip()
            below = tuple(whole_lines(event.text)) if event.text else ()
            return EventMessage(title=title, parts=part("text", event.text), below=below)
        case EffectApplied():
            return _effect_applied(event)
        case FailureReported():
            return _failure_reported(event)
        case Noted():
            return _noted(event)
        case RunFinished():
            return _run_finished(event)
        case _:
            assert_never(event)


def _iteration_started(event: IterationStarted) -> EventMessage:
    facts = (event.model,) if event.model else ()
    return EventMessage(title=f"Iteration {event.iteration} begins", facts=facts, in_log=False)


def _command_ran(event: CommandRan) -> EventMessage:
    ended = "timed out" if event.timed_out else f"exit {event.exit_code}" if event.started else "did not start"
    return EventMessage(
        title=f"Command {one_line(shlex.join(event.argv), 120)}",
        tone=Tone.BAD if event.exit_code else Tone.TOOL,
        facts=(ended, seconds_text(event.seconds)),
        parts=(*part("Error", event.error), *part("Output", event.stdout), *part("Error output", event.stderr)),
        in_log=False,
    )


def _user_message(event: UserMessage) -> EventMessage:
    why = one_line("; ".join(event.errors)) if event.errors else first_line(event.text)
    return EventMessage(
        title=f"{'format retry' if event.format_retry else 'asked'}: {why}",
        tone=Tone.WARNING if event.format_retry else Tone.PROMPT,
        parts=(*part("Errors", "\n".join(event.errors)), *part("Text", event.text)),
    )


def _check_judged(event: CheckJudged) -> EventMessage:
    tone = Tone.GOOD if event.result == "ok" else Tone.BAD
    said = f": {one_line(event.message, 240)}" if event.message else ""
    title = f"{PREFIXES[tone]}check {event.result}{said}"
    return EventMessage(title=title, tone=tone, parts=_whole_text("Message", event.message, 240))


def _routed(event: Routed) -> EventMessage:
    on = "→ completion" if event.transition in CLOSES else "no way on"
    return EventMessage(
        title=f"→ {one_line(event.to)}" if event.to is not None else on,
        tone=Tone.ROUTE,
        more_facts=(event.transition, *(("by the default for next",) if event.by_prefix else ())),
        in_log=event.to is not None,
    )


def _flow_ended(event: FlowEnded) -> EventMessage:
    return EventMessage(
        title=f"The flow ended: {event.outcome}.",
        tone=Tone.RUN,
        more_facts=("validated",) if event.validated else (),
        parts=(*part("Reason", event.reason), *part("Closing answer", event.answer, is_open=False)),
    )


def _effect_applied(event: EffectApplied) -> EventMessage:
    tone, detail = mark_of(event.status).tone, one_line(event.url or event.detail)
    return EventMessage(
        title=f"{PREFIXES.get(tone, '')}{event.kind} {event.status}{': ' if detail else ''}{detail}",
        tone=tone,
        more_facts=(event.commit[:12],) if event.commit else (),
        parts=part("Detail", event.detail) if event.url else (),
        url=event.url,
    )


def _failure_reported(event: FailureReported) -> EventMessage:
    commented = f"the issue's comment tells what happened: {one_line(event.url)}"
    return EventMessage(
        title=commented if event.url else one_line(event.detail, REASON_SHOWN),
        tone=Tone.PLAIN if event.url else Tone.WARNING,
        parts=part("", event.detail),
        url=event.url,
    )


def _run_finished(event: RunFinished) -> EventMessage:
    tone, reason = Tone.GOOD if event.success else Tone.BAD, describe_reason(event.reason)
    title = f"{PREFIXES[tone]}{describe_outcome(event.outcome)}: {one_line(reason, REASON_SHOWN)}"
    return EventMessage(title=title, tone=tone, parts=_whole_text("Reason", reason, REASON_SHOWN))


def _run_started(event: RunStarted) -> EventMessage:
    issue = f"#{event.issue}" if event.issue is not None else ""
    where = f" on {one_line(event.repository)}{issue}" if event.repository or issue else ""
    return EventMessage(
        title=f"Agent {one_line(event.agent)}{where}, run {one_line(event.run_id)}",
        tone=Tone.RUN,
        more_facts=tuple(filter(None, (event.base_commit[:12], f"at most {count(event.max_iterations, 'iteration')}"))),
        parts=(
            *part("Arguments", event.args),
            *part("What the model is shown of the issue", event.context_text, is_open=False),
            *part("Options", event.options, is_open=False),
            *part("Sandbox", {**event.isolation}, is_open=False),
        ),
        below=tuple(_sandbox(event.isolation)),
    )


def _sandbox(isolation: Mapping[str, str]) -> Iterator[LogLine]:
    """One line, with the layers aside. A layer that does not hold has a warning of its own."""
    if isolation:
        named_layers = (f"{layer} {isolation[layer].partition(':')[0]}" for layer in LAYERS_SHOWN if layer in isolation)
        layers = ", ".join((count(len(isolation), "layer"), *named_layers))
        yield line(LineKind.FOLD, f"sandbox: {one_line(layers, 200)}")
        for layer, state in isolation.items():
            yield line(LineKind.ASIDE, f"{one_line(layer)}: {one_line(state, 200)}")


def _prompt_rendered(event: PromptRendered) -> EventMessage:
    kind = "retry prompt" if event.retry else "prompt"
    first, *context = event.blocks or ("",)
    # What is masked has another length than what it stands for.
    puts = () if MASK in first or len(first) > PROMPT_MARKED else event.substitutions
    names = ", ".join(dict.fromkeys(put.name for put in event.substitutions))
    marks = tuple((_utf16_units(first[: put.start]), _utf16_units(first[: put.end]), put.name) for put in puts)
    return EventMessage(
        title=f"{kind}: {one_line(event.source)}; tools: {one_line(', '.join(event.tools)) or 'none'}",
        tone=Tone.PROMPT,
        more_facts=(f"put in: {names}",) if names else (),
        parts=(
            *part("System prompt", event.system, is_open=False),
            *(replace(each, puts=marks) for each in part("Prompt", first)),
            *(each for text in context for each in part("Context", text)),
        ),
    )


def _utf16_units(text: str) -> int:
    """How long a browser counts the text as it is shown."""
    return len(visible(text).encode("utf-16-le", "surrogatepass")) // 2


def _model_turned(event: ModelTurned) -> EventMessage:
    """Of an answer a log shows the prose, which a page has among the parts."""
    called = [str(block.get("name", "")) for block in event.content if block.get("type") == "tool_use"]
    facts = (event.model, f"stopped: {event.stop_reason}", count(event.usage.total, "token"), usd(event.cost_usd))
    text = spoken(event)
    if event.stop_reason == "tool_use":
        said: Iterable[str] = filter(None, (first_line(text),))
    else:
        said = last_lines(text, WORDS_SHOWN)
    stopped = line(LineKind.WARNING, f"the model stopped: {one_line(event.stop_reason)}")
    return EventMessage(
        title=one_line(f"The model calls {', '.join(called)}" if called else "The model answers"),
        tone=Tone.MODEL,
        facts=(*filter(None, facts), seconds_text(event.seconds)),
        parts=tuple(each for block in event.content for each in _block(block)),
        in_log=False,
        below=(*_quoted(said), *(() if event.stop_reason in USUAL_STOPS else (stopped,))),
    )


def spoken(event: ModelTurned) -> str:
    """The prose of a turn. What counts of a structured answer is shown elsewhere, as intent and reason."""
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    return "" if event.stop_reason != "tool_use" and text.lstrip().startswith("{") else text


def _block(block: JsonObject) -> tuple[Part, ...]:
    match block.get("type"):
        case "text":
            return part("Text", str(block.get("text", "")))
        case "thinking":
            return part("Thinking", str(block.get("thinking", "")), is_open=False)
        case "tool_use":
            # The message of the call itself has its input.
            return ()
        case _:
            return part(one_line(str(block.get("type", "Block"))), block, is_open=False)


def _quoted(texts: Iterable[str]) -> tuple[LogLine, ...]:
    return tuple(line(LineKind.WORDS, f"│ {text}") for text in texts)


def _tool_called(event: ToolCalled) -> EventMessage:
    if event.denied:
        ended = ["denied: the step may not use it"]
    elif event.exit_code is not None:
        ended = [f"exit {event.exit_code}"]
    else:
        ended = [first_line(event.output, 80) or "error"] if event.is_error else []
    tone = Tone.BAD if event.is_error or event.denied or event.exit_code else Tone.TOOL
    return EventMessage(
        title=f"{PREFIXES[tone]}{one_line(event.name, 40)} {call_text(event.input)}".rstrip(),
        tone=tone,
        facts=(*ended, seconds_text(event.seconds)),
        parts=(*_inputs(event.input), *part("Output", event.output)),
    )


def call_text(arguments: JsonObject) -> str:
    """The part of a tool's input that says most about the call."""
    for name in MAIN_INPUTS:
        value = arguments.get(name)
        if isinstance(value, str):
            return first_line(value, 120)
    return one_line(compact(arguments), 120) if arguments else ""


def _inputs(arguments: JsonObject) -> Iterator[Part]:
    """Long texts of the input with their line breaks; the rest as JSON."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and "\n" in value}
    yield from part("Input", {name: value for name, value in arguments.items() if name not in texts})
    for name, value in texts.items():
        yield from part(f"Input: {one_line(name, 40)}", value)


def _step_answered(event: StepAnswered) -> EventMessage:
    reason = f": {one_line(event.reason, 240)}" if event.reason else ""
    target = f" to {one_line(event.target)}" if event.target else ""
    return EventMessage(
        title=f"intent {event.intent}{target}{reason}" if event.intent else f"✗ no intent{reason}",
        tone=Tone.ROUTE if event.intent else Tone.BAD,
        more_facts=(f"violation: {one_line(event.violation, 200)}",) if event.violation else (),
        parts=(
            *_whole_text("Reason", event.reason, 240),
            *part("Answer", event.answer),
            *part("Handed off", event.handoff, is_open=False),
        ),
    )


def _whole_text(label: str, text: str, shown: int) -> tuple[Part, ...]:
    """A text of which the title shows only a part."""
    return part(label, text) if len(text) > shown or "\n" in text.strip() else ()


def _validator_ran(event: ValidatorRan) -> EventMessage:
    if event.passed:
        state = ""
    else:
        attempt = f"attempt {event.attempt} of {event.max_attempts}" if event.recoverable else "for good"
        state = f" failed{', ' if event.recoverable else ' '}{attempt}{f' → {event.action}' if event.action else ''}"
    # A red validator that exited with 0 failed by its output: the figure would only puzzle.
    exited = (f"exit {event.exit_code}",) if event.passed or event.exit_code else ()
    restored = (line(LineKind.DETAIL, f"guard: {one_line(describe_restored(event), 300)}"),) if event.restored else ()
    warnings = (line(LineKind.WARNING, f"guard: {one_line(text, 300)}") for text in event.warnings)
    tone = Tone.GOOD if event.passed else Tone.BAD
    return EventMessage(
        title=f"{PREFIXES[tone]}{one_line(event.name)}{state}",
        tone=tone,
        facts=(*exited, seconds_text(event.seconds)),
        more_facts=(event.pattern,) if event.pattern else (),
        parts=(
            *part("Warnings", "\n".join(event.warnings)),
            *part("Put back in HOME and TMPDIR", "\n".join(event.restored)),
            *part("Output", event.output_tail),
        ),
        below=(
            *restored,
            *warnings,
            *(() if event.passed else _quoted(last_lines(event.output_tail, TAIL_SHOWN))),
        ),
    )


def _base_checked(event: BaseChecked) -> EventMessage:
    state, exited = ("green", ()) if event.passed else ("red", (f"exit {event.exit_code}",) if event.exit_code else ())
    return EventMessage(
        title=f"before the run: {one_line(event.name)} is {state}",
        tone=Tone.PLAIN if event.passed else Tone.WARNING,
        facts=(*exited, seconds_text(event.seconds)),
        parts=(*part("Command", event.command), *part("Output", event.output_tail)),
        below=() if event.passed else _quoted(last_lines(event.output_tail, TAIL_SHOWN)),
    )


def _completion_judged(event: CompletionJudged) -> EventMessage:
    if event.done:
        red = "" if event.validated else ", with a red validator that may be skipped"
        return EventMessage(title=f"✓ done{red}", tone=Tone.GOOD)
    if event.retry_prompt is None:
        return EventMessage(title="✗ not done, and no attempt is left", tone=Tone.BAD)
    return EventMessage(
        title=f"not done: back to {one_line(event.step_id)} with this retry prompt",
        tone=Tone.WARNING,
        more_facts=(event.retry_source,) if event.retry_source else (),
        parts=part("Retry prompt", event.retry_prompt),
        below=_quoted(first_lines(event.retry_prompt, RETRY_SHOWN)),
    )


def _work_collected(event: WorkCollected) -> EventMessage:
    left = f"not committed, so it stays here: {one_line(', '.join(event.uncommitted))}"
    made = f"made by the checks, so it stays here: {one_line(named(event.created_by_checks))}"
    return EventMessage(
        title=f"commits of this run: {event.commits}",
        tone=Tone.WARNING if event.uncommitted else Tone.PLAIN,
        more_facts=tuple(filter(None, (event.head_commit[:12], describe_changes(event.changes)))),
        parts=(
            *part("Not committed", "\n".join(event.uncommitted)),
            *part("Made by the checks", "\n".join(event.created_by_checks)),
        ),
        below=(
            *((line(LineKind.DETAIL, made),) if event.created_by_checks else ()),
            *((line(LineKind.WARNING, left),) if event.uncommitted else ()),
        ),
    )


def _noted(event: Noted) -> EventMessage:
    title, tone = one_line(event.message, REASON_SHOWN), TONE_OF_LEVEL.get(event.level)
    texts = {name: value for name, value in event.data.items() if isinstance(value, str) and "\n" in value}
    rest = {name: value for name, value in event.data.items() if name not in texts}
    shown = tone is not None and not event.message.startswith(HAS_OWN_EVENT)
    folded = "\n".join(str(event.data[name]) for name in FOLDED_DATA if event.data.get(name)) if shown else ""
    inside = [line(LineKind.FOLDED, text) for text in last_lines(folded, FOLDED_SHOWN)]
    return EventMessage(
        title=title,
        tone=tone or Tone.PLAIN,
        parts=(
            *part("Data", rest, is_open=False),
            *(each for name, text in texts.items() for each in part(one_line(name, 40), text, is_open=False)),
        ),
        in_log=shown and not inside,
        below=(line(LineKind.FOLD, title), *inside) if inside else (),
    )


def _fact(event: Fact) -> EventMessage:
    """A fact that all reports word alike, with what the sentence leaves out."""
    fact = describe_fact(event)
    more_facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    match event:
        case AnswerLost():
            parts = part("Reason", event.reason)
        case ContextCompacted():
            more_facts, parts = (f"{count(event.left, 'character')} left",), part("Reason", event.reason)
        case CanariesTried():
            parts = part("Places", {**event.canaries}, is_open=False)
        case _:
            pass
    tone = Tone.WARNING if fact[0] else Tone.PLAIN
    return EventMessage(title=one_line(fact[1], REASON_SHOWN), tone=tone, more_facts=more_facts, parts=parts)
