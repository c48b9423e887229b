"""Describes each event in one message for people. Each surface shows the parts that it has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from stepflow.domain import event as events
from stepflow.domain.connection import HostsRequested
from stepflow.domain.effect import ApprovalAnswered, ApprovalAsked, SuggestionsTried, describe_results
from stepflow.domain.json import JsonObject
from stepflow.domain.run import ImagesRead, describe_unseen
from stepflow.domain.text import TextRemoved, count, count_kinds
from stepflow.report.safe_text import (
    Line,
    Tone,
    first_lines,
    last_lines,
    line,
    mark_of,
    mark_title,
    one_line,
    quote_lines,
    seconds_text,
    telling_lines,
    whole_lines,
)
from stepflow.report.step_message import describe_step_event
from stepflow.report.wording import (
    REASON_SHOWN,
    EventMessage,
    Part,
    describe_canaries,
    describe_changes,
    describe_hosts,
    describe_issue_cost,
    describe_outcome,
    fact_message,
    reached_places,
    value_parts,
    warning_message,
    whole_part,
)

#: The sandbox layers that a watcher of a fully sandboxed run needs to see.
LAYERS_SHOWN = ("network",)
TAIL_SHOWN = 6
RETRY_SHOWN = 12
#: Data of a log entry that most readers do not need: the output of a setup, the traceback of a bug.
FOLDED_DATA = ("output", "traceback")
FOLDED_SHOWN = 400
TONE_OF_LEVEL = {"info": Tone.PLAIN, "warning": Tone.WARNING, "error": Tone.BAD}
OVER_BUDGET = ". No other run may begin on it: raise limits.usd-per-issue if the issue is worth it"


def describe_event(event: events.Event) -> EventMessage | None:  # noqa: PLR0911, PLR0912 - one case per event
    """Return the message of one event; None if another event's message covers it."""
    if isinstance(event, events.StepEvent):
        return describe_step_event(event)
    match event:
        case events.RunStarted():
            return _describe_start(event)
        case events.RunResumed():
            return _describe_resumption(event)
        case TextRemoved():
            what, kinds = count(event.count, "hidden piece"), one_line(count_kinds(tuple(event.pieces)))
            return warning_message(f"{what} of the issue's text did not reach the model: {kinds}")
        case ImagesRead():
            return _describe_images(event)
        case events.SnapshotTaken():
            return _describe_snapshot(event)
        case events.SnapshotFailed():
            return warning_message(f"[Snapshot] {event.reason}")
        case events.LayerReported():
            return fact_message(f"[Isolation] {event.layer}: {event.state}", is_warning=event.is_warning)
        case events.CanariesTried(canaries=canaries):
            is_warning = bool(reached_places(canaries))
            return fact_message(
                f"[Isolation] self-test: {describe_canaries(canaries)}", is_warning=is_warning, data=canaries
            )
        case HostsRequested():
            return _describe_requests(event)
        case events.IssueCostSummed():
            over = event.usd >= event.most_usd
            return fact_message(f"[Budget] {describe_issue_cost(event)}{OVER_BUDGET if over else ''}", is_warning=over)
        case events.BaseChecked():
            return _describe_base(event)
        case events.ValidatorRan():
            return _describe_validator(event)
        case events.CompletionJudged():
            return _describe_completion(event)
        case ApprovalAsked() | ApprovalAnswered():
            return _describe_approval(event)
        case events.FlowEnded():
            return _describe_flow_end(event)
        case events.WorkCollected():
            return _describe_work(event)
        case SuggestionsTried():
            first, *rest = describe_results(event.results)
            below = tuple(whole_lines("\n".join(rest))) if rest else ()
            return EventMessage(title=f"[Review] suggestions: {first}", below=below)
        case events.EffectPlanned():
            title = f"planned: {event.kind} {one_line(event.detail)}".rstrip()
            below = tuple(whole_lines(event.text)) if event.text else ()
            return EventMessage(title=title, parts=(Part("text", event.text),), below=below)
        case events.EffectApplied():
            return _describe_effect(event)
        case events.FailureReported():
            return _describe_failure(event)
        case events.Noted():
            return _describe_note(event)
        case events.RunFinished():
            return _describe_end(event)
        case _:
            assert_never(event)


def _describe_snapshot(event: events.SnapshotTaken) -> EventMessage:
    facts = (event.name[:12], count(event.bytes, "byte"), seconds_text(event.seconds))
    return EventMessage(title=f"Snapshot of {count(event.files, 'changed file')}", facts=facts, in_log=False)


def _describe_requests(event: HostsRequested) -> EventMessage:
    counts: JsonObject = {each.host: {"allowed": each.allowed, "refused": each.refused} for each in event.hosts}
    refused = any(each.refused for each in event.hosts)
    return fact_message(f"[Network] {describe_hosts(event.hosts)}", is_warning=refused, data=counts)


def _describe_resumption(event: events.RunResumed) -> EventMessage:
    at = f"at iteration {event.iteration}" if event.iteration else "before its first iteration"
    return EventMessage(title=f"The run is resumed after {count(event.events, 'event')}, {at}", tone=Tone.RUN)


def _describe_end(event: events.RunFinished) -> EventMessage:
    mark, ended = mark_of(event.outcome), describe_outcome(event.outcome)
    title = f"{mark.text} {ended}: {one_line(event.reason, REASON_SHOWN)}"
    return EventMessage(title=title, tone=mark.tone, parts=whole_part("Reason", event.reason, REASON_SHOWN))


def _describe_start(event: events.RunStarted) -> EventMessage:
    issue = f"#{event.issue}" if event.issue is not None else ""
    where = f" on {one_line(event.repository)}{issue}" if event.repository or issue else ""
    follow_up = event.follow_up
    pull = f", follow-up {follow_up.round} on pull request #{follow_up.pull_request}" if follow_up else ""
    if event.reviewed:
        pull = f", review of {one_line(event.reviewed.head)[:12]}"
    guidance = one_line(", ".join(map(str, event.guidance)), 400)
    return EventMessage(
        title=f"Agent {one_line(event.agent)}{where}{pull}, run {one_line(event.run_id)}",
        tone=Tone.RUN,
        more_facts=(event.base_commit[:12], f"at most {count(event.max_iterations, 'iteration')}"),
        parts=(
            Part("Arguments", event.args),
            Part("What the model sees of the issue", event.context_text, is_open=False),
            Part("Options", event.options, is_open=False),
            Part("Sandbox", {**event.isolation}, is_open=False),
        ),
        below=(*([line(Tone.PLAIN, f"guidance: {guidance}")] if guidance else ()), *_sandbox(event.isolation)),
    )


def _sandbox(isolation: Mapping[str, str]) -> Iterator[Line]:
    """Yield one line, with the layers folded. A layer that does not hold gets a warning of its own."""
    if isolation:
        named_layers = (f"{layer} {isolation[layer].partition(':')[0]}" for layer in LAYERS_SHOWN if layer in isolation)
        layers = ", ".join((count(len(isolation), "layer"), *named_layers))
        yield line(Tone.FOLD, f"sandbox: {one_line(layers, 200)}")
        for layer, state in isolation.items():
            yield line(Tone.ASIDE, f"{one_line(layer)}: {one_line(state, 200)}")


def _describe_images(event: ImagesRead) -> EventMessage:
    seen, unseen = sum(not image.problem for image in event.images), describe_unseen(event.images).removesuffix(".")
    title = "; ".join(filter(None, (f"the model sees {count(seen, 'image')} of the issue" if seen else "", unseen)))
    return EventMessage(
        title=title,
        tone=Tone.WARNING if unseen else Tone.PLAIN,
        parts=(Part("Images", "\n".join(map(str, event.images))),),
    )


def _describe_base(event: events.BaseChecked) -> EventMessage:
    name = one_line(event.name)
    checked = mark_title(Tone.GOOD, name) if event.passed else mark_title(Tone.BAD, f"{name} failed")
    return EventMessage(
        title=f"before the run: {checked}",
        tone=Tone.PLAIN if event.passed else Tone.WARNING,
        facts=_check_facts(event),
        parts=(Part("Command", event.command), Part("Output", event.output_tail)),
        below=() if event.passed else quote_lines(telling_lines(event.output_tail, TAIL_SHOWN)),
    )


def _check_facts(event: events.BaseChecked | events.ValidatorRan) -> tuple[str, str]:
    """Return the exit code and the seconds. A check that failed although it exited with 0 failed because of its
    output, so its exit code would only confuse."""
    exited = f"exit {event.exit_code}" if event.passed or event.exit_code else ""
    return exited, seconds_text(event.seconds)


def _describe_validator(event: events.ValidatorRan) -> EventMessage:
    tone = Tone.GOOD if event.passed else Tone.BAD
    state = ""
    if not event.passed:
        tries = f", attempt {event.attempt} of {event.max_attempts}" if event.recoverable else " for good"
        state = f" failed{tries}{f' → {event.action}' if event.action else ''}"
    return EventMessage(
        title=mark_title(tone, f"{one_line(event.name)}{state}"),
        tone=tone,
        facts=_check_facts(event),
        more_facts=(event.pattern,),
        parts=(
            Part("Warnings", "\n".join(event.warnings)),
            Part("Output", event.output_tail),
        ),
        below=(
            *(line(Tone.WARNING, f"guard: {one_line(text, 300)}") for text in event.warnings),
            *(() if event.passed else quote_lines(telling_lines(event.output_tail, TAIL_SHOWN))),
        ),
    )


def _describe_flow_end(event: events.FlowEnded) -> EventMessage:
    return EventMessage(
        title=f"The flow ended: {event.outcome}.",
        tone=Tone.RUN,
        more_facts=("validated",) if event.validated else (),
        parts=(Part("Reason", event.reason), Part("Closing answer", event.answer, is_open=False)),
    )


def _describe_completion(event: events.CompletionJudged) -> EventMessage:
    if event.done:
        red = "" if event.validated else ", although a validator failed, which may be skipped"
        return EventMessage(title=mark_title(Tone.GOOD, f"done{red}"), tone=Tone.GOOD)
    if event.retry_prompt is None:
        return EventMessage(title=mark_title(Tone.BAD, "not done, and no attempt is left"), tone=Tone.BAD)
    return EventMessage(
        title=f"not done: back to {one_line(event.step_id)} with this retry prompt",
        tone=Tone.WARNING,
        more_facts=(event.retry_source or "",),
        parts=(Part("Retry prompt", event.retry_prompt),),
        below=quote_lines(first_lines(event.retry_prompt, RETRY_SHOWN)),
    )


def _describe_approval(event: ApprovalAsked | ApprovalAnswered) -> EventMessage:
    if isinstance(event, ApprovalAsked):
        what = f" waits for {event.digest}, by {event.by}"
    elif event.digest is None:
        what = f": {event.actor} rejected: {event.reason}"
    else:
        what = f": {event.actor} approved {event.digest}"
    return fact_message(f"[Approval] step {event.step_id}{what}", is_warning=False)


def _describe_work(event: events.WorkCollected) -> EventMessage:
    left = f"not committed, so it stays here: {one_line(', '.join(event.uncommitted))}"
    return EventMessage(
        title=f"commits of this run: {event.commits}",
        tone=Tone.WARNING if event.uncommitted else Tone.PLAIN,
        more_facts=(event.head_commit[:12], describe_changes(event.changes)),
        parts=(Part("Not committed", "\n".join(event.uncommitted)),),
        below=(line(Tone.WARNING, left),) if event.uncommitted else (),
    )


def _describe_effect(event: events.EffectApplied) -> EventMessage:
    tone, detail = mark_of(event.status).tone, one_line(event.url or event.detail)
    return EventMessage(
        title=mark_title(tone, f"{event.kind} {event.status}{': ' if detail else ''}{detail}"),
        tone=tone,
        more_facts=(event.commit[:12],),
        parts=(Part("Detail", event.detail),) if event.url else (),
        url=event.url,
    )


def _describe_failure(event: events.FailureReported) -> EventMessage:
    commented = f"the comment on the issue says what happened: {one_line(event.url)}"
    return EventMessage(
        title=commented if event.url else one_line(event.detail, REASON_SHOWN),
        tone=Tone.PLAIN if event.url else Tone.WARNING,
        parts=(Part("", event.detail),),
        url=event.url,
    )


def _describe_note(event: events.Noted) -> EventMessage:
    title, tone = one_line(event.message, REASON_SHOWN), TONE_OF_LEVEL.get(event.level)
    shown = tone is not None
    folded = "\n".join(str(event.data[name]) for name in FOLDED_DATA if event.data.get(name)) if shown else ""
    inside = [line(Tone.FOLDED, text) for text in last_lines(folded, FOLDED_SHOWN)]
    return EventMessage(
        title=title,
        tone=tone or Tone.PLAIN,
        parts=value_parts("Data", event.data, is_open=False),
        in_log=shown and not inside,
        below=(line(Tone.FOLD, title), *inside) if inside else (),
    )
