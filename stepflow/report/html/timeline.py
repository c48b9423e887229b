"""The timeline of a page: iterations with their cards, as data for the page's script.

Takes: entries in order, one after the other. Gives: JSON in which every text stands once, and what else a page needs.
May touch: nothing. Of an entry nothing is kept but what the page shows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted, ModelTurned, ToolCalled, ToolStarted
from stepflow.domain.event import FlowEnded, RunResumed, RunStarted, ValidatorRan
from stepflow.domain.figures import usd
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.report.html.card import Card, Part
from stepflow.report.html.diff_card import diff_card
from stepflow.report.html.put_in import templates_of
from stepflow.report.html.run_cards import run_card, web_address
from stepflow.report.html.step_cards import step_card, unanswered_part
from stepflow.report.html.texts import Texts
from stepflow.report.plain import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Entry
    from stepflow.domain.report import HistoryEntry
    from stepflow.report.diff import StepDiff

#: So many events have their cards on a page; of a longer run the first and the last half.
EVENTS_SHOWN = 30_000
VALIDATORS_SHOWN = 100


@dataclass
class Group:
    """A stretch of the run: what came before the steps, one iteration, what came after them. `hidden` counts the
    events without a card."""

    id: str
    title: str
    line: HistoryEntry | None = None
    hidden: int = 0
    cards: list[JsonValue] = field(default_factory=list)


class Timeline:
    """Gathers what a page shows of `count` entries. `validators` are the last runs with their events' numbers."""

    def __init__(self, history: Sequence[HistoryEntry], agent: AgentDefinition | None, *, count: int) -> None:
        self.began: float | None = None
        self.validators: deque[tuple[int, ValidatorRan]] = deque(maxlen=VALIDATORS_SHOWN)
        self.groups: list[Group] = []
        self._texts = Texts()
        self._templates = templates_of(agent)
        self._lines = iter(history)
        self._ids: dict[str, int] = {}
        self._hides = range(EVENTS_SHOWN // 2, count - EVENTS_SHOWN // 2)
        self._seen = 0
        self._ended = False
        self._unanswered: dict[str, tuple[list[JsonValue], JsonObject]] = {}

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Take these entries, in order."""
        for entry in entries:
            self._add(entry)

    def data(self, diffs: Mapping[int, StepDiff]) -> dict[str, JsonValue]:
        """The groups with their cards, the table of texts, and how many characters were left out of each."""
        for parts, block in self._unanswered.values():
            parts += [self._part(part) for part in unanswered_part(block)]
        for group in self.groups:
            diff = diffs.get(group.line.iteration) if group.line else None
            if diff:
                card = diff_card(diff)
                parts = [self._part(part) for part in card.parts]
                group.cards.append([f"{group.id}-diff", None, card.tone.value, card.title, [*card.facts], parts, ""])
        table, cuts = self._texts.table()
        groups: list[JsonValue] = [{**_head(group), "cards": group.cards} for group in self.groups]
        return {"groups": groups, "texts": [*table], "cuts": [*cuts]}

    def _add(self, entry: Entry) -> None:
        self.began = entry.time if self.began is None else self.began
        if isinstance(entry.event, ValidatorRan):
            self.validators.append((entry.seq, entry.event))
        group = self._group_of(entry)
        if self._seen in self._hides:
            group.hidden += 1
        elif not isinstance(entry.event, ToolStarted):
            # A call's card comes with its answer; a turn says which of its calls have none.
            group.cards.append(self._card(entry))
        self._seen += 1

    def _group_of(self, entry: Entry) -> Group:
        """The stretch that the entry belongs to. A run that was resumed has more than one start and end."""
        event = entry.event
        if isinstance(event, IterationStarted):
            self._open(f"i{event.iteration}", one_line(event.step_id), next(self._lines, None))
        elif isinstance(event, RunResumed):
            self._open("resumed", f"Resumed {one_line(event.step_id)}".rstrip())
        elif isinstance(event, RunStarted) or not self.groups:
            self._open("start", "Before the steps")
        elif self._ended:
            self._open("end", "After the steps")
        self._ended = isinstance(event, FlowEnded)
        return self.groups[-1]

    def _open(self, name: str, title: str, line: HistoryEntry | None = None) -> None:
        self._ids[name] = times = self._ids.get(name, 0) + 1
        self.groups.append(Group(id=name if times == 1 else f"{name}-{times}", title=title, line=line))

    def _card(self, entry: Entry) -> JsonValue:
        event = entry.event
        card: Card = step_card(event, self._templates) or run_card(event)
        facts: list[JsonValue] = [one_line(fact, 200) for fact in card.facts]
        parts: list[JsonValue] = [self._part(part) for part in card.parts]
        match event:
            case ToolCalled():
                self._unanswered.pop(event.tool_use_id, None)
            case ModelTurned():
                calls = (block for block in event.content if block.get("type") == "tool_use")
                self._unanswered |= {str(block.get("id", "")): (parts, block) for block in calls}
            case _:
                pass
        seconds = round(max(0.0, entry.time - (self.began or 0.0)), 1)
        return [f"e{entry.seq}", seconds, card.tone.value, card.title, facts, parts, web_address(card.url)]

    def _part(self, part: Part) -> JsonValue:
        told: list[JsonValue] = [part.label, self._texts.add(part.text), int(part.is_open), int(part.is_diff)]
        return [*told, [[*put] for put in part.puts]] if part.puts else told


def _head(group: Group) -> JsonObject:
    head: JsonObject = {"id": group.id, "title": group.title, "hidden": group.hidden}
    line = group.line
    if line is None:
        return head
    intent = line.intent or line.transition
    words = intent if line.transition in (intent, "none") else f"{intent} ({line.transition})"
    return head | {
        "n": line.iteration,
        "kind": line.kind.value if line.kind else "",
        "intent": visible(words),
        "to": one_line(line.target or ""),
        "tools": line.tool_calls,
        "tokens": line.usage.total,
        "usd": usd(line.cost_usd),
        "seconds": round(line.seconds, 1),
        "retries": line.format_retries,
        "reason": one_line(line.reason, 200),
    }
