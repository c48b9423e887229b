"""`report.html` in a real Chromium: it looks as it should, runs and asks for nothing, and can be linked to."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from accessible import violations
from conftest import Open, Opened

from stepflow.domain.checkout import FileDiff, PageDiffs, StepDiff
from stepflow.domain.conversation import ToolCall
from stepflow.domain.effect import EffectKind
from stepflow.domain.event import EffectPlanned, Noted
from stepflow.domain.run import ImagesRead, ImageType, IssueImage
from tests.images import png
from tests.report.hostile_agent import hostile_agent
from tests.report.page_of import events_of, long_run, page_of
from tests.report.plausible_run import AGENT, ENTRIES

pytestmark = pytest.mark.browser

GOLDEN = Path(__file__).parents[1] / "report/golden"
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
DIFF = """diff --git a/src/parser.py b/src/parser.py
--- a/src/parser.py
+++ b/src/parser.py
@@ -1,3 +1,3 @@
 def parse(text):
-    return text.split()
+    return [line for line in text.split() if line]
"""
#: Lines of a file that look like a diff's own, a long line, a binary file, one that is cut.
SQL = (
    """diff --git a/queries/long name of a file that hardly fits into one line of a small screen.sql b/q.sql
old mode 100644
new mode 100755
line endings CRLF
--- a/q.sql
+++ b/q.sql
@@ -1,4 +1,3 @@
 select 1;
--- a comment goes
+++ and this is added
+select 'ü<b>&amp;' as a_very_long_name_without_any_blank_in_it_"""
    + "x" * 200
    + """;
-@@ -1 +1 @@
- gone
\\ No newline at end of file
… 1,204 more lines of this difference left out"""
)
BINARY = "diff --git a/logo.png b/logo.png\nbinary file changed (1,204 → 1,377 bytes)"
DIFFS = PageDiffs(
    steps={
        2: StepDiff(
            files=(
                FileDiff(path="logo.png", text=BINARY),
                FileDiff(path="queries/q.sql", text=SQL, added=1_206, removed=3),
                FileDiff(path="src/parser.py", text=DIFF, added=1, removed=1),
            ),
            notes=("… 3 more files left out",),
        ),
        4: StepDiff(notes=("left out to keep this page small",)),
    },
    run=StepDiff(files=(FileDiff(path="src/parser.py", text=DIFF, added=1, removed=1),)),
    note="What 1 of 2 steps changed is left out to keep this page small.",
)
HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"
IN_VIEW = """(id) => {
  const box = document.getElementById(id).getBoundingClientRect();
  return box.top >= 0 && box.top < innerHeight;
}"""


@pytest.fixture(scope="module")
def page_text() -> str:
    return page_of(ENTRIES, AGENT, diffs=DIFFS)


@pytest.fixture(scope="module")
def long_page() -> str:
    return page_of(long_run(10_000), AGENT)


def row(name: str) -> str:
    """The row that opens a part of the run."""
    return f".group:has(> #{name}) > summary"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_page_says_nothing_to_the_console_and_asks_for_nothing(open_page: Open, page_text, width, scheme) -> None:
    opened = open_page(page_text, width=width, scheme=scheme)
    opened.picture(f"report-{width}-{scheme}", whole=True)
    for name in ("i1", "i2", "i3", "end"):
        opened.page.click(row(name))
    opened.picture(f"report-open-{width}-{scheme}")
    opened.page.evaluate("location.hash = '#i2-diff'")
    opened.page.wait_for_selector("#i2-diff:target")
    opened.picture(f"report-diff-{width}-{scheme}")
    assert (opened.said, opened.foreign) == ([], [])
    wide = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing_serious(open_page: Open, npm: Path, page_text, width, scheme) -> None:
    opened = open_page(page_text, "#i2", width=width, scheme=scheme)
    for name in ("start", "i1", "i3", "end"):
        opened.page.click(row(name))
    assert violations(opened.page, npm) == []


def test_a_link_to_an_iteration_opens_it_and_goes_there(open_page: Open, page_text) -> None:
    opened = open_page(page_text, "#i4")
    opened.page.wait_for_selector(".group[open] > #i4:target")
    assert opened.page.evaluate(IN_VIEW, "i4")
    opened.page.evaluate("location.hash = '#i2'")
    opened.page.wait_for_selector(".group[open] > #i2:target")


def test_a_link_to_an_event_opens_its_iteration_and_shows_it(open_page: Open, page_text) -> None:
    seq = next(entry.seq for entry in ENTRIES if isinstance(entry.event, ToolCall))
    opened = open_page(page_text, f"#e{seq}")
    opened.page.wait_for_selector(f".group[open] #e{seq}:target")
    assert opened.page.inner_text(f"#e{seq} h4") == "✓ read src/parser.py"
    assert opened.page.evaluate(IN_VIEW, f"e{seq}")


def test_links_in_the_page_lead_into_the_timeline(open_page: Open, page_text) -> None:
    opened = open_page(page_text)
    opened.page.click("#validators tbody tr:first-child a")
    opened.page.wait_for_selector(".card.bad:target h4:has-text('git-clean failed')")
    opened.page.click("svg a[href='#i1']")
    opened.page.wait_for_selector(".group[open] > #i1:target")


def test_the_link_to_the_changed_files_opens_the_diff_of_the_whole_run(open_page: Open, page_text) -> None:
    opened = open_page(page_text)
    opened.page.click("nav a[href='#changes']")
    opened.page.wait_for_selector(".group[open] > #changes pre.diff")
    assert opened.page.evaluate(IN_VIEW, "changes-diff")
    opened.picture("report-changes")


def test_lines_of_a_file_that_look_like_a_diff_s_own_are_told_apart(open_page: Open, page_text) -> None:
    page = open_page(page_text, "#i2-diff").page
    names = page.evaluate(
        "[...document.querySelectorAll('#i2-diff details:nth-of-type(2) span')].map((one) => one.className)"
    )
    assert names == [*["quiet"] * 6, "hunk", "", "removed", "added", "added", "removed", "removed", "quiet", "quiet"]
    assert page.inner_text("#i2-diff .top .facts") == "3 files · +1,207 −4 · … 3 more files left out"


def test_everything_can_be_reached_and_opened_with_the_keyboard(open_page: Open, page_text) -> None:
    page = open_page(page_text).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the timeline"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert "Before the steps" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".group[open] > #i1 .card")


def test_light_and_dark_are_the_reader_s_own(open_page: Open, page_text) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    grounds = [open_page(page_text, scheme=scheme).page.evaluate(ground) for scheme in ("dark", "light")]
    assert grounds == ["rgb(13, 17, 23)", "rgb(255, 255, 255)"]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_texts_of_a_dry_run_look_like_texts_of_github(open_page: Open, npm: Path, width, scheme) -> None:
    golden = (GOLDEN / "comment.md").read_text("utf-8")
    table = "\n\n| Check | Time |\n| --- | ---: |\n| `make test` | 12 s |\n\n> Nothing else changed.\n"
    events = (
        EffectPlanned(kind=EffectKind.OPEN_PULL_REQUEST, detail="d", text=f"Accept empty lines\n\n{table}{HOSTILE}"),
        EffectPlanned(kind=EffectKind.POST_COMMENT, detail="d", text=golden),
    )
    opened = open_page(page_of(events_of(*events), AGENT), "#effects", width=width, scheme=scheme)
    opened.picture(f"report-texts-{width}-{scheme}")
    assert opened.page.locator(".text li code", has_text="git status --porcelain").count() == 1
    assert opened.page.locator(".text img").count() == 0
    assert (opened.said, opened.foreign) == ([], [])
    assert violations(opened.page, npm) == []


def test_hostile_text_is_seen_as_text_and_nothing_of_it_runs(open_page: Open) -> None:
    call = ToolCall(
        tool_use_id="t", name=HOSTILE, input={HOSTILE: HOSTILE}, output=HOSTILE, is_error=False, exit_code=0, seconds=1
    )
    noted = Noted(level="error", message=HOSTILE, data={"x": "javascript:alert(1)"})
    text = page_of(events_of(call, noted), hostile_agent(HOSTILE, HOSTILE), report={"explanation": HOSTILE})
    opened = open_page(text, "#e2")
    opened.page.wait_for_timeout(200)
    assert (opened.said, opened.foreign) == ([], [])
    assert opened.page.inner_text("#e2 .part:last-child pre") == HOSTILE
    assert opened.page.inner_text(".reason") == HOSTILE
    assert opened.page.evaluate("document.querySelectorAll('script, img, iframe').length") == 0


def test_the_policy_stops_a_script_that_came_in_all_the_same(open_page: Open, page_text) -> None:
    forged = page_text.replace("</main>", "<script>document.title = 'forged'</script></main>")
    opened = open_page(forged.replace("<h1>", "<h1 onclick=\"document.title='forged'\"><img src='https://evil.test/'>"))
    opened.page.click("h1")
    assert opened.page.title() == "fixer #7: completed"
    assert sum("Content Security Policy" in words for words in opened.said) >= 3


def cpu_seconds(opened: Opened) -> float:
    """CPU time that Chromium's main thread takes to load the page again. Unlike the elapsed time, it does not depend on
    what else the machine does."""
    devtools = opened.page.context.new_cdp_session(opened.page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        measured = devtools.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in measured if metric["name"] == "TaskDuration")

    before = spent()
    opened.page.reload(wait_until="load")
    return spent() - before


def test_a_run_of_ten_thousand_events_costs_less_than_two_seconds(open_page: Open, page_text, long_page) -> None:
    pages = {len(ENTRIES): page_text, 1_000: page_of(long_run(1_000), AGENT), 10_000: long_page}
    few, tenth, large = (min(cpu_seconds(open_page(text)) for _ in range(3)) for text in pages.values())
    print(
        f"CPU time to load: {few:.3f} s with {len(ENTRIES)} events, {tenth:.3f} s with 1,000, {large:.3f} s with 10,000"
    )
    assert 0 < large < 2
    assert large < few + 1.5
    assert large < 10 * tenth


def test_a_line_of_a_megabyte_opens_and_keeps_its_place(open_page: Open) -> None:
    call = ToolCall(
        tool_use_id="t", name="bash", input={}, output="x" * 1_000_000, is_error=False, exit_code=0, seconds=1
    )
    opened = open_page(page_of(events_of(call), AGENT), "#e2", width=390)
    assert "980,000 characters left out here; line 2 of journal.jsonl has all of it." in opened.page.inner_text("#e2")
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_image_of_the_issue_is_shown_and_no_wider_than_the_page(open_page: Open) -> None:
    data = base64.b64encode(png(2400, 900)).decode()
    seen = IssueImage(
        address="https://github.com/user-attachments/assets/x", type=ImageType.PNG, width=2400, height=900, data=data
    )
    opened = open_page(page_of(events_of(ImagesRead(images=[seen])), AGENT), width=390)
    opened.picture("report-image-390", whole=True)
    natural, shown, ratio = opened.page.evaluate(
        "(() => { const i = document.querySelector('#images img'); "
        "return [i.naturalWidth, i.width, i.width / i.height] })()"
    )
    assert (natural, shown < 390) == (2400, True)
    assert ratio == pytest.approx(2400 / 900, rel=0.02)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert (opened.said, opened.foreign) == ([], [])
