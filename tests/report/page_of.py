"""Pages of runs: of given events, of a long run, of a hostile one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser

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


class PageReader(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of scripts, styles and the rest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "text": []}
        self._where = "text"
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._where = tag
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._where:
            self._where = "text"

    def handle_data(self, data: str) -> None:
        if self._where == "text":
            self.inside["text"].append(data)
        else:
            self.inside[self._where][-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.inside["script"][0])

    @property
    def text(self) -> str:
        return "".join(self.inside["text"])

    def cards(self) -> list[dict]:
        """All cards with their texts put in."""
        data = self.data
        return [
            {
                "id": id,
                "tone": tone,
                "title": title,
                "facts": facts,
                "parts": {label: data["texts"][number] for label, number, *_ in parts},
                "puts": [put for part in parts for put in (part[4] if len(part) > 4 else [])],
                "url": url,
            }
            for group in data["groups"]
            for id, _, tone, title, facts, parts, url in group["cards"]
        ]
