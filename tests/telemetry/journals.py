"""Journals of whole runs: those that `tests/runs` keeps, with something in place of what is masked there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from stepflow.domain.event import Entry, RunStarted
from stepflow.journal import iter_journal, read_line
from tests.report.every_event import EVENTS
from tests.runs.played_run import GOLDEN, run_cases

PLAUSIBLE = Path(__file__).parents[1] / "report" / "plausible_run.jsonl"
#: In place of what `tests/runs` masks.
UNMASKED: dict[str, Any] = {
    "seconds": 0.25,
    "bytes": 7,
    "isolation": {},
    "options": {"model": {"provider": "scripted"}},
}


def unmasked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: UNMASKED[key] if item == f"<{key}>" and key in UNMASKED else unmasked(item)
            for key, item in value.items()
        }
    return [unmasked(item) for item in value] if isinstance(value, list) else value


@cache
def journal_of(name: str) -> tuple[Entry, ...]:
    """The entries of a journal, by the name of its case."""
    if name == "plausible":
        return tuple(iter_journal(PLAUSIBLE))
    if name == "every event":
        return tuple(_every_event())
    lines = (case / GOLDEN for case in run_cases() if case.name == name)
    texts = next(lines).read_text("utf-8").splitlines()
    entries = (json.dumps(unmasked(json.loads(text))).encode() for text in texts)
    return tuple(read_line(line, location=name) for line in entries)


def _every_event() -> Iterator[Entry]:
    first, *others = [event for event in EVENTS.values() if isinstance(event, RunStarted)]
    happened = (event for event in EVENTS.values() if event not in others)
    for number, event in enumerate((first, *(event for event in happened if event is not first)), 1):
        yield Entry(seq=number, time=1000.0 + number, event=event)


NAMES = ("plausible", "every event", *(case.name for case in run_cases()))
