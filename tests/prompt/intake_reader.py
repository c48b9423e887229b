"""An independent reader of GitHub's pages: Markdown by markdown-it, its HTML by Python's own parser.

Takes: Markdown. Gives: the words that a person sees, and the addresses of links and images.
"""

from __future__ import annotations

from html.parser import HTMLParser

from markdown_it import MarkdownIt

RENDERER = MarkdownIt("commonmark", {"html": True}).enable("table")
UNSHOWN = {"script", "style", "template", "title", "textarea", "iframe", "svg", "noscript", "select", "object"}


class Page(HTMLParser):
    """What is seen of a page: `words` in text, `addresses`, and `attributes` that are neither."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.unseen: list[str] = []
        self._hidden: list[str] = []
        self.feed(RENDERER.render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSHOWN and (not self._hidden or self._hidden[0] == tag):
            self._hidden.append(tag)
        for name, value in attrs:
            (self.addresses if name in ("href", "src") else self.unseen).append(f"{name}={value}")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and self._hidden[-1] == tag:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        (self.unseen if self._hidden else self.text).append(data)

    def handle_comment(self, data: str) -> None:
        self.unseen.append(data)

    def handle_decl(self, decl: str) -> None:
        self.unseen.append(decl)

    def unknown_decl(self, data: str) -> None:
        self.unseen.append(data)

    def handle_pi(self, data: str) -> None:
        self.unseen.append(data)

    @property
    def seen(self) -> str:
        return "".join(self.text)
