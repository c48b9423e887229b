"""GitHub's own Markdown renderer finds nothing that acts in a text that went through the filter."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.boundary.output_filter import OutputFilter, defuse, filter_line, filter_text
from tests.boundary.rendered import faults
from tests.covering import FULL
from tests.tried import MANY, MARKS, tried

HOSTS = frozenset({"github.com"})
FILTER = OutputFilter(allowed_hosts=HOSTS)

KEYWORDS = (
    "Fixes", "_Closes", "__Fixes__", "**resolve**", "*f*ix", "F*ix*es", "Fix*es*", "~~closed~~", "[fix](docs)",
    "[Fix](docs)es", "[fixes][d]", "[Close]", "![a](b)fixes", "(RESOLVED)", "1.fixes", "-fix", "é,fix", "`a`fix",
    "&#102;ix", "f&#x69;xes", "fix&ZeroWidthSpace;ed", "<b>fixes</b>",
)  # fmt: skip
GAPS = (
    " ", "                     ", ":", ": ", "\n", "\n\n", "\n> ", "&nbsp;", "&#32;&Tab;", "\\\n", " \\",
    "</details>\n", "<br>", "<!-- x -->", "&colon; ", "[](x)", "[^1]: ", "\u3000", "\xa0", " — ", "** ", " __", "_",
    "*", "` `", "  \n- ", ": [", ": (",
)  # fmt: skip
REFERENCES = (
    "#5", "#5_", "#5**", "_#5_", "**#5**", "#*5*", "\\#5", "&#35;5", "#&#53;", "GH-5", "gh\\-5", "G*H*-5",
    "acme/other#5", "acme\\/other\\#5", "_acme/other_#5", "acme/*other*#5", "[#5](docs)",
    "[x](https://github.com/a/b/issues/5)", "https://github.com/a/b/issues/5", "[#5][d]",
    "<https://github.com/a/b/issues/5>", "https\\://github.com/a/b/pull/5",
)  # fmt: skip
WRAPPINGS = (
    "{}", "_{}_", "__{}__", "*{}*", "~{}~", "> {}", "- {}", "# {}", "| {} |\n|-|", "[{}](docs)", "a{}",
    "<details>\n\n{}\n</details>", "[^1]\n\n[^1]: {}",
)  # fmt: skip
TEXTS = (
    "see", "", "![i](https://evil.com/i.png)", "[in](https://github.com/b)", "`c`", "a\\]b", "[b]", "@bob",
)  # fmt: skip
TARGETS = (
    "https://evil.com/x", "https://evil/x", "//evil.com", "http://github.com.evil.com",
    "https://github.com@evil.com", "/\\evil.com", "https://github.com/a)https://evil/x",
    "https://github.com/a)www.evil.com", "docs)https://evil.com", "<https://evil.com>",
    "<https://github.com/a>https://evil.com", "javascript:alert(1)", "https://github.com/a(b)",
    "https://github.com/a\\)https://evil.com", "&#104;ttps://evil.com", "mailto:a@evil.com", "https:\\\\evil.com",
    "https://github.com\u3000.evil.com", "https://github.com/a|https://evil.com",
    "https://github.com/a`https://evil.com`",
)  # fmt: skip
FORMS = (
    "[{0}]({1})", "![{0}]({1})", "[{0}]( {1} )", "[{0}]({1} \"t\")", "[{0}]:\n{1}\n\n[{0}]", "[{0}][d]\n\n[d]: {1}",
    "{0}{1}", "({1})", "<{1}>", "*{1}*", "| {0} | {1} |\n|-|-|\n| {1} | `x` |", "[{0}]({1})https://evil.com",
    "<a href=\"{1}\">{0}</a>", "[^1]\n\n[^1]: {1}", "`{0}` {1}", "`{0} {1}",
)  # fmt: skip
MENTIONS = (
    "@bob", "\\@bob", "&#64;bob", "@*bob*", "[@bob](docs)", "_@bob_", "`x`@bob", "> @acme/team", "a@bob.io",
)  # fmt: skip


def closings(wrapping: str) -> list[str]:
    return [
        wrapping.format(f"{keyword}{gap}{reference}") + "\n\n[d]: docs"
        for keyword, gap, reference in itertools.product(KEYWORDS, GAPS, REFERENCES)
    ]


def links() -> list[str]:
    return [form.format(text, target) for form, text, target in itertools.product(FORMS, TEXTS, TARGETS)]


def test_the_judge_finds_every_kind_of_fault_in_texts_that_were_not_filtered() -> None:
    """A judge that found nothing there would prove nothing below."""
    closing = [text for wrapping in WRAPPINGS for text in closings(wrapping)[::97]]
    texts = [*closing, *links(), *MENTIONS]
    active = Counter(kind for text in texts for kind in faults(text, HOSTS))
    assert set(active) == {"closing keyword", "foreign link", "foreign image", "mention", "HTML"}
    assert min(active.values()) >= len(MENTIONS), active


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("_Closes #99_", "closing keyword"),
        ("__Fixes__ acme/other#5", "closing keyword"),
        (f"Fixes{' ' * 21}#77", "closing keyword"),
        ("[Fixes](docs/a.md) #5", "closing keyword"),
        ("Fixes&nbsp;#5", "closing keyword"),
        ("Fix*es* #5", "closing keyword"),
        ("Fixes GH\\-5", "closing keyword"),
        ("resolves [the bug](https://github.com/a/b/issues/5)", "closing keyword"),
        ("[see](https://github.com/a)https://evil/x", "foreign link"),
        ("[see](docs)https://evil.com", "foreign link"),
    ],
)
def test_what_got_through_once_stays_dead(text: str, kind: str) -> None:
    assert kind in faults(text, HOSTS)
    assert faults(filter_text(text, FILTER), HOSTS) == {}


@pytest.mark.whole
@MARKS[0]
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_no_closing_keyword_acts_on_the_page(wrapping: str) -> None:
    every = 1 if FULL else 11 if MANY else 37
    texts = closings(wrapping)[::every]
    assert [text for text in texts if faults(filter_text(text, FILTER), HOSTS)] == []


@pytest.mark.whole
def test_no_link_image_or_mention_acts_on_the_page() -> None:
    acting = [text for text in (*links(), *MENTIONS) if faults(filter_text(text, FILTER), HOSTS)]
    assert acting == []


WORDS = st.sampled_from(
    [
        *KEYWORDS, *GAPS, *REFERENCES, *TARGETS, *MENTIONS,
        "](", "](docs)", "][d]", "]: ", "[", "]", "[d]: docs\n", "*", "_", "**", "`", "```\n", "~~~\n", "> ", "- ",
        "|", "|-|-|\n", "\n", "\n\n", " ", "    ", "<details>\n", "</details>\n", "<pre>",
        "<a href='https://evil.com'>", "<!--", "-->", "![", "(", ")", "<", ">", "\\", "&", ";", "www.", "https://",
        "github.com/", "evil.com", "#", "5", "@", "/", ":", "fix", "es", "a", "é", "[^1]", "[^1]: ",
    ]
)  # fmt: skip


@pytest.mark.whole
@tried(100)
@given(st.lists(WORDS, max_size=20).map("".join))
def test_nothing_acts_on_the_page_whatever_the_text(text: str) -> None:
    assert faults(filter_text(text, FILTER), HOSTS) == {}


@pytest.mark.parametrize("text", ["_Closes #99_", "__Fixes__ acme/other#5", f"Fixes{' ' * 21}#77", "x_fixes: #5"])
def test_a_title_and_a_commit_message_close_nothing_read_as_they_stand(text: str) -> None:
    """A merge takes both over word for word; neither is Markdown there."""
    assert re.search(r"(?i)(?:closes|fixes)\W*_*\W*issue ", filter_line(text, FILTER))
    assert "\u200b" in defuse(text)


@pytest.mark.parametrize(
    "text", ["What I fixed:\n\n## Tests", "prefixes #5 are gone", "fixed a thing of #5", "Closed the gap. See #5."]
)
def test_words_that_close_nothing_are_left_alone(text: str) -> None:
    assert filter_text(text, FILTER) == text
