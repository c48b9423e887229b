"""What happens around the steps, as lines for a person who watches: start, completion, boundary, end.

Takes: one event. Gives: its lines, none for events inside a step.
May touch: nothing.
"""

from __future__ import annotations

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
    TextRemoved,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count
from stepflow.domain.guard import named
from stepflow.domain.removal import count_kinds
from stepflow.report.log import restored_words, resumed_words
from stepflow.report.plain import first_lines, last_lines, one_line, seconds_text
from stepflow.report.story_line import LineKind, StoryLine, line
from stepflow.report.wording import canaries_told, fact_told, reached_places, told_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.event import Event

#: What a watcher of a run that is closed in wants to know of the sandbox.
TELLING_LAYERS = ("network", "credentials")
TAIL_SHOWN = 6
RETRY_SHOWN = 12
#: Beginnings of log entries that an event of their own tells better, with its reason, prompt or detail.
TOLD_ALREADY = ("[Format] retry ", "[Boundary] planned")
#: What a log entry may bring along that most readers need not see: the output of a set-up, the trace of a bug.
FOLDED_DATA = ("output", "traceback")
FOLDED_SHOWN = 400


def end_lines(event: Event) -> tuple[StoryLine, ...]:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """What a watcher sees of one event outside the steps."""
    match event:
        case RunStarted():
            return _start(event)
        case RunResumed():
            return (line(LineKind.RUN, f"The run is {resumed_words(event)}"),)
        case CanariesTried():
            return (_tried(event),)
        case TextRemoved():
            return (line(LineKind.WARNING, _removed(event)),)
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
            return (_told(event),)
        case SnapshotFailed() | LayerTold() | IssueCostSummed():
            return _fact(event)
        case Noted():
            return _note(event)
        case RunFinished():
            kind, mark = (LineKind.GOOD, "✓") if event.success else (LineKind.BAD, "✗")
            return (line(kind, f"{mark} {event.outcome}: {one_line(told_reason(event.outcome, event.reason), 300)}"),)
        case _:
            return ()


def _start(event: RunStarted) -> tuple[StoryLine, ...]:
    issue = f"#{event.issue}" if event.issue is not None else ""
    place = f" on {one_line(event.repository)}{issue}" if event.repository or issue else ""
    begins = line(LineKind.RUN, f"Agent {one_line(event.agent)}{place}, run {one_line(event.run_id)}")
    return (begins, *_sandbox(event.isolation))


def _sandbox(isolation: Mapping[str, str]) -> Iterator[StoryLine]:
    """One line, with the layers aside. A layer that does not hold is told by a warning of its own."""
    if isolation:
        telling = (f"{layer} {isolation[layer].partition(':')[0]}" for layer in TELLING_LAYERS if layer in isolation)
        told = ", ".join((count(len(isolation), "layer"), *telling))
        yield line(LineKind.FOLD, f"sandbox: {one_line(told, 200)}")
        for layer, state in isolation.items():
            yield line(LineKind.ASIDE, f"{one_line(layer)}: {one_line(state, 200)}")


def _tried(event: CanariesTried) -> StoryLine:
    kind = LineKind.WARNING if reached_places(event.canaries) else LineKind.DETAIL
    return line(kind, f"[Isolation] self-test: {one_line(canaries_told(event.canaries), 300)}")


def _removed(event: TextRemoved) -> str:
    what = count(event.count, "hidden piece")
    return f"{what} of the issue's text did not reach the model: {one_line(count_kinds(tuple(event.pieces)))}"


def _validator(event: ValidatorRan) -> tuple[StoryLine, ...]:
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


def _judged(event: CompletionJudged) -> tuple[StoryLine, ...]:
    if event.done:
        red = "" if event.validated else ", with a red validator that may be skipped"
        return (line(LineKind.GOOD, f"✓ done{red}"),)
    if event.retry_prompt is None:
        return (line(LineKind.BAD, "✗ not done, and no attempt is left"),)
    asked = (line(LineKind.WORDS, f"│ {text}") for text in first_lines(event.retry_prompt, RETRY_SHOWN))
    return (line(LineKind.WARNING, f"not done: back to {one_line(event.step_id)} with this retry prompt"), *asked)


def _work(event: WorkCollected) -> tuple[StoryLine, ...]:
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


def _told(event: FailureReported) -> StoryLine:
    if event.url:
        return line(LineKind.DETAIL, f"the issue's comment tells what happened: {one_line(event.url)}")
    return line(LineKind.WARNING, one_line(event.detail, 300))


def _fact(event: Event) -> tuple[StoryLine, ...]:
    told = fact_told(event)
    return (line(LineKind.WARNING if told[0] else LineKind.DETAIL, one_line(told[1], 300)),) if told else ()


def _note(event: Noted) -> tuple[StoryLine, ...]:
    if event.message.startswith(TOLD_ALREADY):
        return ()
    kinds = {"warning": LineKind.WARNING, "error": LineKind.BAD, "info": LineKind.DETAIL}
    kind = kinds.get(event.level)
    if kind is None:
        return ()
    folded = "\n".join(str(event.data[name]) for name in FOLDED_DATA if event.data.get(name))
    inside = tuple(line(LineKind.FOLDED, text) for text in last_lines(folded, FOLDED_SHOWN))
    return (line(LineKind.FOLD if inside else kind, one_line(event.message, 300)), *inside)
