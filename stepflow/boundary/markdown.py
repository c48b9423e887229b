"""Makes Markdown harmless: no foreign link or image, no HTML but folds, no comment, nothing left open.

Fenced code is left as it is, so the scanner must agree with GitHub about what a fence is. It only knows fences and
`<details>` blocks that begin in the first column; everything else that could hide a fence is broken or moved there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ZERO_WIDTH = "\u200b"

_FENCE = re.compile(r"(?P<mark>`{3,})(?P<info>[^`]*)|(?P<tilde>~{3,})(?P<rest>.*)")
_INDENTED_FENCE = re.compile(r" {1,3}(?=`{3}|~{3})")
_FOLD = re.compile(r"</?(?:details|summary)>")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!/?(?:details|summary)>)")
_ANY_TAG = re.compile(r"<(?=[A-Za-z/!?])")
#: Fences that GitHub draws instead of showing: they can hold links.
_DRAWN = frozenset({"mermaid", "math", "geojson", "topojson", "stl", "suggestion"})

_LINK_START = re.compile(r"\](?=[(:])")
#: Where a link or a definition leads. Links with a title are no links of ours: a title can hide the next link.
_LINK = re.compile(r"\](?:\([ \t\n]*+(?P<link>[^ \t\n()]++)[ \t\n]*+\)|:[ \t\n]*+(?P<definition>[^ \t\n]++))")
_RELATIVE = re.compile(r"(?!//)[\w#./-][\w#./?=&%+~-]*", re.ASCII)
_URL = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,30}:(?:\\?[/\\]){2}|(?<![a-z0-9])www\.)(?>(?:(?!\]\()[^ \t\n<`|])*)", re.IGNORECASE
)
#: The links that are left when foreign ones are broken: a URL in one ends with it.
_LINK_OR_URL = re.compile(
    rf"(?P<before>\]\([ \t\n]*+)(?P<own>[^ \t\n()]++)(?=[ \t\n]*+\))|(?P<url>{_URL.pattern})", re.IGNORECASE
)
_PLAIN_URL = re.compile(r"https?://(?P<host>[a-z0-9.-]+)(?::\d+)?(?P<path>[/?#][^\\\s()<>`]*)?", re.IGNORECASE)
_TRAILING = ".,;:!?)>]*_'\""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A run of lines; `code` when they are a fenced block, fences included."""

    code: bool
    text: str


def tame_markdown(text: str, allowed_hosts: frozenset[str]) -> tuple[Part, ...]:
    """The parts of a text, prose made harmless. Ends with every fence and fold closed."""
    parts = [part if part.code else _tame_prose(part.text, allowed_hosts) for part in _split(text)]
    folds = [tag for part in parts if not part.code for line in part.text.split("\n") for tag in _folds(line)]
    missing = folds.count("<details>") - folds.count("</details>")
    return (*parts, *([Part(code=False, text="\n</details>" * missing)] if missing > 0 else []))


def _split(text: str) -> Iterator[Part]:
    """The text cut at its fences, each of which is closed."""
    lines = list(_marked_lines(text))
    for code, group in groupby(lines, key=lambda line: line[0]):
        yield Part(code=code > 0, text="\n".join(line for _, line in group))


def _marked_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with the number of its fenced block, 0 for prose."""
    block, fence, folded = 0, "", False
    for raw in text.split("\n"):
        line = raw.lstrip(" ") if not fence and _INDENTED_FENCE.match(raw) else raw
        if fence:
            yield block, line
            fence = "" if _closes(line, fence) else fence
        elif not folded and (opened := _FENCE.fullmatch(line)):
            block, fence = block + 1, opened["mark"] or opened["tilde"]
            yield block, _shown(line, fence)
        else:
            folded = bool(line.strip(" \t")) and (folded or bool(_FOLD.match(line)))
            yield 0, line
    if fence:
        yield block, fence


def _closes(line: str, fence: str) -> bool:
    match = re.fullmatch(r" {0,3}(`{3,}|~{3,})[ \t]*", line)
    return match is not None and match[1][0] == fence[0] and len(match[1]) >= len(fence)


def _shown(line: str, fence: str) -> str:
    words = line[len(fence) :].split()
    return f"{fence}text" if words and words[0].lower() in _DRAWN else line


def _folds(line: str) -> list[str]:
    return _FOLD.findall(line) if _FOLD.match(line) else []


def _tame_prose(text: str, allowed: frozenset[str]) -> Part:
    without_tags = "\n".join(_break_tags(line) for line in text.split("\n"))
    without_links = _LINK_START.sub(lambda match: _break_link(match, allowed), without_tags)
    paragraphs = re.split(r"(\n[ \t]*(?=\n))", without_links)
    return Part(code=False, text="".join(_quote_urls(paragraph, allowed) for paragraph in paragraphs))


def _break_tags(line: str) -> str:
    tag = _TAG if _FOLD.match(line) else _ANY_TAG
    return tag.sub("<" + ZERO_WIDTH, line)


def _break_link(match: re.Match[str], allowed: frozenset[str]) -> str:
    """`](` and `]:` stay together only before a destination that is plainly ours."""
    link = _LINK.match(match.string, match.start())
    to = (link["link"] or link["definition"]) if link else ""
    return "]" if _RELATIVE.fullmatch(to) or _allowed(to, allowed) else "]" + ZERO_WIDTH


def _allowed(url: str, allowed: frozenset[str]) -> str:
    """The URL when its host is allowed, else empty. With a path, so that no text behind it becomes part of its host."""
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None or plain["host"].lower() not in allowed:
        return ""
    return url if plain["path"] else f"{url}/"


def _quote_urls(paragraph: str, allowed: frozenset[str]) -> str:
    """Foreign URLs as code; with a zero-width break instead where other backticks could pair up with ours."""
    crowded = "`" in paragraph

    def replace(match: re.Match[str]) -> str:
        if own := match["own"]:
            return match["before"] + (_allowed(own, allowed) or own)
        url, core = match[0], match[0].rstrip(_TRAILING)
        if ours := _allowed(core, allowed):
            return ours + url[len(core) :]
        if crowded or match.string[match.start() - 1 : match.start()] == "\\":
            return _break_url(url)
        return f"`{core}`{url[len(core) :]}"

    return _LINK_OR_URL.sub(replace, paragraph)


def _break_url(url: str) -> str:
    """No longer a link: browsers skip a zero-width space in a host name, so it stands before the dot."""
    return re.sub(r"(?i)(?<=www)(?=\.)|(?<=:)(?=\\?[/\\])", ZERO_WIDTH, url)
