"""The trace of a run: a tree of spans that says what the journal says, under the names of the conventions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import DataPointT, NumberDataPoint

from stepflow.domain import event as events
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelTurn, ToolCall
from stepflow.domain.event import Entry
from stepflow.domain.flow import fold
from stepflow.domain.json import JsonObject
from stepflow.domain.text import cut
from stepflow.domain.words import Outcome, Stage, exit_code
from stepflow.telemetry.sdk import sdk_metrics
from stepflow.telemetry.spans import MOST_CONTENT, RunSpan, RunTrace, build_trace
from tests.telemetry.journals import NAMES, PLAUSIBLE, journal_of

#: Names of the conventions for generative AI, v0.1.0, that the package has not got yet.
NEWER = {
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.request.reasoning.level",
    "gen_ai.token.modality",
}
#: The events that become a span each; a tool's start belongs to that of its call.
OF_SPANS = {
    events.IterationStarted: "step",
    ModelTurn: "chat",
    events.AnswerLost: "chat",
    events.CacheRenewed: "chat",
    ToolCall: "execute_tool",
    CommandResult: "command",
    events.BaseChecked: "validate",
    events.ValidatorRan: "validate",
    events.EffectApplied: "effect",
    events.FailureReported: "effect",
}
OF_A_CALL = (ModelTurn, events.AnswerLost, events.CacheRenewed)


def expected_spans(entries: tuple[Entry, ...]) -> list[tuple[str, int]]:
    """What the journal says happened: the kind of work, and the step in which it did, 0 for none."""
    step, expected, started = 0, list[tuple[str, int]](), set[str]()
    begun = False
    for entry in entries:
        event = entry.event
        if isinstance(event, events.RunStarted):
            begun = True
        if not begun:
            continue
        if isinstance(event, events.ToolStarted):
            started.add(event.tool_use_id)
            expected.append(("execute_tool", step))
            continue
        if isinstance(event, ToolCall) and event.tool_use_id in started:
            started.remove(event.tool_use_id)
            continue
        kind = OF_SPANS.get(type(event))
        if kind == "step":
            step = entry.seq
            expected.append((kind, 0))
        elif kind:
            expected.append((kind, 0 if kind == "effect" or isinstance(event, events.BaseChecked) else step))
    return expected


@pytest.mark.parametrize("name", NAMES)
def test_the_tree_of_spans_is_what_the_journal_says(name: str) -> None:
    entries = journal_of(name)
    run, *spans = build_trace(entries).spans
    assert (run.parent, run.name.partition(" ")[0]) == (None, "invoke_agent")

    def step_of(span: RunSpan) -> int:
        return 0 if span.parent is run else span.parent.number if span.parent else -1

    assert [(span.name.partition(" ")[0], step_of(span)) for span in spans] == expected_spans(entries)
    for span in spans:
        above = span.parent
        assert above is not None
        assert above.start <= span.start <= span.end <= above.end, span
        assert above.name.partition(" ")[0] in ("invoke_agent", "step")
    assert (run.start, run.end) == (entries[0].time, entries[-1].time)


@pytest.mark.parametrize("name", NAMES)
def test_the_sums_of_a_trace_are_those_of_the_run(name: str) -> None:
    entries = journal_of(name)
    trace = build_trace(entries)
    state = fold(entry.event for entry in entries)
    run, *spans = trace.spans
    calls = [span for span in spans if span.name.startswith("chat ")]
    for facts in ([run], calls) if calls else ():
        assert sum(int(span.attributes["gen_ai.usage.input_tokens"]) for span in facts) == state.usage.tokens_in  # type: ignore[arg-type]
        assert sum(int(span.attributes["gen_ai.usage.output_tokens"]) for span in facts) == state.usage.output_tokens  # type: ignore[arg-type]
    cost = sum(float(span.attributes.get("stepflow.cost.usd", 0)) for span in calls)  # type: ignore[arg-type]
    assert cost == pytest.approx(state.cost_usd)
    assert ("stepflow.cost.usd" in run.attributes) is bool(calls and not state.unpriced)
    points = points_of(trace, whole=True)
    assert _sum(points.get("stepflow.cost", ())) == pytest.approx(state.cost_usd)
    assert _sum(points.get("gen_ai.client.inference.usage.input_tokens", ())) == state.usage.tokens_in
    assert _sum(points["stepflow.runs"]) == 1


def points_of(trace: RunTrace, *, whole: bool = False) -> dict[str, Sequence[DataPointT]]:
    (resource,) = sdk_metrics(trace, whole=whole).resource_metrics
    return {metric.name: metric.data.data_points for scope in resource.scope_metrics for metric in scope.metrics}


def _sum(points: Iterable[DataPointT]) -> float:
    return sum(point.value if isinstance(point, NumberDataPoint) else point.sum for point in points)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "every event"])
def test_a_trace_tells_how_the_run_ended(name: str) -> None:
    entries = journal_of(name)
    run = build_trace(entries).spans[0]
    last = [entry.event for entry in entries if isinstance(entry.event, events.RunFinished)][-1]
    assert run.attributes["stepflow.outcome"] == last.outcome
    assert run.error == (last.outcome if exit_code(last.outcome) else "")


@cache
def known_names() -> set[str]:
    """Every attribute of the official package."""
    from opentelemetry.semconv import attributes as stable
    from opentelemetry.semconv._incubating import attributes as incubating

    names = set[str]()
    for package in (stable, incubating):
        for file in Path(package.__path__[0]).glob("*_attributes.py"):
            names |= {line.split('"')[1] for line in file.read_text("utf-8").splitlines() if ': Final = "' in line}
    return names


@pytest.mark.parametrize("name", NAMES)
def test_every_attribute_is_one_of_the_conventions_or_our_own(name: str) -> None:
    trace = build_trace(journal_of(name), content=True)
    attributes = [span.attributes for span in trace.spans]
    attributes += [noted.attributes for span in trace.spans for noted in span.events]
    attributes += [point.attributes for points in points_of(trace, whole=True).values() for point in points]
    used = {key for each in attributes for key in each if not key.startswith("stepflow.")}
    assert used - known_names() - NEWER == set()


def text_of(trace: RunTrace) -> str:
    return "\n".join(
        f"{span.name} {span.attributes} {span.error} {span.description} {span.events}" for span in trace.spans
    )


def test_what_the_model_or_an_author_wrote_is_in_a_trace_only_with_content() -> None:
    entries = journal_of("plausible")
    words = ("I will look at the parser first.", "You fix issues.", "python -m pytest -q", "1 failed")
    without, with_content = (text_of(build_trace(entries, content=content)) for content in (False, True))
    assert [word for word in words if word in without] == []
    assert [word for word in words if word not in with_content] == []


@pytest.mark.parametrize("name", NAMES)
def test_without_content_a_trace_has_no_prose(name: str) -> None:
    """Every longer text of prompts, answers, tools and validators, and every reason."""
    entries = journal_of(name)
    trace = text_of(build_trace(entries, content=False))
    for entry in entries:
        for text in _prose(entry.event):
            assert text not in trace


def _prose(event: events.Event) -> list[str]:
    texts: list[object] = []
    match event:
        case events.PromptRendered():
            texts = [event.system, *event.blocks]
        case ModelTurn():
            texts = [block.get("text") for block in event.content]
        case ToolCall():
            texts = [event.output, *event.input.values()]
        case events.ValidatorRan():
            texts = [event.output_tail]
        case events.EffectPlanned() | events.EffectApplied():
            texts = [event.detail]
        case events.RunFinished() | events.FlowEnded() | events.ModelWaited():
            texts = [event.reason]
        case events.UserMessage():
            texts = [event.text]
        case _:
            pass
    return [text for text in texts if isinstance(text, str) and len(text) > 12 and text not in NAMES_OF_THINGS]


#: What stands in an effect's detail too.
NAMES_OF_THINGS = {"post_comment", "push_branch"}


def test_messages_have_the_form_of_the_conventions() -> None:
    calls = [span for span in build_trace(journal_of("plausible"), content=True).spans if span.name.startswith("chat")]
    first, second = calls[:2]
    (asked,) = json.loads(str(first.attributes["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "…"}]}
    (said,) = json.loads(str(first.attributes["gen_ai.output.messages"]))
    assert said["parts"][0] == {"type": "text", "content": "I will look at the parser first."}
    assert said["finish_reason"] == "tool_use"
    answered = json.loads(str(second.attributes["gen_ai.input.messages"]))
    assert [(message["role"], message["parts"][0]["type"]) for message in answered] == [
        ("tool", "tool_call_response")
    ] * 2
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)


def test_long_content_is_cut_and_secrets_are_redacted() -> None:
    entries = journal_of("plausible")
    long = "x" * (2 * MOST_CONTENT)
    tool = next(entry for entry in entries if isinstance(entry.event, ToolCall))
    changed = replace(tool, event=replace(tool.event, output=long, input={"command": "sk-secret"}))
    grown = tuple(changed if entry is tool else entry for entry in entries)
    trace = build_trace(
        grown, content=True, redact=lambda text: text.replace("sk-secret", "***").replace("fixer", "***")
    )
    span = next(span for span in trace.spans if span.number == tool.seq)
    assert span.attributes["gen_ai.tool.call.result"] == cut(long, MOST_CONTENT)
    assert "sk-secret" not in text_of(trace)
    assert "fixer" not in text_of(trace)


SECRET = "sk-ant-0123456789-abcdefghij-klmnopqrst"


@pytest.mark.parametrize("shown", [1, 8, len(SECRET) // 2, len(SECRET) - 1])
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(shown: int) -> None:
    """So many characters of the secret stand before the place of the cut, in every text that a trace has."""
    text = f"{'x' * (MOST_CONTENT - shown)}{SECRET}{'y' * 100}"

    def grow(event: events.Event) -> events.Event:
        match event:
            case events.PromptRendered():
                return replace(event, system=text, blocks=[text])
            case events.UserMessage():
                return replace(event, text=text)
            case ToolCall():
                return replace(event, output=text, input={"command": text})
            case ModelTurn():
                use: JsonObject = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": text}}
                thinking: JsonObject = {"type": "thinking", "thinking": text}
                return replace(event, content=[{"type": "text", "text": text}, thinking, use])
            case _:
                return event

    grown = tuple(replace(entry, event=grow(entry.event)) for entry in journal_of("plausible"))
    said = text_of(build_trace(grown, content=True, redact=lambda each: each.replace(SECRET, "***")))
    assert "x" * 100 in said
    assert re.findall(r"x(sk?[^x*]{0,8})", said) == []


def test_a_run_has_the_same_ids_whenever_it_is_exported() -> None:
    entries = journal_of("plausible")
    whole, half = build_trace(entries), build_trace(entries[:20])
    assert half.trace_id == whole.trace_id
    assert whole.trace_id == 0x25C1183B30926BA8EFCC8722841598A1
    assert len({whole.span_id(span.number) for span in whole.spans}) == len(whole.spans)
    numbers = {span.number for span in whole.spans}
    assert {span.number for span in half.spans} <= numbers
    started = entries[0]
    other = replace(started, event=replace(started.event, run_id="another"))
    assert build_trace((other, *entries[1:])).trace_id != whole.trace_id


def resumed(entries: tuple[Entry, ...], at: int) -> tuple[Entry, ...]:
    """The run, interrupted after so many entries and resumed an hour later."""
    ended = events.RunFinished(outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="SIGTERM", success=False)
    again = events.RunResumed(events=at, from_seq=at, iteration=1, step_id="initial.issue")
    stop = (Entry(seq=at + 1, time=entries[at - 1].time, event=ended),)
    later = entries[at - 1].time + 3600
    more = (Entry(seq=at + 2, time=later, event=again),)
    rest = (Entry(seq=each.seq + 2, time=each.time + 3600, event=each.event) for each in entries[at:])
    return (*entries[:at], *stop, *more, *rest)


def test_a_resumed_run_is_one_trace_and_each_of_its_parts_counts_once() -> None:
    entries = resumed(journal_of("plausible"), 6)
    first, whole = build_trace(entries[:7]), build_trace(entries)
    assert first.trace_id == whole.trace_id
    assert (first.spans[0].error, whole.spans[0].error) == ("cancelled", "")
    for span in first.spans[1:]:
        later = next(each for each in whole.spans if each.number == span.number)
        assert (later.name, later.start) == (span.name, span.start)
    parts = [points_of(first), points_of(whole)]
    tokens = [_sum(part["gen_ai.client.inference.usage.input_tokens"]) for part in parts]
    assert tokens == [4200, 8 * 4200]
    outcomes = [part["stepflow.runs"][0].attributes["stepflow.outcome"] for part in parts]
    assert outcomes == ["cancelled", "completed"]
    spent = [_sum(part["gen_ai.invoke_agent.duration"]) for part in parts]
    assert sum(spent) == pytest.approx(journal_of("plausible")[-1].time - journal_of("plausible")[0].time)


def test_a_tool_that_was_running_when_the_run_was_killed_is_a_span_that_says_so() -> None:
    entries = journal_of("plausible")[:4]
    begun = events.ToolStarted(tool_use_id="toolu_read", name="read")
    killed = (*entries, Entry(seq=5, time=entries[-1].time + 1, event=begun))
    span = build_trace(killed).spans[-1]
    assert (span.name, span.error) == ("execute_tool read", "interrupted")
    called = journal_of("plausible")[4]
    span = build_trace((*killed, replace(called, seq=6, time=killed[-1].time + 2))).spans[-1]
    assert (span.number, span.ended, span.end - span.start, span.error) == (5, 6, 2, "")


def test_a_name_that_the_model_made_up_counts_in_no_metric_and_is_cut() -> None:
    entries = journal_of("plausible")
    tool = next(entry for entry in entries if isinstance(entry.event, ToolCall))
    made_up = replace(tool, event=replace(tool.event, name="n" * 500, denied=True, is_error=True))
    trace = build_trace(tuple(made_up if entry is tool else entry for entry in entries))
    span = next(span for span in trace.spans if span.number == tool.seq)
    assert (len(span.name) < 100, span.error) == (True, "denied")
    assert not [point for each in points_of(trace).values() for point in each if "nnn" in str(point.attributes)]


def test_a_run_that_never_began_has_no_trace() -> None:
    finished = events.RunFinished(outcome=Outcome.CANCELLED, stage=Stage.BEFORE, reason="", success=False)
    assert build_trace([Entry(seq=1, time=1.0, event=finished)]).spans == []
    assert PLAUSIBLE.is_file()
