"""The timeline of a page: iterations with their cards, as data for the page's script.

Takes: entries in order, and the diffs of steps. Gives: JSON in which every text stands once.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted, ToolCalled
from stepflow.domain.event import FlowEnded, RunStarted
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.report.html.card import Card, Part
from stepflow.report.html.put_in import templates_of
from stepflow.report.html.run_cards import run_card, web_address
from stepflow.report.html.step_cards import Known, step_card
from stepflow.report.html.texts import Texts
from stepflow.report.plain import one_line, usd
from stepflow.report.tables import ends_of
from stepflow.report.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Entry
    from stepflow.domain.report import HistoryEntry

#: So many events have their cards on a page; of a longer run the first and the last half.
EVENTS_SHOWN = 30_000


@dataclass
class Group:
    """A stretch of the run: what came before the steps, one iteration, what came after them."""

    id: str
    title: str
    line: HistoryEntry | None = None
    entries: list[Entry] = field(default_factory=list)


def timeline_data(
    entries: Sequence[Entry],
    history: Sequence[HistoryEntry],
    agent: AgentDefinition | None,
    diffs: Mapping[int, str],
) -> dict[str, JsonValue]:
    """The groups with their cards, the table of texts, and how many characters were left out of each text."""
    shown, _ = ends_of(entries, EVENTS_SHOWN)
    seen = {entry.seq for entry in shown}
    answered = {entry.event.tool_use_id for entry in shown if isinstance(entry.event, ToolCalled)}
    known = Known(answered=answered, templates=templates_of(agent))
    began = entries[0].time if entries else 0.0
    texts = Texts()
    groups: list[JsonValue] = []
    for group in grouped(entries, history):
        kept = [entry for entry in group.entries if entry.seq in seen]
        cards = [(entry, step_card(entry.event, known) or run_card(entry.event)) for entry in kept]
        told: list[JsonValue] = [_card(entry, card, began, texts) for entry, card in cards]
        iteration = group.line.iteration if group.line else -1
        diff = Part(label="Diff of this step", text=diffs.get(iteration, ""), is_diff=True)
        if diff.text:
            told.append([f"{group.id}-diff", None, "plain", "What the step changed", [], [_part(diff, texts)], ""])
        groups.append({**_head(group, len(group.entries) - len(kept)), "cards": told})
    table, cuts = texts.table()
    return {"groups": groups, "texts": [*table], "cuts": [*cuts]}


def grouped(entries: Iterable[Entry], history: Sequence[HistoryEntry]) -> list[Group]:
    """The entries in their stretches. A run that was resumed has more than one start and end."""
    groups: list[Group] = []
    lines = iter(history)
    ids: dict[str, int] = {}
    ended = False
    for entry in entries:
        event = entry.event
        if isinstance(event, IterationStarted):
            groups.append(_opened(ids, f"i{event.iteration}", one_line(event.step_id), next(lines, None)))
            ended = False
        elif isinstance(event, RunStarted) or not groups:
            groups.append(_opened(ids, "start", "Before the steps"))
            ended = False
        elif ended:
            groups.append(_opened(ids, "end", "After the steps"))
            ended = False
        groups[-1].entries.append(entry)
        ended = isinstance(event, FlowEnded)
    return groups


def _opened(ids: dict[str, int], name: str, title: str, line: HistoryEntry | None = None) -> Group:
    ids[name] = ids.get(name, 0) + 1
    return Group(id=name if ids[name] == 1 else f"{name}-{ids[name]}", title=title, line=line)


def _head(group: Group, hidden: int) -> JsonObject:
    head: JsonObject = {"id": group.id, "title": group.title, "hidden": hidden}
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


def _card(entry: Entry, card: Card, began: float, texts: Texts) -> JsonValue:
    facts: list[JsonValue] = [one_line(fact, 200) for fact in card.facts]
    parts: list[JsonValue] = [_part(part, texts) for part in card.parts]
    seconds = round(max(0.0, entry.time - began), 1)
    return [f"e{entry.seq}", seconds, card.tone.value, card.title, facts, parts, web_address(card.url)]


def _part(part: Part, texts: Texts) -> JsonValue:
    told: list[JsonValue] = [part.label, texts.add(part.text), int(part.is_open), int(part.is_diff)]
    return [*told, [[*put] for put in part.puts]] if part.puts else told
