"""What a page shows of each event: a card with a title, figures and texts."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectStatus
from stepflow.domain.event import (
    AnswerLost,
    CanariesTried,
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
    UserSpoke,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count, usd
from stepflow.domain.json import JsonObject
from stepflow.report.html.put_in import put_in
from stepflow.report.markdown import ADDRESS
from stepflow.report.plain import first_line, one_line, seconds_text, visible
from stepflow.report.wording import FACT_SHOWN, describe_fact, describe_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.event import Event
    from stepflow.domain.json import JsonValue
    from stepflow.report.diff import FileDiff, StepDiff
    from stepflow.report.html.put_in import Template

#: Of a step with more files than these, each is opened by whoever wants to read it.
OPEN_FILES = 5
#: The input of a tool that says most about the call, by the tool set's own names.
TELLING_INPUTS = ("command", "file_path", "pattern", "path")
#: The transitions that ask whether the work is done (flow.md §7).
CLOSES = ("closing", "complete")


class Tone(StrEnum):
    """What sort of thing happened, shown as a colour and a sign beside it."""

    PROMPT = "prompt"
    MODEL = "model"
    TOOL = "tool"
    ROUTE = "route"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One text of a card. `is_open`: it is seen at once when the card is; `is_diff`: its lines are coloured; `puts` are
    begin, end and variable of what was put into it."""

    label: str
    text: str
    is_open: bool = True
    is_diff: bool = False
    puts: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """One event: what it was on one line, its figures, its texts, and where it leads."""

    title: str
    tone: Tone = Tone.PLAIN
    facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    url: str = ""


def text_part(label: str, text: str, *, is_open: bool = True) -> tuple[Part, ...]:
    """A part, none for a blank text."""
    return (Part(label=label, text=text, is_open=is_open),) if text.strip() else ()


def json_part(label: str, value: JsonValue, *, is_open: bool = True) -> tuple[Part, ...]:
    """A value as indented JSON, none for an empty one."""
    if value in (None, {}, []):
        return ()
    return (Part(label=label, text=json.dumps(value, ensure_ascii=False, indent=2), is_open=is_open),)


def diff_card(diff: StepDiff) -> Card:
    """The card of one iteration's diff."""
    added, removed = sum(file.added for file in diff.files), sum(file.removed for file in diff.files)
    figures = (count(len(diff.files), "file"), f"+{added:,} −{removed:,}") if diff.files else ()
    is_open = len(diff.files) <= OPEN_FILES
    return Card(
        title="What the step changed",
        facts=(*figures, *diff.notes),
        parts=tuple(Part(label=_label(file), text=file.text, is_open=is_open, is_diff=True) for file in diff.files),
    )


def _label(file: FileDiff) -> str:
    counted = f" (+{file.added:,} −{file.removed:,})" if file.added or file.removed else ""
    return f"{one_line(file.path, 120)}{counted}"


def step_card(event: Event, templates: Mapping[str, Template]) -> Card | None:  # noqa: PLR0911 - one per event
    """The card of one event in a step. The `templates` say what was put into a prompt."""
    match event:
        case IterationStarted():
            return Card(title=f"Iteration {event.iteration} begins", facts=(event.model,) if event.model else ())
        case PromptRendered():
            return _prompt(event, templates)
        case SchemaFailed():
            return Card(title=f"The answer schema failed: {one_line(event.reason, 300)}", tone=Tone.BAD)
        case ModelTurned():
            return _turn(event)
        case ToolCalled():
            return _tool(event)
        case CommandRan():
            return _command(event)
        case UserSpoke():
            return _said(event)
        case StepAnswered():
            return _step_answer(event)
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
    shown = next((arguments[name] for name in TELLING_INPUTS if isinstance(arguments.get(name), str)), "")
    return first_line(str(shown), 120)


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


def _step_answer(event: StepAnswered) -> Card:
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


TONES = {"warning": Tone.WARNING, "error": Tone.BAD}


TONE_OF_STATUS = {
    EffectStatus.APPLIED: Tone.GOOD,
    EffectStatus.FAILED: Tone.BAD,
    EffectStatus.FORBIDDEN: Tone.BAD,
}


def run_card(event: Event) -> Card:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """The card of one event outside the steps."""
    if fact := describe_fact(event):
        return _fact(event, *fact)
    match event:
        case RunStarted():
            return _start(event)
        case RunResumed():
            title = f"The run goes on in {one_line(event.step_id)}" if event.step_id else "The run goes on"
            return Card(title=title, tone=Tone.WARNING, facts=(f"after event {event.events:,}",))
        case SnapshotTaken():
            figures = (count(event.bytes, "byte"), seconds_text(event.seconds))
            return Card(title=f"Snapshot of {count(event.files, 'changed file')}", facts=(event.name[:12], *figures))
        case ValidatorRan():
            return _validator(event)
        case CompletionJudged():
            return _judged(event)
        case FlowEnded():
            return _flow_ended(event)
        case WorkCollected():
            return _work(event)
        case EffectPlanned():
            return Card(title=f"Planned: {event.kind} {one_line(event.detail)}".rstrip())
        case EffectApplied():
            return _effect(event)
        case FailureReported():
            return Card(title="The issue was told of the failure", parts=text_part("", event.detail), url=event.url)
        case Noted():
            return _note(event)
        case RunFinished():
            return _finished(event)
        case _:
            fields = asdict(event)
            return Card(title=str(fields.pop("event")).replace("_", " "), parts=json_part("", fields, is_open=False))


def web_address(url: str) -> str:
    """An address that may be a link; anything else is none."""
    return url if ADDRESS.fullmatch(url) else ""


def _start(event: RunStarted) -> Card:
    issue = f" on issue #{event.issue}" if event.issue is not None else ""
    return Card(
        title=f"The run begins: {one_line(event.agent)}{issue}",
        facts=tuple(filter(None, (event.repository, event.base_commit[:12], f"at most {event.max_iterations:,}"))),
        parts=(
            *json_part("Arguments", event.args),
            *text_part("What the model is told of the issue", event.context_text, is_open=False),
            *json_part("Options", event.options, is_open=False),
            *json_part("Sandbox", dict(event.isolation), is_open=False),
        ),
    )


def _validator(event: ValidatorRan) -> Card:
    if event.passed:
        state = "passed"
    else:
        attempt = f"attempt {event.attempt} of {event.max_attempts}" if event.recoverable else "for good"
        state = f"failed, {attempt}" + (f", then {event.action}" if event.action else "")
    exited = (f"exit {event.exit_code}",) if event.passed or event.exit_code else ()
    return Card(
        title=f"{'✓' if event.passed else '✗'} {one_line(event.name)} {state}",
        tone=Tone.GOOD if event.passed else Tone.BAD,
        facts=(*exited, *filter(None, (event.pattern,)), seconds_text(event.seconds)),
        parts=(
            *text_part("Warnings", "\n".join(event.warnings)),
            *text_part("Put back in HOME and TMPDIR", "\n".join(event.restored)),
            *text_part("Output", event.output_tail),
        ),
    )


def _judged(event: CompletionJudged) -> Card:
    if event.done:
        red = "" if event.validated else ", with a red validator that may be skipped"
        return Card(title=f"✓ Done{red}", tone=Tone.GOOD)
    if event.retry_prompt is None:
        return Card(title="✗ Not done, and no attempt is left", tone=Tone.BAD)
    source = (event.retry_source,) if event.retry_source else ()
    title = f"Not done: back to {one_line(event.step_id)}"
    return Card(title=title, tone=Tone.WARNING, facts=source, parts=text_part("Retry prompt", event.retry_prompt))


def _flow_ended(event: FlowEnded) -> Card:
    return Card(
        title=f"The flow ended: {event.outcome}",
        facts=("validated" if event.validated else "not validated",),
        parts=(*text_part("Reason", event.reason), *json_part("Closing answer", event.answer, is_open=False)),
    )


def _work(event: WorkCollected) -> Card:
    left = "\n".join(event.uncommitted)
    return Card(
        title=f"The work was collected: {count(event.commits, 'commit')}",
        tone=Tone.WARNING if left or not event.as_validated else Tone.PLAIN,
        facts=tuple(filter(None, (event.head_commit[:12], "" if event.as_validated else "not as validated"))),
        parts=(*text_part("Not committed", left), *text_part("Made by the checks", "\n".join(event.created_by_checks))),
    )


def _effect(event: EffectApplied) -> Card:
    return Card(
        title=f"{event.kind} {event.status} {one_line(event.detail)}".rstrip(),
        tone=TONE_OF_STATUS.get(event.status, Tone.PLAIN),
        facts=(event.commit[:12],) if event.commit else (),
        url=event.url,
    )


def _fact(event: Event, is_warning: bool, text: str) -> Card:
    """A fact that logs show too, with what they leave out."""
    facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    match event:
        case AnswerLost():
            parts = text_part("Reason", event.reason)
        case ContextCompacted():
            facts, parts = (f"{count(event.left, 'character')} left",), text_part("Reason", event.reason)
        case CanariesTried():
            parts = json_part("Places", dict(event.canaries), is_open=False)
        case _:
            pass
    tone = Tone.WARNING if is_warning else Tone.PLAIN
    return Card(title=one_line(text, FACT_SHOWN), tone=tone, facts=facts, parts=parts)


def _note(event: Noted) -> Card:
    texts = {name: value for name, value in event.data.items() if isinstance(value, str) and "\n" in value}
    rest = {name: value for name, value in event.data.items() if name not in texts}
    return Card(
        title=one_line(event.message, 300),
        tone=TONES.get(event.level, Tone.PLAIN),
        parts=(
            *json_part("Data", rest, is_open=False),
            *(part for name, text in texts.items() for part in text_part(one_line(name, 40), text, is_open=False)),
        ),
    )


def _finished(event: RunFinished) -> Card:
    reason = describe_reason(event.outcome, event.reason)
    tone = Tone.GOOD if event.success else Tone.BAD
    return Card(title=f"The run ended: {event.outcome}", tone=tone, parts=text_part("Reason", reason))
