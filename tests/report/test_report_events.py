"""How each event reads on a terminal, in the log file and in the page, and that no text in one is obeyed."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from every_event import EVENTS, hostile_copy
from golden_files import assert_golden
from hostile import PIECES, TEXT, obeyed
from hypothesis import given, settings
from page_of import PageReader, events_of, page_of
from plausible_run import entries_of

from stepflow.domain.event import Entry, Event
from stepflow.report.log import log_entries, log_line
from stepflow.report.plain import clean
from stepflow.report.watch import ActionLog, TerminalLog


def described(name: str, event: Event) -> str:
    """The event as people read it: `|` begins a line of a terminal, `tone)` a card of the page, and a level one of the
    log."""
    (_, entry) = events_of(event)
    lines = [f"| {line}" for line in TerminalLog().render(entry)]
    lines += [
        f"{line.level}: {line.message} {json.dumps(line.data, ensure_ascii=False)}" for line in log_entries(entry)
    ]
    for card in PageReader(page_of([entry])).cards():
        lines.append(f"{card['tone']}) {' · '.join([card['title'], *card['facts']])} {list(card['parts'])}")
    return "\n".join([f"# {name}", *lines, ""])


def test_each_event_reads_as_in_the_golden_file() -> None:
    assert_golden("events.txt", "\n".join(described(*each) for each in EVENTS.items()))


def test_there_is_an_example_of_every_event() -> None:
    assert {type(event) for event in EVENTS.values()} == set(get_args(Event))


def hostile_entries(text: str) -> tuple[Entry, ...]:
    return entries_of([(0.0, hostile_copy(event, text)) for event in EVENTS.values()])


def job_log(entries: tuple[Entry, ...], *, debug: bool = False) -> str:
    log = ActionLog(debug=debug)
    return "\n".join(line for entry in entries for line in log.render(entry))


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_nothing_that_a_model_or_tool_says_is_obeyed(text: str) -> None:
    entries = hostile_entries(text)
    output = job_log(entries)
    commands = obeyed(output)
    assert len(commands) >= 4
    assert commands == ["group", "endgroup"] * (len(commands) // 2)
    assert "\x1b" not in output
    assert max(map(len, output.split("\n"))) < 900
    assert set(obeyed(job_log(entries, debug=True))) == {"group", "endgroup"}
    terminal = TerminalLog()
    assert obeyed("\n".join(line for entry in entries for line in terminal.render(entry))) == []
    for style in ("text", "jsonl"):
        lines = [log_line(line, style) for entry in entries for line in log_entries(entry)]
        assert obeyed("\n".join(lines)) == []
        assert all(len(line.splitlines()) == 1 for line in lines)


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_not_obeyed_is_still_shown(piece: str) -> None:
    shown = job_log(hostile_entries(f"before {piece} after"))
    for word in ["before", "after", *clean(piece).strip().replace("##[", "##\\[").split()]:
        assert word in shown
