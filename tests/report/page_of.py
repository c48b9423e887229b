"""Pages of runs: of given events, of a long run, of a hostile one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stepflow.domain.definition import AgentDefinition
from stepflow.domain.event import Entry, Event, IterationStarted, PromptRendered, ToolCalled
from stepflow.report.collect import collect_report
from stepflow.report.diff import Diffs
from stepflow.report.html.page import report_html
from tests.report.plausible_run import STARTED, TIMED, entries_of

#: One iteration of the plausible run: a prompt, two turns, two tool calls, an answer, a way.
ITERATION = TIMED[1:9]


def events_of(*events: Event) -> tuple[Entry, ...]:
    """Entries of a run in which these events happen."""
    return entries_of([(0.0, STARTED), *((0.1, event) for event in events)])


def page_of(
    entries: Sequence[Entry],
    agent: AgentDefinition | None = None,
    *,
    diffs: Diffs | None = None,
    report: Mapping[str, str] | None = None,
) -> str:
    """The page; `report` has attributes of the report that are replaced."""
    shown = replace(collect_report(entries, agent), **(report or {}))
    return report_html(entries, shown, agent, diffs=lambda: diffs or Diffs())


def long_run(events: int) -> tuple[Entry, ...]:
    """A run of about so many events with prompts and outputs of a real run's length."""
    return entries_of([(0.0, STARTED), *_iterations(events), TIMED[-1]])


def _iterations(events: int) -> Iterator[tuple[float, Event]]:
    for number in range(1, events // len(ITERATION) + 1):
        for seconds, event in ITERATION:
            yield seconds, _varied(event, number)


def _varied(event: Event, number: int) -> Event:
    match event:
        case IterationStarted():
            return replace(event, iteration=number)
        case PromptRendered():
            return replace(event, system="You are careful. " * 200, blocks=[f"Do {number}. " + "Lorem ipsum. " * 150])
        case ToolCalled():
            return replace(event, output=f"output {number}\n" + "a line of output\n" * 50)
        case _:
            return event
