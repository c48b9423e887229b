"""An independent reader of GitHub's pages: Markdown by GitHub's own renderer, its HTML by Python's own parser."""

from __future__ import annotations

from html.parser import HTMLParser

from cmarkgfm.cmark import Options, github_flavored_markdown_to_html

#: GitHub's sanitizer comes after the renderer: raw HTML is there until then.
OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
UNSHOWN = {"script", "style", "template", "title", "textarea", "iframe", "svg", "noscript", "select", "object"}


class Page(HTMLParser):
    """What is seen of a page: `words` in text, `addresses`, and `attributes` that are neither."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.unseen: list[str] = []
        self._hidden: list[str] = []
        self.feed(github_flavored_markdown_to_html(markdown, OPTIONS))
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

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Python's parser fails on a section with an unknown name; to browsers it is a comment."""
        return self.parse_bogus_comment(i, report)

    @property
    def seen(self) -> str:
        return "".join(self.text)
