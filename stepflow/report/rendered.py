"""The templates of this package, rendered with every value escaped and every character visible."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from stepflow.report.safe_text import ADDRESS, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from markdown_it.token import Token

#: The lines of `safe_text.details`.
FOLD_BEGINS = re.compile(r"^<details><summary>(.*)</summary>$", re.MULTILINE)
FOLD_ENDS = re.compile(r"^</details>$", re.MULTILINE)


def render(name: str, /, **values: object) -> str:
    """The template with its values put in."""
    return _environment().get_template(name).render(values)


def read_text(name: str) -> str:
    """A file of this room."""
    return (files("stepflow.report") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(read_text),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def markdown_html(text: str) -> Markup:
    """The text for a page whose own headings are `h1` and `h2`; sections that GitHub folds are open."""
    parser = _parser()
    tokens = parser.parse(FOLD_ENDS.sub("", FOLD_BEGINS.sub(r"**\1**", visible(text))))
    for token in _all(tokens):
        # A page whose policy forbids styles would complain about those of a table's cells.
        token.attrs = {name: value for name, value in token.attrs.items() if name == "href"}
        # The language of a block of code would become a class, which might be one of the page's own.
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
