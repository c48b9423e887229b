"""The timeline of a page as data for its script: iterations with their cards, each text stored once and bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from stepflow.domain import event as events
from stepflow.domain.figures import changed_lines, count, usd
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import ImagesRead
from stepflow.domain.words import FailureAction
from stepflow.report.event_message import describe_event
from stepflow.report.lines import EventMessage, Part
from stepflow.report.safe_text import ADDRESS, one_line, visible
from stepflow.report.wording import describe_way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.checkout import StepDiff
    from stepflow.domain.report import HistoryEntry
    from stepflow.domain.run import Issue, IssueImage
    from stepflow.report.diff import Diffs

#: What one text may show at most, in characters; the next limit holds for all as soon as the page would grow too large.
LIMITS = (20_000, 8_000, 3_000, 1_000, 300)
#: Characters of all texts together: a browser reads so many within a second.
PAGE_LIMIT = 16_000_000
#: A longer text is remembered by its digest.
SHORT = 200
#: So many events have their cards on a page; of a longer run the first and the last half.
EVENTS_SHOWN = 30_000
VALIDATORS_SHOWN = 100
#: The group with the diff of all steps together.
WHOLE_RUN = "changes"
#: Of a step with more files than these, each is opened by whoever wants to read it.
OPEN_FILES = 5


@dataclass(frozen=True)
class Shown:
    """The beginning of a text, and where it was cut also its end, and how many characters are missing between them."""

    head: str
    tail: str = ""
    left_out: int = 0

    @property
    def text(self) -> str:
        """What stands on the page."""
        if not self.left_out:
            return self.head
        return f"{self.head}\n[… {self.left_out:,} characters left out …]\n{self.tail}"


class Texts:
    """The table of a page's texts. What is said again and again, such as a system prompt, stands in it once."""

    def __init__(self) -> None:
        self._indexes: dict[str | bytes, int] = {}
        self._shown: list[Shown] = []
        self._size = 0
        self._limits = list(LIMITS)

    def add(self, text: str) -> int:
        """Where this text stands in the table."""
        key = text if len(text) <= SHORT else blake2b(text.encode("utf-8", "surrogatepass")).digest()
        if key not in self._indexes:
            self._indexes[key] = len(self._shown)
            part = cut_to(Shown(text), self._limits[0])
            self._shown.append(Shown(visible(part.head), visible(part.tail), part.left_out))
            self._size += len(self._shown[-1].text)
        while self._size > PAGE_LIMIT and len(self._limits) > 1:
            self._limits.pop(0)
            self._shown = [cut_to(shown, self._limits[0]) for shown in self._shown]
            self._size = sum(len(shown.text) for shown in self._shown)
        return self._indexes[key]

    def table(self) -> tuple[list[str], list[int]]:
        """Every text as it is shown, and of each how many characters were left out."""
        return [shown.text for shown in self._shown], [shown.left_out for shown in self._shown]


def cut_to(shown: Shown, limit: int) -> Shown:
    """So many characters of the beginning and the end."""
    whole = shown.head + shown.tail
    if len(whole) <= limit:
        return shown
    head = min(limit * 2 // 3, len(shown.head))
    return Shown(whole[:head], whole[head - limit :], shown.left_out + len(whole) - limit)


@dataclass
class Group:
    """A stretch of the run: what came before the steps, one iteration, what came after them. `hidden` counts the
    events without a card; `red` are the checks that refused its closing."""

    id: str
    title: str
    line: HistoryEntry | None = None
    hidden: int = 0
    red: list[str] = field(default_factory=list)
    cards: list[JsonValue] = field(default_factory=list)


class Timeline:
    """Gathers what a page shows of `count` entries. `validators` are the last runs with their events' numbers."""

    def __init__(self, history: Sequence[HistoryEntry], *, count: int) -> None:
        self.began: float | None = None
        self.subject: Issue | None = None
        self.images: list[IssueImage] = []
        self.validators: deque[tuple[int, events.ValidatorRan]] = deque(maxlen=VALIDATORS_SHOWN)
        self.groups: list[Group] = []
        self._texts = Texts()
        self._lines = iter(history)
        self._ids: dict[str, int] = {}
        self._hides = range(EVENTS_SHOWN // 2, count - EVENTS_SHOWN // 2)
        self._seen = 0
        self._ended = False
        self._unanswered: dict[str, tuple[list[JsonValue], JsonObject]] = {}

    def data(self, diffs: Diffs) -> dict[str, JsonValue]:
        """The groups with their cards, the table of texts, and how many characters were left out of each."""
        for parts, block in self._unanswered.values():
            label = f"Call of {one_line(str(block.get('name', '')))}, not answered"
            parts.extend(self._parts(Part(label, block.get("input"))))
        for group in self.groups:
            if group.line and (diff := diffs.steps.get(group.line.iteration)):
                group.cards.append(self._diff_card(f"{group.id}-diff", "What the step changed", diff))
        if diffs.run.files:
            self._open(WHOLE_RUN, "What the run changed")
            self.groups[-1].cards.append(self._diff_card(f"{WHOLE_RUN}-diff", "All steps together", diffs.run))
        table, cuts = self._texts.table()
        groups: list[JsonValue] = [{**_group_head(group), "cards": group.cards} for group in self.groups]
        return {"groups": groups, "texts": [*table], "cuts": [*cuts]}

    def add(self, entry: events.Entry) -> None:
        """Take the next entry."""
        event = entry.event
        self.began = entry.time if self.began is None else self.began
        group = self._group_of(entry)
        parts: list[JsonValue] = []
        if self._seen in self._hides:
            group.hidden += 1
        elif message := describe_event(event):
            parts = self._parts(*message.parts)
            seconds = round(max(0.0, entry.time - self.began), 1)
            group.cards.append(_card(f"e{entry.seq}", seconds, message, parts))
        self._seen += 1
        match event:
            case events.RunStarted():
                self.subject = event.subject
            case ImagesRead():
                self.images = event.images
            case events.ValidatorRan():
                self.validators.append((entry.seq, event))
                if event.action in (FailureAction.RETRY, FailureAction.ABORT):
                    group.red.append(one_line(event.name, 60))
            case events.ToolCalled():
                self._unanswered.pop(event.tool_use_id, None)
            case events.ModelTurned():
                # A call's card comes with its answer; the turn shows those of its calls that have none.
                calls = (block for block in event.content if block.get("type") == "tool_use")
                self._unanswered |= {str(block.get("id", "")): (parts, block) for block in calls}
            case _:
                pass

    def _group_of(self, entry: events.Entry) -> Group:
        """The stretch that the entry belongs to. A run that was resumed has more than one start and end."""
        event = entry.event
        if isinstance(event, events.IterationStarted):
            self._open(f"i{event.iteration}", one_line(event.step_id), next(self._lines, None))
        elif isinstance(event, events.RunResumed):
            self._open("resumed", f"Resumed {one_line(event.step_id)}".rstrip())
        elif isinstance(event, events.RunStarted) or not self.groups:
            self._open("start", "Before the steps")
        elif self._ended:
            self._open("end", "After the steps")
        self._ended = isinstance(event, events.FlowEnded)
        return self.groups[-1]

    def _open(self, name: str, title: str, line: HistoryEntry | None = None) -> None:
        self._ids[name] = times = self._ids.get(name, 0) + 1
        self.groups.append(Group(id=name if times == 1 else f"{name}-{times}", title=title, line=line))

    def _parts(self, *parts: Part) -> list[JsonValue]:
        """All that are not empty."""
        listed: list[JsonValue] = []
        for part in parts:
            if not part.is_empty:
                data: list[JsonValue] = [part.label, self._texts.add(part.text), int(part.is_open), int(part.is_diff)]
                listed.append([*data, [[*put] for put in part.puts]] if part.puts else data)
        return listed

    def _diff_card(self, id: str, title: str, diff: StepDiff) -> JsonValue:
        added, removed = sum(file.added for file in diff.files), sum(file.removed for file in diff.files)
        figures = (count(len(diff.files), "file"), changed_lines(added, removed)) if diff.files else ()
        parts = []
        for file in diff.files:
            changed = f" ({changed_lines(file.added, file.removed)})" if file.added or file.removed else ""
            label = one_line(file.path, 120) + changed
            parts.append(Part(label, file.text, is_open=len(diff.files) <= OPEN_FILES, is_diff=True))
        return _card(id, None, EventMessage(title=title, facts=(*figures, *diff.notes)), self._parts(*parts))


def web_address(url: str) -> str:
    """An address that may be a link; anything else is none."""
    return url if ADDRESS.fullmatch(url) else ""


def _card(id: str, seconds: float | None, message: EventMessage, parts: list[JsonValue]) -> JsonValue:
    facts: list[JsonValue] = [one_line(fact, 200) for fact in (*message.facts, *message.more_facts) if fact]
    return [id, seconds, message.tone.value, message.title, facts, parts, web_address(message.url)]


def _group_head(group: Group) -> JsonObject:
    head: JsonObject = {"id": group.id, "title": group.title, "hidden": group.hidden}
    line = group.line
    if line is None:
        return head
    return head | {
        "n": line.iteration,
        "kind": line.kind.value if line.kind else "",
        "intent": visible(describe_way(line)),
        "to": one_line(line.target or ""),
        "tools": line.tool_calls,
        "tokens": line.usage.total,
        "usd": usd(line.cost_usd),
        "seconds": round(line.seconds, 1),
        "retries": line.format_retries,
        "reason": one_line(line.reason, 200),
        "red": ", ".join(group.red),
    }
