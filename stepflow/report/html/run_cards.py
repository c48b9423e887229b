"""What happens around the steps, as cards: start, completion, boundary, end.

Takes: one event. Gives: its card; one with all its fields for an event that has no words of its own.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectStatus
from stepflow.domain.event import (
    CanariesTried,
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    LayerTold,
    Noted,
    RunFinished,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    TextRemoved,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count
from stepflow.domain.removal import count_kinds
from stepflow.report.html.card import Card, Tone, json_part, text_part
from stepflow.report.markdown import ADDRESS
from stepflow.report.plain import one_line, seconds_text
from stepflow.report.wording import canaries_told, fact_told, reached_places, told_reason

if TYPE_CHECKING:
    from stepflow.domain.event import Event

TONES = {"warning": Tone.WARNING, "error": Tone.BAD}
TONE_OF_STATUS = {
    EffectStatus.APPLIED: Tone.GOOD,
    EffectStatus.FAILED: Tone.BAD,
    EffectStatus.FORBIDDEN: Tone.BAD,
}


def run_card(event: Event) -> Card:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """The card of one event outside the steps."""
    match event:
        case RunStarted():
            return _start(event)
        case RunResumed():
            told = f"The run goes on in {one_line(event.step_id)}" if event.step_id else "The run goes on"
            return Card(title=told, tone=Tone.WARNING, facts=(f"after event {event.events:,}",))
        case SnapshotTaken():
            figures = (count(event.bytes, "byte"), seconds_text(event.seconds))
            return Card(title=f"Snapshot of {count(event.files, 'changed file')}", facts=(event.name[:12], *figures))
        case CanariesTried():
            return _tried(event)
        case TextRemoved():
            return _removed(event)
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
        case SnapshotFailed() | LayerTold() | IssueCostSummed():
            return _fact(event)
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


def _tried(event: CanariesTried) -> Card:
    tone = Tone.WARNING if reached_places(event.canaries) else Tone.PLAIN
    told = f"Self-test of the sandbox: {one_line(canaries_told(event.canaries), 300)}"
    return Card(title=told, tone=tone, parts=json_part("Places", dict(event.canaries), is_open=False))


def _removed(event: TextRemoved) -> Card:
    kinds = one_line(count_kinds(tuple(event.pieces)), 300)
    told = f"{count(event.count, 'hidden piece')} of the issue's text removed: {kinds}"
    return Card(title=told, tone=Tone.WARNING)


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
    told = f"Not done: back to {one_line(event.step_id)}"
    return Card(title=told, tone=Tone.WARNING, facts=source, parts=text_part("Retry prompt", event.retry_prompt))


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


def _fact(event: Event) -> Card:
    is_warning, told = fact_told(event) or (False, "")
    return Card(title=one_line(told, 300), tone=Tone.WARNING if is_warning else Tone.PLAIN)


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
    told = told_reason(event.outcome, event.reason)
    tone = Tone.GOOD if event.success else Tone.BAD
    return Card(title=f"The run ended: {event.outcome}", tone=tone, parts=text_part("Reason", told))
