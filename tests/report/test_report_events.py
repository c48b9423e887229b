"""How each event reads on a terminal and in the page."""

from __future__ import annotations

from typing import get_args

from every_event import EVENTS
from page_of import PageReader, events_of, page_of

from stepflow.domain.event import Event
from stepflow.report.log import TerminalLog
from tests.golden import assert_golden


def described(name: str, event: Event) -> str:
    """The event as people read it: `|` begins a line of a terminal, `tone)` a card of the page."""
    (_, entry) = events_of(event)
    lines = [f"| {line}" for line in TerminalLog().render(entry)]
    for card in PageReader(page_of([entry])).cards():
        title = f"{card.title} · {card.facts}" if card.facts else card.title
        lines.append(f"{card.tone}) {title} {list(card.parts)}")
    return "\n".join([f"# {name}", *lines, ""])


def test_each_event_reads_as_in_the_golden_file() -> None:
    assert_golden("report/events.txt", "\n".join(described(*each) for each in EVENTS.items()))


def test_there_is_an_example_of_every_event() -> None:
    assert {type(event) for event in EVENTS.values()} == set(get_args(Event))
