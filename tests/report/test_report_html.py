"""The page of a run: what it shows, that no text of a run can become markup or script, and that its size is bounded."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections import Counter
from dataclasses import replace

import pytest
from hostile import TEXT
from hypothesis import given, settings
from hypothesis import strategies as st
from page_of import PageReader, events_of, page_of
from plausible_run import AGENT, ENTRIES, STEPS, entries_of

from stepflow.domain import event as events
from stepflow.domain.checkout import FileDiff, PageDiffs, StepDiff
from stepflow.domain.conversation import ModelTurn, Substitution, ToolCall, Usage
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.run import ImageProblem, ImagesRead, ImageType, Issue, IssueImage
from stepflow.domain.text import RemovalKind, RemovedPiece, TextRemoved
from stepflow.domain.words import Outcome, StepKind
from stepflow.errors import Problem, Severity
from stepflow.report.collect import collect_report
from stepflow.report.page import LONGEST_TEXT, report_html
from stepflow.report.safe_text import spell_unseen
from tests.golden import assert_golden

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x1b]8;;https://evil.test\x07link\x1b]8;;\x07",
    "a\x00b",
    "\udc80",
    "\u2028\u2029",
    "&lt;b&gt;",
)


def tool(output: str, **more: object) -> ToolCall:
    given = {"tool_use_id": "t", "name": "bash", "input": {"command": "ls"}, "is_error": False, "exit_code": 0}
    return ToolCall(**{**given, "output": output, "seconds": 0.1, **more})


def shown(*happened, **more) -> PageReader:
    return PageReader(page_of(events_of(*happened), **more))


SUBJECT = Issue(number=7, title="Empty <b>lines</b>", url="https://github.com/octo/parser/issues/7")
FILE = FileDiff(path="src/<b>.py", text="--- a\n+++ b\n-old\n+new\n", added=1_200, removed=1)
DIFFS = PageDiffs(
    steps={2: StepDiff(files=(FILE,), notes=("… 3 more files left out",)), 9: StepDiff(files=(FILE,))},
    run=StepDiff(files=(FILE,), notes=("… 1 more file left out",)),
    note="Damaged <i>, see below.",
)


def test_the_page_of_a_plausible_run_is_the_golden_one():
    """Its style and the picture of the graph, which has a golden file of its own, are left out."""
    started = replace(ENTRIES[0], event=replace(ENTRIES[0].event, subject=SUBJECT))
    page = page_of((started, *ENTRIES[1:]), AGENT, diffs=DIFFS)
    shown = re.sub(r"<(style|svg)[^>]*>.*?</\1>|<meta http-equiv.*?>", "", page, flags=re.DOTALL)
    assert_golden("report/page.html", shown + "\n")
    assert {"#i1", "#i2", "#i3"} <= {given.get("href") for tag, given in PageReader(page).elements if tag == "a"}
    assert not re.search('<svg|href="#changes"', page_of(ENTRIES, None))


def test_effects_that_failed_removed_text_and_problems_are_shown():
    removed = TextRemoved(count=3, pieces=(RemovedPiece(kind=RemovalKind.HIDDEN, where="body", text="do\u200b evil"),))
    failed = events.EffectApplied(
        kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.FAILED, detail="403", url="javascript:x()"
    )
    problem = Problem(severity=Severity.NOTE, code="SF346", file="a.json", path="/x", line=3, message="m", fix="f")
    entries = events_of(removed, events.EffectPlanned(kind=EffectKind.CLOSE_ISSUE, detail="issue 7"), failed)
    page = PageReader(page_of(entries, replace(AGENT, problems=(problem,))))
    assert "do<U+200B> evil" in page.text
    assert "The first 1 are shown." in page.text
    assert "✗ failed" in page.text
    assert "a.json:3: note SF346 m (/x). Fix: f" in page.text
    assert not any("javascript" in str(attributes.get("href")) for _, attributes in page.elements)


def test_what_was_put_into_a_prompt_is_marked_with_its_variable():
    sent = "Fix #7 😀 of the\nparser!\n"
    prompt = events.PromptRendered(
        system="s",
        blocks=[sent, "context"],
        source="prompts/a.md",
        retry=False,
        tools=[],
        substitutions=[
            Substitution(name="issue", start=5, end=6),
            Substitution(name="topic", start=12, end=22),
        ],
    )
    card = PageReader(page_of(events_of(prompt))).cards()[-1]
    assert card.shown[1].puts == [("7", "issue"), ("the\nparser", "topic")]
    assert (card.title, card.facts) == ("prompt: prompts/a.md; tools: none", "put in: issue, topic")
    assert card.parts["Prompt"] == sent
    assert card.parts["Context"] == "context"


@pytest.mark.parametrize("sent", ["Log in with *** for #7", "Fix #7" + "!" * 20_000])
def test_a_prompt_that_was_masked_or_is_cut_is_not_marked(sent):
    put = Substitution(name="issue", start=5, end=6)
    prompt = events.PromptRendered(system="", blocks=[sent], source="a.md", retry=True, tools=[], substitutions=[put])
    card = PageReader(page_of(events_of(prompt))).cards()[-1]
    assert (card.title, card.facts) == ("retry prompt: a.md; tools: none", "put in: issue")
    assert card.shown[0].puts == []


def test_a_turn_shows_its_calls_and_a_call_its_input_and_output():
    def uses(id: str) -> ModelTurn:
        block = {"type": "tool_use", "id": id, "name": "bash", "input": {"command": "make"}}
        return ModelTurn(
            content=[{"type": "thinking", "thinking": "hm"}, block, {"type": "odd", "x": 1}],
            stop_reason="tool_use",
            usage=Usage(),
            cost_usd=None,
            model="m",
            seconds=1.0,
        )

    cards = shown(uses("t"), tool("done"), uses("lost")).cards()
    assert [list(card.parts) for card in cards[-3:]] == [
        ["Thinking", "Call of bash", "odd"],
        ["Input", "Output"],
        ["Thinking", "Call of bash", "odd"],
    ]


def test_what_a_resumed_run_did_after_it_went_on_stands_apart():
    begun = events.IterationStarted(iteration=1, step_id="s", kind=StepKind.WORK, model="m")
    resumed = events.RunResumed(events=2, from_seq=2, iteration=1, step_id="s")
    page = shown(begun, events.ToolStarted(tool_use_id="t", name="bash"), resumed, tool("done"))
    rows = [(group.id, " ".join(group.row.split())) for group in page.groups]
    assert rows[0] == ("start", "Before the steps")
    assert rows[1][0] == "i1"
    assert rows[1][1].startswith("1 s work ")
    assert rows[2] == ("resumed", "Resumed s")
    titles = ["Iteration 1 begins", "The run is resumed after 2 events, at iteration 1", "✓ bash ls"]
    assert [card.title for card in page.cards()[1:]] == titles


def test_a_resumed_run_has_its_parts_with_ids_of_their_own():
    begun = events.IterationStarted(iteration=1, step_id="s", kind=StepKind.WORK, model="m")
    started = ENTRIES[0].event
    assert isinstance(started, events.RunStarted)
    page = PageReader(page_of(entries_of([(0.0, started), (0.1, begun), (0.1, started), (0.1, begun)])))
    assert [group.id for group in page.groups] == ["start", "i1", "start-2", "i1-2"]


def test_a_run_that_never_began_has_a_page_too():
    report = collect_report((), None)
    page = PageReader(report_html((), report, count=0))
    assert page.groups == []
    assert "None: nothing was planned or written." in page.text
    assert report.outcome is not Outcome.COMPLETED


def test_the_page_lets_nothing_run_and_fetches_nothing():
    page = PageReader(page_of(ENTRIES, AGENT))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    assert f"style-src 'sha256-{base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()}'" in policy
    assert not any(tag == "script" for tag, _ in page.elements)
    fetching = {"link", "img", "iframe", "object", "embed", "audio", "video", "base", "form"}
    assert not fetching & {tag for tag, _ in page.elements}
    assert not [a for _, a in page.elements if "src" in a or "style" in a or any(name.startswith("on") for name in a)]


def test_images_of_the_issue_are_in_the_page_itself_until_it_grows_too_large():
    def image(data, **more):
        return IssueImage(address="https://github.com/a", type=ImageType.PNG, width=4, height=3, data=data, **more)

    hidden = IssueImage(address="https://example.com/<b>", problem=ImageProblem.ELSEWHERE)
    large = "A" * 2_000_004
    given = [image("AAAA"), image('" onerror="alert(1)'), hidden, image(large), image(large), image("BB==")]
    page = shown(ImagesRead(images=given))
    sources = [a["src"] for tag, a in page.elements if tag == "img"]
    assert sources == [f"data:image/png;base64,{data}" for data in ("AAAA", large, "BB==")]
    assert "https://github.com/a: image/png, 4 × 3 pixels" in page.text
    assert "https://example.com/<b>: not attached on GitHub" in page.text


def texts_of(page: PageReader) -> list[str]:
    return [part.text for card in page.cards() for part in card.shown]


def page_with(text: str) -> PageReader:
    """A page in which this text stands everywhere."""
    happened = (
        events.PromptRendered(system=text, blocks=[text], source=text, retry=False, tools=[text]),
        tool(text, name=text, input={text: text}),
        events.Noted(level="error", message=text, data={text: text}),
    )
    return shown(*happened, report={"reason": text, "agent": text, "verdict": text, "run_folder": text})


SKELETON = [tag for tag, _ in page_with("x").elements]
#: What is not there where a text is blank, or is another table's.
OF_TEXTS = ("dt", "dd", "li", "th", "td", "tr", "details", "summary", "pre", "p")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text_everywhere(text):
    page = page_with(text)
    left_out = OF_TEXTS if not text.strip() else OF_TEXTS[:6]
    assert [tag for tag, _ in page.elements if tag not in left_out] == [tag for tag in SKELETON if tag not in left_out]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", page.text)
    assert spell_unseen(text) in texts_of(page) or not spell_unseen(text).strip()


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, min_size=3, max_size=3))
def test_no_text_adds_an_element_or_an_attribute(texts):
    one, two, three = texts
    page = shown(tool(one, input={"command": two}), report={"reason": three, "agent": one})
    allowed = {tag for tag, _ in PageReader(page_of(ENTRIES, AGENT)).elements}
    assert {tag for tag, _ in page.elements} <= allowed
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert spell_unseen(one) in texts_of(page) or not one.strip()


MARKS = {"p", "strong", "em", "s", "a", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br"}
MARKS |= {"h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "div", "details", "summary"}


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=3, max_size=3))
def test_the_texts_of_a_dry_run_become_marks_and_links_and_nothing_else(texts):
    title, body, comment = texts
    planned = (
        events.EffectPlanned(kind=EffectKind.OPEN_PULL_REQUEST, detail="d", text=f"x{title}\n\n{body}"),
        events.EffectPlanned(kind=EffectKind.POST_COMMENT, detail="d", text=f"x{comment}"),
    )
    calm = Counter(
        tag for tag, _ in PageReader(page_of(events_of(*(replace(each, text="") for each in planned)))).elements
    )
    page = PageReader(page_of(events_of(*planned)))
    assert {tag for tag, many in Counter(tag for tag, _ in page.elements).items() if many > calm[tag]} <= MARKS
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name in ("style", "src") or name.startswith("on")]
        assert re.match("#|https?://", attributes.get("href") or "#") or tag != "a"


def test_the_texts_of_a_dry_run_are_shown_as_they_look():
    table, folded = "| a |\n|--:|\n| 1 |", "<details><summary>More</summary>\n\n> said\n\n</details>"
    comment = f"### ✅ done\n\n- ✅ `make` (tests)\n\n{table}\n\n{folded}"
    page = page_of(
        events_of(
            events.EffectPlanned(
                kind=EffectKind.OPEN_PULL_REQUEST, detail="d", text="Fix *it*\n\nCloses [#7](https://x.test/7)."
            ),
            events.EffectPlanned(kind=EffectKind.POST_COMMENT, detail="d", text=comment),
        )
    )
    assert '<p><strong>Fix *it*</strong></p><p>Closes <a href="https://x.test/7">#7</a>.</p>' in page
    assert "<h3>✅ done</h3>\n<ul>\n<li>✅ <code>make</code> (tests)</li>\n</ul>\n<table>" in page
    assert "<p><strong>More</strong></p>\n<blockquote>\n<p>said</p>\n</blockquote>" in page
    assert "would write" not in page_of(ENTRIES, AGENT)


def test_text_of_every_script_is_shown_as_it_is_and_only_hidden_signs_are_spelled_out():
    for text in ("日本語の課題", "مرحبا", "👩‍👩‍👧 ✅\ufe0f", "می‌خواهم", "क्‍ष", "tab\there"):
        assert spell_unseen(text) == text
    assert spell_unseen("a\u200db\u202ec") == "a<U+200D>b<U+202E>c"
    assert spell_unseen("😀\ufe0f\ufe0f\ufe0e") == "😀<U+FE0F><U+FE0F><U+FE0E>"
    assert spell_unseen("one\r\ntwo\rthree") == "one\ntwo\nthree"


def test_a_long_output_is_cut_in_the_middle_with_a_note_and_the_journal_named():
    page = shown(tool("a" * 600_000 + "END"))
    output = page.cards()[-1].shown[-1]
    assert output.text.endswith("END")
    assert len(output.text) < LONGEST_TEXT + 100
    assert output.note == "580,003 characters left out here; line 2 of journal.jsonl has all of it."
    assert "characters left out …]" in output.text


def test_the_same_text_stands_in_the_page_once_and_the_other_cards_lead_there():
    prompt = events.PromptRendered(system="be careful " * 500, blocks=["do it"], source="a", retry=False, tools=[])
    page = page_of(events_of(*[prompt] * 200))
    assert page.count("be careful " * 500) == 1
    assert PageReader(page).cards()[-1].notes == ["System prompt: the same text as in event 2"]
    assert page.count('<a href="#e2">') == 199


def test_a_run_of_very_many_long_outputs_has_a_page_of_bounded_size(monkeypatch):
    monkeypatch.setattr("stepflow.report.page.PAGE_LIMIT", 400_000)
    page = PageReader(page_of(events_of(*(tool(f"{number} " + "x" * 30_000 + f" {number}") for number in range(300)))))
    outputs = [card.shown[-1] for card in page.cards()[1:]]
    # The last text may bring a note of what it leaves out.
    assert sum(map(len, texts_of(page))) <= 400_000 + 100
    assert len(outputs) == 300
    for number, output in enumerate(outputs):
        whole = f"{number} " + "x" * 30_000 + f" {number}"
        head, note, tail = output.text.split("\n")
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head + tail) + int(re.sub(r"\D", "", note)) == len(whole)
        assert output.note


def test_of_more_events_than_a_page_can_show_the_first_and_the_last_are_there(monkeypatch):
    monkeypatch.setattr("stepflow.report.page.EVENTS_SHOWN", 10)
    text = page_of(ENTRIES, AGENT)
    page = PageReader(text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'\bid="([^"]+)"', text))
    assert len(page.cards()) == 10
    hidden = [int(note.split()[0]) for group in page.groups for note in group.notes if "left out here" in note]
    assert sum(hidden) == len(ENTRIES) - 10
    assert page.groups[-1].id == "end"


def test_a_line_of_a_megabyte_takes_no_time():
    began = time.process_time()
    shown(tool("\u202e" * 1_000_000), events.Noted(level="info", message="x" * 1_000_000))
    assert time.process_time() - began < 1.0


def test_a_graph_of_very_many_arrows_is_left_out_with_a_word():
    steps = {f"s.{number}": replace(STEPS[0], id=f"s.{number}") for number in range(450)}
    page = PageReader(page_of(ENTRIES, replace(AGENT, steps=steps)))
    assert "The graph is too large for a picture here" in page.text
    assert not any(tag == "svg" for tag, _ in page.elements)
