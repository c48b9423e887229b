"""Builds `report.html`, the page of a run: one file that needs no network and no script. It shows everything in the
journal: iterations with their cards, each text limited in length, and repeated text only once.

No text of the run can become markup, because Jinja2 escapes it. The text that a dry run did not write is rendered
as Markdown without HTML. The page's own policy blocks scripts and requests.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from stepflow.domain import event as events
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.checkout import PageDiffs, StepDiff
from stepflow.domain.effect import EffectKind
from stepflow.domain.reports.report import HistoryEntry, RunReport
from stepflow.domain.run import ImagesRead, Issue, IssueImage
from stepflow.domain.text import changed_lines, cut, sum_costs, usd
from stepflow.domain.text import count as count_of
from stepflow.domain.words import FailureAction
from stepflow.report.event_message import describe_event
from stepflow.report.flow_graph import cost_words, is_too_large, walked_path
from stepflow.report.graph_svg import graph_svg
from stepflow.report.proof import describe_proof
from stepflow.report.safe_text import ADDRESS, mark_of, one_line, render_page, seconds_text, spell_unseen
from stepflow.report.summary import figures
from stepflow.report.wording import (
    OUTCOMES,
    EventMessage,
    Part,
    count_canaries,
    describe_hosts,
    describe_subject,
    describe_way,
    next_step,
    reached_places,
    verb_of_text,
)

#: Effects whose text begins with a title.
HAVE_TITLES = (EffectKind.OPEN_PULL_REQUEST, EffectKind.CREATE_RELEASE)
PIECES_SHOWN = 200
PROBLEMS_SHOWN = 200
ANSWER_SHOWN = 20_000
#: Characters of all images together.
IMAGES_SHOWN = 4_000_000
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
#: Events that have a card on a page. A longer run shows half of them from its beginning and half from its end.
EVENTS_SHOWN = 4_000
#: Limit in characters of all texts of the cards together: a browser loads this many within a second.
PAGE_LIMIT = 16_000_000
#: The limits in characters of a single text. Between them, the cards to come share the remaining space of the page.
LONGEST_TEXT, SHORTEST_TEXT = 20_000, 300
#: A text with more characters appears on the page once, and other cards with the same text link to it.
REPEATED = 200
#: A text with more characters or lines gets a scroll bar.
SCROLLS, LINES_SCROLL = 1_500, 20
VALIDATORS_SHOWN = 100
#: The ID of the group with the diff of all steps together.
WHOLE_RUN = "changes"
#: If a step changed more files than this, their diffs are collapsed.
OPEN_FILES = 5
#: The first and the last line of a folded section.
FOLD_BEGINS = re.compile(r"^<details><summary>(.*)</summary>$", re.MULTILINE)
FOLD_ENDS = re.compile(r"^</details>$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CardText:
    """One text of a card."""

    label: str
    text: Markup
    is_open: bool
    is_diff: bool = False
    scrolls: bool = False
    #: Says what was left out.
    note: str = ""
    #: The ID of the card that already shows this text. If it is set, `text` is empty.
    same_as: str = ""


@dataclass(kw_only=True)
class Card:
    """One event, or what a step changed. `seconds` counts from the beginning of the run."""

    id: str
    message: EventMessage
    seconds: float | None = None
    texts: list[CardText] = field(default_factory=list)

    @property
    def facts(self) -> str:
        """The facts that follow the title."""
        message = self.message
        return " · ".join(one_line(fact, 200) for fact in (*message.facts, *message.more_facts) if fact)


@dataclass(kw_only=True)
class Group:
    """A part of the run: the events before the steps, one iteration, or the events after the steps."""

    id: str
    title: str
    line: HistoryEntry | None = None
    #: How many events have no card.
    hidden: int = 0
    #: The checks that rejected the iteration's closing.
    red: list[str] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)

    @property
    def note(self) -> str:
        """A note on the events without a card. Empty if every event has one."""
        left_out = f"{count_of(self.hidden, 'event')} of a very long run left out here"
        return f"{left_out}; journal.jsonl has all of them." if self.hidden else ""

    @property
    def leads(self) -> str:
        """Where the answer of the iteration led."""
        way = describe_way(self.line) if self.line else ""
        return f"{way} → {one_line(self.line.target)}" if self.line and self.line.target else way


class PageTimeline:
    """Collects what a page shows of `count` entries. `validators` holds the last results and the IDs of their cards."""

    def __init__(self, history: Sequence[HistoryEntry], *, count: int) -> None:
        self.began: float | None = None
        self.subject: Issue | None = None
        self.images: list[IssueImage] = []
        self.validators: deque[tuple[str, events.ValidatorRan]] = deque(maxlen=VALIDATORS_SHOWN)
        self.groups: list[Group] = []
        self._lines = iter(history)
        self._ids: dict[str, int] = {}
        self._hides = range(EVENTS_SHOWN // 2, count - EVENTS_SHOWN // 2)
        self._seen = 0
        self._ended = False
        #: The card of each long text, by digest, and how many characters and cards still fit on the page.
        self._places: dict[bytes, str] = {}
        self._room, self._cards_left = PAGE_LIMIT, min(count, EVENTS_SHOWN)

    def add(self, entry: events.Entry) -> None:
        """Add the next entry."""
        event = entry.event
        self.began = entry.time if self.began is None else self.began
        group = self._group_of(entry)
        card = None
        if self._seen in self._hides:
            group.hidden += 1
        else:
            if message := describe_event(event):
                card = Card(id=f"e{entry.seq}", message=message, seconds=max(0.0, entry.time - self.began))
                self._add_texts(card, *message.parts)
                group.cards.append(card)
            self._cards_left -= 1
        self._seen += 1
        match event:
            case events.RunStarted():
                self.subject = event.subject
            case ImagesRead():
                self.images = event.images
            case events.ValidatorRan():
                self.validators.append((f"#e{entry.seq}" if card else f"#{group.id}", event))
                if event.action in (FailureAction.RETRY, FailureAction.ABORT):
                    group.red.append(one_line(event.name, 60))
            case _:
                pass

    def finish(self, diffs: PageDiffs) -> None:
        """Add what no event contains: the changes."""
        for group in self.groups:
            if group.line and (diff := diffs.steps.get(group.line.iteration)):
                self._add_diff(group, "What the step changed", diff)
        if diffs.run.files:
            self._add_diff(self._open(WHOLE_RUN, "What the run changed"), "All steps together", diffs.run)

    def _group_of(self, entry: events.Entry) -> Group:
        """Return the group of the entry. A resumed run has more than one start and end."""
        event, ended = entry.event, self._ended
        self._ended = isinstance(event, events.FlowEnded)
        if isinstance(event, events.IterationStarted):
            return self._open(f"i{event.iteration}", one_line(event.step_id), next(self._lines, None))
        if isinstance(event, events.RunResumed):
            return self._open("resumed", f"Resumed {one_line(event.step_id)}".rstrip())
        if isinstance(event, events.RunStarted) or not self.groups:
            return self._open("start", "Before the steps")
        return self._open("end", "After the steps") if ended else self.groups[-1]

    def _open(self, name: str, title: str, line: HistoryEntry | None = None) -> Group:
        self._ids[name] = times = self._ids.get(name, 0) + 1
        self.groups.append(Group(id=name if times == 1 else f"{name}-{times}", title=title, line=line))
        return self.groups[-1]

    def _add_texts(self, card: Card, *parts: Part) -> None:
        """Add all texts that are not empty."""
        card.texts += [self._card_text(card.id, part) for part in parts if not part.is_empty]

    def _card_text(self, id: str, part: Part) -> CardText:
        whole, label = part.text, part.label or "Text"
        if len(whole) > REPEATED and not part.is_diff:
            digest = blake2b(whole.encode("utf-8", "surrogatepass")).digest()
            if (first := self._places.setdefault(digest, id)) != id:
                return CardText(label=label, text=Markup(), is_open=part.is_open, same_as=first)
        share = self._room // max(1, self._cards_left)
        limit = len(whole) if part.is_diff else max(SHORTEST_TEXT, min(LONGEST_TEXT, share))
        left_out = max(0, len(whole) - limit)
        note = ""
        if not left_out:
            text = spell_unseen(whole)
        else:
            head, tail = whole[: limit * 2 // 3], whole[limit * 2 // 3 - limit :]
            text = f"{spell_unseen(head)}\n[… {left_out:,} characters left out …]\n{spell_unseen(tail)}"
            where = f"; line {id[1:]} of journal.jsonl has all of it" if id[1:].isdigit() else ""
            note = f"{count_of(left_out, 'character')} left out here{where}."
        self._room -= len(text)
        shown = _diff_lines(text) if part.is_diff else escape(text)
        return CardText(
            label=label,
            text=_marked_text(whole, part.puts) if part.puts and not left_out else shown,
            is_open=part.is_open,
            is_diff=part.is_diff,
            scrolls=len(text) > SCROLLS or text.count("\n") >= LINES_SCROLL,
            note=note,
        )

    def _add_diff(self, group: Group, title: str, diff: StepDiff) -> None:
        added, removed = sum(file.added for file in diff.files), sum(file.removed for file in diff.files)
        figures = (count_of(len(diff.files), "file"), changed_lines(added, removed)) if diff.files else ()
        card = Card(id=f"{group.id}-diff", message=EventMessage(title=title, facts=(*figures, *diff.notes)))
        for file in diff.files:
            changed = f" ({changed_lines(file.added, file.removed)})" if file.added or file.removed else ""
            label, is_open = one_line(file.path, 120) + changed, len(diff.files) <= OPEN_FILES
            self._add_texts(card, Part(label, file.text, is_open=is_open, is_diff=True))
        group.cards.append(card)


def format_seconds(seconds: float) -> str:
    """Format seconds as in `0.4`, `12` and `1,204.5`."""
    return f"{seconds:,.1f}".removesuffix(".0")


def web_address(url: str) -> str:
    """Return the address if it may become a link, else an empty string."""
    return url if ADDRESS.fullmatch(url) else ""


#: The first sign of a line below a hunk's header, and its color.
SIGNS = {"+": "added", "-": "removed", " ": "", "@": "hunk"}


def _diff_lines(text: str) -> Markup:
    """Return the lines of a diff with their colors. Above the first hunk there are only headers."""
    lines, in_hunk = [], False
    for line in text.splitlines(keepends=True):
        in_hunk = in_hunk or line.startswith("@@")
        kind = SIGNS.get(line[0], "quiet") if in_hunk else "quiet"
        lines.append(Markup('<span class="{}">{}</span>').format(kind, line))
    return Markup("").join(lines)


def _marked_text(text: str, puts: Iterable[tuple[int, int, str]]) -> Markup:
    """Return a prompt in which every inserted value is marked with the name of its variable."""
    pieces, at = [], 0
    for start, end, name in puts:
        put = Markup('<span class="put" title="{}">{}</span>').format(spell_unseen(name), spell_unseen(text[start:end]))
        pieces += [escape(spell_unseen(text[at:start])), put]
        at = end
    return Markup("").join((*pieces, escape(spell_unseen(text[at:]))))


def _texts(report: RunReport) -> Iterator[tuple[str, str, Markup]]:
    """Yield what was not written: the kind of effect, the title if there is one, and the rendered text."""
    for kind, text in report.texts.items():
        title, _, body = text.partition("\n\n") if kind in HAVE_TITLES else ("", "", text)
        yield kind, one_line(title), markdown_html(body)


def _images(images: Sequence[IssueImage]) -> Iterator[tuple[str, str]]:
    """Yield a description and a data URL for each image of the issue. The URL is empty if the model did not see the
    image, or if the page would grow too large."""
    left = IMAGES_SHOWN
    for image in images:
        shows = image.type is not None and len(image.data) <= left and BASE64.fullmatch(image.data)
        left -= len(image.data) if shows else 0
        yield one_line(str(image), 400), f"data:{image.type};base64,{image.data}" if shows else ""


def _by_step(history: Sequence[HistoryEntry]) -> dict[str, list[HistoryEntry]]:
    """Return the iterations of each step, in the order in which the run reached them."""
    steps: dict[str, list[HistoryEntry]] = {}
    for line in history:
        steps.setdefault(line.step_id, []).append(line)
    return steps


def _about(timeline: PageTimeline, report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield what the run was about, for its first lines: texts, each with an address to link to."""
    if (issue := timeline.subject) and issue.title.strip():
        yield f"#{issue.number} {one_line(issue.title, 200)}", web_address(issue.url)
    pushed = next((each for each in report.effects if each.kind is EffectKind.PUSH_BRANCH), None)
    if branch := pushed.detail if pushed else report.kept_branch:
        yield f"branch {one_line(branch, 200)}", web_address(pushed.url) if pushed else ""
    if timeline.began is not None:
        yield f"{datetime.fromtimestamp(timeline.began, UTC):%Y-%m-%d %H:%M} UTC", ""


def report_html(
    entries: Iterable[events.Entry],
    report: RunReport,
    agent: AgentDefinition | None = None,
    *,
    count: int,
    diffs: Callable[[], PageDiffs] = PageDiffs,
) -> str:
    """Return the whole page of `count` entries, which are not all held in memory. `diffs` is called after the last
    entry, and returns what the iterations changed."""
    timeline = PageTimeline(report.history, count=count)
    for entry in entries:
        timeline.add(entry)
    changed = diffs()
    timeline.finish(changed)
    graph = _graph(report, agent) if agent else ""
    return render_page(
        "report.html.j2",
        *("report.css", "graph.css"),
        graph=Markup(graph),  # noqa: S704 - drawn by a template that escapes
        too_large=agent is not None and not graph,
        mark_of=mark_of,
        describe_proof=describe_proof,
        name=one_line(report.agent) or "stepflow",
        ended=OUTCOMES[report.outcome],
        reason=report.explanation,
        advice=markdown_html(f"**What to do next:** {next_step(report)}"),
        figures=figures(report),
        report=report,
        verb_of_text=verb_of_text,
        subject=describe_subject(report),
        timeline=timeline,
        diffs_note=changed.note,
        has_changes=bool(changed.run.files),
        steps=_by_step(report.history),
        sum_costs=sum_costs,
        texts=[*_texts(report)],
        images=[*_images(timeline.images)],
        about=[*_about(timeline, report)],
        began=datetime.fromtimestamp(timeline.began, UTC) if timeline.began is not None else None,
        count_of=count_of,
        count_canaries=count_canaries,
        reached_places=reached_places,
        describe_hosts=describe_hosts,
        most={"pieces": PIECES_SHOWN, "problems": PROBLEMS_SHOWN},
        indented=lambda value: cut(json.dumps(value, ensure_ascii=False, indent=2, default=dict), ANSWER_SHOWN),
        one_line=one_line,
        format_seconds=format_seconds,
        seconds_text=seconds_text,
        usd=usd,
        web_address=web_address,
    )


def _graph(report: RunReport, agent: AgentDefinition) -> str:
    """Return the picture of the graph, or an empty string if it is too large."""
    path = walked_path(report)
    if is_too_large(agent, path):
        return ""
    first = {line.step_id: f"#i{line.iteration}" for line in reversed(report.history)}
    return graph_svg(agent, path, costs=cost_words(report), links=first)


def markdown_html(text: str) -> Markup:
    """Render Markdown for a page whose own headings are `h1` and `h2`. Sections that GitHub folds are open."""
    parser = _parser()
    tokens = parser.parse(FOLD_ENDS.sub("", FOLD_BEGINS.sub(r"**\1**", spell_unseen(text))))
    for token in _all(tokens):
        # Remove the styles of table cells, because a page whose policy forbids styles would report errors.
        token.attrs = {name: value for name, value in token.attrs.items() if name == "href"}
        # The language of a code block would become a class, which might be one of the page's own.
        token.info = ""
        if token.tag in ("h1", "h2"):
            token.tag = "h3"
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - made by the parser, without HTML


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("js-default").disable("image")
    parser.validateLink = lambda url: bool(ADDRESS.fullmatch(url))  # type: ignore[method-assign]
    return parser


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())
