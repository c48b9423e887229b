"""What a text does on GitHub's page: rendered by GitHub's own Markdown library, read without any of our own code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlsplit

from cmarkgfm.cmark import Options, github_flavored_markdown_to_html

#: Raw HTML is shown instead of left out, so that it is seen here.
_OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES | Options.CMARK_OPT_HARDBREAKS
_CODE = frozenset({"code", "pre"})
_INLINE = frozenset({"a", "em", "strong", "del", "sup", "img", "input"})
_BLOCKS = frozenset({
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "section", "details",
    "summary", "table", "thead", "tbody", "tr", "th", "td",
})  # fmt: skip
_CLOSING = re.compile(
    r"(?<![^\W_])(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?![^\W_])[\W_]*"
    r"(?:#\d|gh-\d|[\w.-]+/[\w.-]+#\d|(?:https?://|www\.)[\w.]+/[\w./-]+/(?:issues|pull)/\d)",
    re.IGNORECASE,
)
_MENTION = re.compile(r"@[a-z0-9]", re.IGNORECASE)
#: Stands where what is before it and what is behind it are not read together, such as around code.
_BARRIER = "|apart|"


@dataclass
class Page(HTMLParser):
    """One page: where its links and images lead, which tags it has, and its text outside code."""

    allowed_hosts: frozenset[str]
    targets: list[tuple[str, str]] = field(default_factory=list)
    odd_tags: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in _CODE:
            self._code += 1
            self.pieces.append(_BARRIER)
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag not in _INLINE:
            self.odd_tags.append(tag)
        for name in {"href", "src"} & given.keys():
            self.targets.append((tag, given[name]))
            # GitHub may read a link to an issue as a reference, whatever the link's text is.
            self.pieces.append(f" {given[name]} {_BARRIER}" if "/issues/" in given[name] else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _CODE:
            self._code -= 1
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        self.odd_tags.append("comment")

    def handle_decl(self, decl: str) -> None:
        self.odd_tags.append("declaration")

    def handle_pi(self, data: str) -> None:
        self.odd_tags.append("instruction")


def faults(text: str, allowed_hosts: frozenset[str]) -> dict[str, str]:
    """What acts in the text, by its kind; empty when nothing does."""
    page = Page(allowed_hosts)
    page.feed(github_flavored_markdown_to_html(text, _OPTIONS))
    page.close()
    # As people read it, and each piece of text as a word of its own.
    readings = ("".join(page.pieces), " ".join(page.pieces))
    active: dict[str, str] = {}
    for tag, target in page.targets:
        if not _is_allowed(target, allowed_hosts):
            active["foreign image" if tag == "img" else "foreign link"] = target
    for reading in readings:
        if closing := _CLOSING.search(reading):
            active["closing keyword"] = closing[0]
    if mention := _MENTION.search(readings[0]):
        active["mention"] = mention[0]
    if page.odd_tags:
        active["HTML"] = page.odd_tags[0]
    return active


def _is_allowed(target: str, allowed_hosts: frozenset[str]) -> bool:
    """As a browser reads an address: it takes a backslash for a slash."""
    parts = urlsplit(target.replace("\\", "/"))
    if not parts.scheme and not parts.netloc:
        return not target.startswith("//")
    return parts.scheme in ("http", "https") and parts.hostname in allowed_hosts
