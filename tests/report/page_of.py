"""Pages of runs: of given events, of a long run, of a hostile one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.checkout import PageDiffs
from stepflow.domain.conversation import ToolCall
from stepflow.domain.event import Entry, Event, IterationStarted, PromptRendered
from stepflow.report.collect import collect_report
from stepflow.report.page import report_html
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
    diffs: PageDiffs | None = None,
    report: Mapping[str, str] | None = None,
) -> str:
    """The page; `report` has attributes of the report that are replaced."""
    shown = replace(collect_report(entries, agent), **(report or {}))
    return report_html(entries, shown, agent, count=len(entries), diffs=lambda: diffs or PageDiffs())


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
        case ToolCall():
            return replace(event, output=f"output {number}\n" + "a line of output\n" * 50)
        case _:
            return event


@dataclass
class ShownText:
    """One text of a card. `puts` are what is marked in it, each with the name of its variable."""

    label: str = ""
    text: str = ""
    note: str = ""
    puts: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass
class ShownCard:
    """A card as a reader finds it."""

    id: str
    tone: str
    title: str = ""
    facts: str = ""
    notes: list[str] = field(default_factory=list)
    shown: list[ShownText] = field(default_factory=list)

    @property
    def parts(self) -> dict[str, str]:
        """The texts by their labels."""
        return {one.label: one.text for one in self.shown}


@dataclass
class ShownGroup:
    """A stretch of the run: its row, and its cards."""

    id: str = ""
    row: str = ""
    notes: list[str] = field(default_factory=list)
    cards: list[ShownCard] = field(default_factory=list)


class PageReader(HTMLParser):
    """What a browser would find: elements with their attributes, the text, and the timeline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.style, self.text = "", ""
        self.groups: list[ShownGroup] = []
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        name = given.get("class") or ""
        if tag == "meta" or tag in ("img", "br", "hr"):
            return
        self._open.append((tag, name))
        if tag == "details" and name.startswith("group"):
            self.groups.append(ShownGroup())
        elif name == "cards":
            self.groups[-1].id = given["id"] or ""
        elif tag == "article":
            self.groups[-1].cards.append(ShownCard(id=given["id"] or "", tone=name.removeprefix("card ")))
        elif tag == "details" and name == "part":
            self.groups[-1].cards[-1].shown.append(ShownText())
        elif name == "put":
            self.groups[-1].cards[-1].shown[-1].puts.append(("", given["title"] or ""))
        elif tag == "span" and ("pre", "diff") in self._open:
            self.groups[-1].cards[-1].shown[-1].lines.append(name)
        elif tag == "p" and name == "note" and ("article", "card") in [(one, each[:4]) for one, each in self._open]:
            self._notes().append("")

    def _notes(self) -> list[str]:
        return self.groups[-1].cards[-1].notes

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        names = [name for _, name in self._open]
        if "style" in tags:
            self.style += data
            return
        self.text += data
        if not self.groups or not any(name.startswith("group") for name in names):
            return
        group = self.groups[-1]
        if "article" not in tags:
            if "summary" in tags:
                group.row += data
            elif "note" in names:
                group.notes.append(data)
            return
        card = group.cards[-1]
        if "h4" in tags:
            card.title += data
        elif "facts" in names:
            card.facts += data
        elif "note" in names and "part" in names:
            card.shown[-1].note += data
        elif "note" in names:
            card.notes[-1] += data
        elif "pre" in tags:
            shown = card.shown[-1]
            # The parser of a browser leaves out the line break with which the element begins.
            shown.text += data[1:] if not shown.text and data.startswith("\n") else data
            if "put" in names:
                put, name = shown.puts[-1]
                shown.puts[-1] = (put + data, name)
        elif "summary" in tags:
            card.shown[-1].label += data

    def cards(self) -> list[ShownCard]:
        """All cards."""
        return [card for group in self.groups for card in group.cards]
