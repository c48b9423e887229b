"""What the model wrote notifies nobody, closes nothing, links nowhere foreign and runs nothing."""

import base64
import html
import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stepflow.boundary.output_filter import LONGEST_SOURCE, LONGEST_TEXT, OutputFilter, filter_line, filter_text
from stepflow.boundary.own_texts import Marker, mark_comment, read_marker
from stepflow.domain.secrets import Redactor

SECRET = "ghs_0123456789abcdefghij"
FILTER = OutputFilter(allowed_hosts=frozenset({"github.com", "docs.example.org"}), redactor=Redactor((SECRET,)))
Z = "\u200b"

TABLE = {
    "a mention": ("thanks @octocat!", f"thanks @{Z}octocat!"),
    "a package in inline code": ("run `npm i @types/node` for @bob", f"run `npm i @types/node` for @{Z}bob"),
    "types, indices and addresses in inline code": (
        "`Vec<T>`, ``a[0](x) ` <b>`` and `curl https://evil.com/x`",
        "`Vec<T>`, ``a[0](x) ` <b>`` and `curl https://evil.com/x`",
    ),
    "a backtick left open before a mention": ("a ` b\n` @bob `", f"a ` b\n` @{Z}bob `"),
    "an escaped backtick": ("\\` @bob `", f"\\` @{Z}bob `"),
    "scripts and pictures that are joined": (
        "می\u200cخواهم 👨\u200d👩\u200d👧 क्\u200dष",
        "می\u200cخواهم 👨\u200d👩\u200d👧 क्\u200dष",
    ),
    "joiners that join nothing": ("a\u200cb 日\u200d本 می\u200c\u200cخ", "ab 日本 میخ"),
    "a mention spelled as an entity": ("&#64;octocat &commat;octocat", f"@{Z}octocat @{Z}octocat"),
    "closing keywords": (
        "Fixes #1, closes o/r#2, resolve: GH-3",
        f"F{Z}ixes #1, c{Z}loses o/r#2, r{Z}esolve: GH-3",
    ),
    "a closing keyword before a URL": (
        "closed https://github.com/o/r/issues/4",
        f"c{Z}losed https://github.com/o/r/issues/4",
    ),
    "a foreign image": ("![a](https://evil.com/x.png)", f"![a]{Z}(`https://evil.com/x.png`)"),
    "a link to an allowed host": ("https://docs.example.org/a?b=c#d", "https://docs.example.org/a?b=c#d"),
    "a relative link": ("[a](docs/a.md) [b](#c)", "[a](docs/a.md) [b](#c)"),
    "a bare foreign URL": ("see https://evil.com/x.", "see `https://evil.com/x`."),
    "a host that hides behind userinfo": ("https://github.com@evil.com/", "`https://github.com@evil.com/`"),
    "a foreign URL among backticks": ("`a https://evil.com`", "`a https://evil.com`"),
    "a www among backticks": ("`a` www.evil.com", f"`a` www{Z}.evil.com"),
    "a protocol-relative link": ("[a](//evil.com)", f"[a]{Z}(//evil.com)"),
    "a link definition": ("[a]: https://evil.com", f"[a]{Z}: `https://evil.com`"),
    "an HTML image": ('<img src="//evil.com">', f'<{Z}img src="//evil.com">'),
    "an HTML comment": ("<!-- x -->", f"<{Z}!-- x -->"),
    "a fold": ("<details>\n<summary>a</summary>\n\nb\n</details>", "<details>\n<summary>a</summary>\n\nb\n</details>"),
    "a fold left open": ("<details>\n\nb", "<details>\n\nb\n\n</details>"),
    "a slash command": ("/close\n  /lgtm\na /path", "\\/close\n  \\/lgtm\na /path"),
    "paths and comments in a fence": (
        "```js\n// a\n/* b */\n/usr/bin/env\n```",
        "```js\n// a\n/* b */\n/usr/bin/env\n```",
    ),
    "code in a fence": ("```py\n@dec\n# ![a](https://evil.com)\n```", "```py\n@dec\n# ![a](https://evil.com)\n```"),
    "a fence left open": ("```\ncode", "```\ncode\n```"),
    "a fence that GitHub would draw": (
        '```mermaid\nclick A "https://evil.com"\n```',
        '```text\nclick A "https://evil.com"\n```',
    ),
    "an indented fence": ("  ```\n```\n@bob", f"```\n```\n@{Z}bob"),
    "a skip directive": ("done [skip ci] [ci skip]", "done  "),
    "hidden characters": ("a\u202eb\u200bc\U000e0041d\x00e\r\nf", "abcde\nf"),
    "a secret spelled with an entity": (f"token &#103;{SECRET[1:]}", "token ***"),
}


@pytest.mark.parametrize(("text", "expected"), TABLE.values(), ids=TABLE)
def test_the_filter_makes_harmless(text: str, expected: str) -> None:
    assert filter_text(text, FILTER) == expected


@pytest.mark.whole
def test_a_secret_is_masked_before_a_text_is_shortened() -> None:
    """Directives go, so that what stood at the end of what is read comes to stand in what is shown."""
    directive = "[skip ci]"
    for shown in (5, len(SECRET) - 1):
        before = (directive * LONGEST_SOURCE)[: LONGEST_SOURCE - shown - 40]
        text = filter_text(f"{before}{' ' * 40}{SECRET} {'y' * 99}", FILTER)
        assert SECRET[:3] not in text


def test_a_secret_in_base64_is_redacted() -> None:
    filtered = filter_text(base64.b64encode(f"key={SECRET};".encode()).decode(), FILTER)
    assert "***" in filtered
    assert len(filtered) < 20


def _forms(secret: str) -> list[str]:
    raw = secret.encode()
    encoded = [base64.b64encode(b"x" * offset + raw + b"y").decode() for offset in range(3)]
    urls = (
        ["".join(f"%{byte:02x}" for byte in raw), "".join(f"%{byte:02X}" for byte in raw)] if "_" not in secret else []
    )
    return [secret, raw.hex(), raw.hex().upper(), *encoded, *urls]


UNSEEN = [
    "\ufe0f",
    "\U000e0100",
    "\u034f",
    "\u3164",
    "\u2800",
    "\u180b",
    "\u200b",
    "\u2064",
    "\U000e0041",
    "\x00",
    "\ue000",
]


@pytest.mark.parametrize("unseen", UNSEEN)
def test_a_secret_with_characters_in_it_that_nobody_sees_is_redacted(unseen: str) -> None:
    """A reader who copies the text would have the secret."""
    assert filter_text(f"token {SECRET[:9]}{unseen}{SECRET[9:]}", FILTER) == "token ***"
    assert filter_line(f"token {unseen.join(SECRET)}", FILTER) == "token ***"


def test_signs_keep_the_selector_that_makes_them_pictures() -> None:
    assert filter_text("⚠\ufe0f and ▫\ufe0f", FILTER) == "⚠\ufe0f and ▫\ufe0f"


@pytest.mark.whole
@settings(max_examples=150)
@given(
    st.sampled_from(_forms(SECRET)),
    st.sampled_from([*UNSEEN, "&ZeroWidthSpace;", "&#8203;", "&shy;", ""]),
    st.text("ab `*<[\n", max_size=6),
)
def test_an_independent_reader_of_the_page_finds_no_form_of_a_secret(form: str, unseen: str, around: str) -> None:
    text = f"{around} {form[:7]}{unseen}{form[7:]} {around}"
    page = html.unescape(re.sub(r"<[^>]*>", "", MarkdownIt("commonmark").render(filter_text(text, FILTER))))
    seen = "".join(
        each for each in page if unicodedata.category(each) not in ("Cf", "Mn", "Cc", "Co") and each not in UNSEEN
    )
    assert form not in seen


def test_a_forged_marker_is_no_marker_any_more() -> None:
    forged = mark_comment("Done.", Marker(run="1", agent="a", issue=7))
    assert read_marker(forged)
    assert read_marker(filter_text(forged, FILTER)) is None


@pytest.mark.whole
@pytest.mark.parametrize(
    "text",
    ["a" * 70_000, "@a " * 30_000, "https://evil.com/" * 9_000, "```\n" + "x" * 70_000, "<details>\n" * 9_000],
    ids=["plain", "mentions", "URLs", "an open fence", "open folds"],
)
def test_a_long_text_is_cut_and_says_so(text: str) -> None:
    filtered = filter_text(text, FILTER)
    assert len(filtered) <= LONGEST_TEXT
    assert filtered.endswith("has been cut here.)*")


@pytest.mark.whole
@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "](" * 50_000, "&#38" * 50_000, ")" * 99_000, "[skip " * 20_000, "&#3" * 40_000 + ";" * 40_000],
    ids=["letters", "links", "entities", "brackets", "directives", "nested entities"],
)
def test_no_text_makes_the_filter_slow(text: str) -> None:
    started = time.process_time()
    filter_text(text, FILTER)
    assert time.process_time() - started < 5


def test_a_title_is_one_line_without_anything_that_acts() -> None:
    line = filter_line(f"Fix it\n[skip ci] fixes #1 {SECRET}", FILTER)
    assert line == "Fix it fixes issue #1 ***"
    assert len(filter_line("x" * 900, FILTER)) == 240


TITLES = {
    "a package": ("Bump `@types/node` and @babel/core", "Bump `@types/node` and @babel/core"),
    "an address": ("Stop mail to a@example.org", "Stop mail to a@example.org"),
    "closing keywords": ("Fix #1 (closes #2), resolve: GH-3", "Fix issue #1 (closes issue #2), resolve: issue GH-3"),
    "a keyword right before": ("fixes#12 and Closes:#13", "fixes issue #12 and Closes: issue #13"),
    "a URL": ("fixed https://github.com/o/r/issues/4", "fixed issue https://github.com/o/r/issues/4"),
    "a directive inside another": ("Go [skip [skip ci]ci] on", "Go (skip ci) on"),
}


@pytest.mark.parametrize(("text", "expected"), TITLES.values(), ids=TITLES)
def test_a_title_reads_as_it_was_written_and_closes_nothing_when_it_becomes_a_commit(text: str, expected: str) -> None:
    """A title is no Markdown and notifies nobody, so nothing invisible is put into it."""
    assert filter_line(text, FILTER) == expected
    assert filter_line(expected, FILTER) == expected


WORDS = """
    ``` ```` ~~~ ` `` > - 1. \\ | |-|-| * _ [ ] ( ) ]( ![ < > ! [a]: [a][b] <details> </details> <summary> <pre>
    </pre> <!-- --> <b> <script> <? <a/href=' https://evil.com http://evil.com/x https://github.com/o www.evil.com
    //evil.com javascript:x mailto:a@evil.com @bob a mermaid &#64; &lt; &#96; [^1]: " ' --- # $ /x
"""
SPACES = ("\n", "\n\n", " ", "  ", "    ", "\t", "> ", "- ", "]: ", "|-|-|\n", "\x0b", "\u2028")
PIECES = st.sampled_from([*WORDS.split(), *SPACES])


@pytest.mark.whole
@settings(max_examples=200)
@given(st.lists(PIECES, max_size=24).map("".join))
def test_what_the_engine_writes_below_stays_visible(text: str) -> None:
    """Nothing left open swallows the engine's own lines."""
    tokens = MarkdownIt("commonmark").parse(filter_text(text, FILTER) + "\n\nENGINE")
    assert any(token.type == "inline" and token.content.endswith("ENGINE") for token in tokens)
