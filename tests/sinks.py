"""Names that try to be more than names, and what each place that people or programs read must make of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

from cmarkgfm import github_flavored_markdown_to_html
from hypothesis import strategies as st

from tests.action.runner_model import lines_of, obeyed_in, outputs_in, unescaped
from tests.boundary.rendered import faults
from tests.report.hostile import SKIPPED

#: Stands at the begin of every line, command and sentence that a name would like to add.
MARK = "FORGED"
_SIGNS = (
    *(f"::{command}::{MARK}" for command in ("set-output name=proven", "add-mask", "error", "stop-commands")),
    *(f"::{command}::{MARK}" for command in ("group", "warning file=a", "add-path", "save-state name=a", "ENDGROUP")),
    *(f"##[{command}]{MARK}" for command in ("error", "add-path", "group", "stop-commands")),
    *(f"✓ {MARK}", f"{MARK}=true", f"{MARK}<<end", f"- {MARK}", f"%0A::error::{MARK}", f"# {MARK}"),
    *("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\t"),
    *("\x1b[2J", "\x1b[31m", "\x1b]0;t\x07", "\x1b]8;;x\x1b\\", "\x9b2J", "\x1b", "\x00", "\x07", "\x08"),
    *("\u202e", "\u2066", "\u200b", "\ufeff", "\u00ad", "\U000e0041", "\udcff"),
    *("x" * 150, "```", "~~~", "`", "|", "\\", "]]>", "*", "_", "$", '"', "'", "-->", "--", "${{ x }}", "{{ x }}"),
    *("<script>x</script>", "<img src=x onerror=y>", "</details>", "</code>", "</title>", "<!--", "&lt;b&gt;"),
    *("@octocat", "#1", "fixes #1", "GH-1", "[skip ci]", "https://evil.test/x", "www.evil.test", "[l](//evil.test)"),
    *("![i](https://evil.test/i.png)", "a\r", "<b>", "字", "😀", "é"),
)
NAME = st.lists(st.sampled_from(_SIGNS) | st.text(max_size=3), min_size=1, max_size=6).map("".join)
#: As many as a world has places for.
NAMES = st.lists(NAME, min_size=6, max_size=6)
#: What has got through once, and the rest of all signs.
KNOWN = [
    f"a\n::stop-commands::{MARK}\n\x1b[2J✓ {MARK}\u2028##[error]{MARK}.py",
    f"::set-output name=proven::{MARK}\r::error::{MARK}\x85✓ {MARK}\u202e@octocat fixes #1",
    f"<img src=x onerror=y></details><script>x</script>```\n# {MARK}\n![i](https://evil.test/i.png)|`",
    f"\u200b::add-mask::{MARK}\x9b2J\x1b]0;t\x07\n{MARK}<<end\nend\n%0A::error::{MARK}[skip ci]",
    "x" * 150 + f"\v- {MARK}\f[l](//evil.test)\u2029{MARK}=true ##[add-path]{MARK}",
    f"\r\n✓ {MARK}\x00\udcff\ufeff::warning file=a::{MARK} www.evil.test $x$ {{{{ x }}}} ]]>",
]
EVERY_SIGN = ["".join(_SIGNS[start::6]) for start in range(6)]


def as_text(name: str) -> str:
    """The name as JSON, YAML and HTTP can hold it."""
    return name.encode("utf-8", "replace").decode().replace("\x00", "")


def as_file(name: str) -> str:
    """The name as a file can have it."""
    text = as_text(name).replace("/", "∕")
    while len(text.encode()) > 200:
        text = text[:-1]
    return text if text.strip(".") else f"{text}x"


def as_branch(name: str) -> str:
    """The name as a branch can have it: git forbids only some of ASCII."""
    text = re.sub(r"[\x00-\x20\x7f~^:?*\[\\]|@\{", "", as_file(name)).replace("..", "").strip("/.@-") or "x"
    return f"{text}x" if text.endswith((".lock", ".")) else text


#: Commands of ours; each name has others too, and marks what it would say with these.
_OURS = {"add-mask", "group", "endgroup", "notice", "warning", "error"}
_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def log_faults(log: str) -> Iterator[str]:
    """What a log or a terminal would obey, or show as a line of ours although a name says it."""
    yield from obeyed_faults(log)
    yield from (f"a line of its own: {line!r}" for line in _BREAK.split(log) if _begins(line))
    yield from unseen_faults(log)


def obeyed_faults(log: str) -> Iterator[str]:
    """What a runner would obey of a log, although a name says it."""
    for line in lines_of(log):
        if (obeyed := obeyed_in(line)) and (obeyed[0] not in _OURS or obeyed[1].startswith(MARK)):
            yield f"obeyed: {line!r}"
        if obeyed:
            # The runner prints what a command says into the log again.
            said = lines_of(unescaped(obeyed[1]))
            yield from (f"obeyed again: {each!r}" for each in said if obeyed_in(each))
            yield from (f"a line of its own: {each!r}" for each in said if _begins(each))


def _begins(line: str) -> bool:
    return bool(re.match(rf"(?:✓ |- |# )?{MARK}", line))


#: How our own pictures are written.
_PICTURE = re.compile("[⚠▫⏭⏸⏹]\ufe0f")


def unseen_faults(text: str) -> Iterator[str]:
    """Characters that a terminal obeys or nobody sees."""
    if found := SKIPPED.search(_PICTURE.sub("", text)):
        yield f"unseen: {text[max(0, found.start() - 30) : found.end() + 30]!r}"


def output_faults(raw: bytes, declared: Iterable[str]) -> Iterator[str]:
    """Outputs that no mode has, or that are more than a line in the log of a workflow which prints them."""
    given = outputs_in(raw.decode())
    yield from (f"no output of ours: {name!r}" for name in given.keys() - set(declared))
    for name, value in given.items():
        yield from (f"output {name}: {fault}" for fault in log_faults(value))
        if _BREAK.search(value):
            yield f"output {name} has lines: {value!r}"


#: What our own templates use besides what GitHub's Markdown makes, and the lines by which runs know their texts.
_OWN_TAGS = {"sub"}
_OWN_MARKERS = re.compile(r"^<!-- /?stepflow[ \w=./:,+-]*-->$", re.MULTILINE)


def markdown_faults(text: str, hosts: Iterable[str], *, notifies: bool = True) -> Iterator[str]:
    """What acts on GitHub's page; a page that is no comment or text of a pull request `notifies` nobody."""
    for kind, what in faults(_OWN_MARKERS.sub("", text), frozenset(hosts)).items():
        if what not in _OWN_TAGS and (notifies or kind not in ("mention", "closing keyword")):
            yield f"{kind}: {what}"


def heading_faults(text: str) -> Iterator[str]:
    """Headings, items and paragraphs that a name would like to add to a page of ours."""
    page = github_flavored_markdown_to_html(text)
    yield from (f"a line of its own: {found!r}" for found in re.findall(rf"<(?:h\d|li|p)>\s*(?:✓ )?{MARK}", page))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if tag in ("script", "iframe", "object", "base", "form") or any(name.startswith("on") for name in names):
            self.found.append(tag)
        self.found += [f"{tag} to {value}" for name, value in attrs if name in ("src", "href") and "evil" in str(value)]


def page_faults(page: str) -> Iterator[str]:
    """What runs on a page, or what nobody sees of it."""
    tags = _Tags()
    tags.feed(page)
    yield from tags.found
    yield from unseen_faults(page)


def json_faults(text: str) -> Iterator[str]:
    """Whether it is no document, or one that a terminal or a log obeys when it is printed."""
    json.loads(text)
    yield from log_faults(text)
