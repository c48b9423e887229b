"""Renders the templates of this package, with every value escaped and every invisible character spelled out."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from stepflow.domain.text import code_block, code_span, usd
from stepflow.report.safe_text import (
    ADDRESS,
    code,
    fence,
    html_text,
    link,
    one_line,
    plain,
    plain_with_code,
    seconds_text,
    spell_unseen,
    telling_lines,
)
from stepflow.report.wording import mark_of

if TYPE_CHECKING:
    from jinja2 import Environment, Template

POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
#: The first and the last line of a folded section.
FOLD_BEGINS = re.compile(r"^<details><summary>(.*)</summary>$", re.MULTILINE)
FOLD_ENDS = re.compile(r"^</details>$", re.MULTILINE)


def _finish(make: Callable[..., str]) -> Callable[..., Markup]:
    """Return a filter whose result is finished Markdown, with all text escaped."""
    return lambda *values, **named: Markup(make(*values, **named))  # noqa: S704 - nothing in it is markup any more


def _code_cell(line: str) -> str:
    """Return a line as inline code for a table, where a bar would end the cell; as plain text if it might."""
    return plain(line) if re.search(r"[|\\`]", line) else code_span(line)


#: The filters of Markdown templates. A value without a filter becomes text of the default length.
FILTERS = {
    "code": _finish(code),
    "code_span": _finish(lambda text, limit=200: code_span(one_line(text, limit))),
    "code_cell": _finish(lambda text, limit=200: _code_cell(one_line(text, limit))),
    "dollars": _finish(lambda amount: usd(amount).lstrip("$")),
    "fence": _finish(lambda text, lines: fence(text, lines=lines)),
    "output": _finish(lambda text, lines: code_block("\n".join(telling_lines(text, lines)), "text")),
    "figure": _finish(format),
    "html": _finish(html_text),
    "link": _finish(lambda address, text: link(text, address)),
    "mark": _finish(lambda result: mark_of(result).emoji),
    "prose": _finish(plain_with_code),
    "seconds": _finish(seconds_text),
    "text": _finish(plain),
}


def render(name: str, /, **values: object) -> str:
    """Render a template. If its name ends with `.md.j2`, the result is Markdown for GitHub, and values stay plain text.
    Any other template makes HTML or SVG."""
    return _template(name).render(values).rstrip("\n")


def render_page(name: str, /, *styles: str, **values: object) -> str:
    """Render a page with these style sheets of this package. Its policy allows them alone: the page fetches nothing,
    because it contains its images, and it sends no form and runs no script."""
    style = "".join(map(read_text, styles))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # The style sheets are our own files.
    return render(name, policy=POLICY.format(style=digest), style=Markup(style), **values)  # noqa: S704


def render_blocks(name: str, /, **values: object) -> list[str]:
    """Return the blocks of a Markdown template that are not empty."""
    template = _template(name)
    context = template.new_context(values)
    blocks = ("".join(block(context)).strip("\n") for block in template.blocks.values())
    return [block for block in blocks if block]


def read_text(name: str) -> str:
    """Return the text of a file in this package."""
    return (files("stepflow.report") / name).read_text(encoding="utf-8")


def _template(name: str) -> Template:
    return _environment(is_markdown=name.endswith(".md.j2")).get_template(name)


@cache
def _environment(*, is_markdown: bool) -> Environment:
    # Imported here because a run needs no template before its first request.
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415

    shown = FILTERS["text"] if is_markdown else spell_unseen
    environment = Environment(
        loader=FunctionLoader(read_text),
        autoescape=True,
        finalize=lambda value: shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    if is_markdown:
        environment.filters.update(FILTERS)
    return environment


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
