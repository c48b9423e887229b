"""Makes Markdown harmless: no foreign link or image, no HTML but folds, no comment, nothing left open.

Fenced code is left as it is, so the scanner must agree with GitHub about what a fence is. It only knows fences and
`<details>` blocks that begin in the first column; everything else that could hide a fence is broken or moved there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from stepflow.domain.text import DRAWN

ZERO_WIDTH = "\u200b"

_FENCE = re.compile(r"(?P<mark>`{3,})(?P<info>[^`]*)|(?P<tilde>~{3,})(?P<rest>.*)")
_INDENTED_FENCE = re.compile(r" {1,3}(?=`{3}|~{3})")
_FOLD = re.compile(r"</?(?:details|summary)>")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!/?(?:details|summary)>)")
_ANY_TAG = re.compile(r"<(?=[A-Za-z/!?])")
#: Fences that GitHub draws instead of showing: they can hold links.
_DRAWN = DRAWN | {"math", "suggestion"}

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


#: Stands for what is in inline code while the text around it is made harmless; no text of a model holds it, since
#: nobody sees it.
CODE_MARK = "\ue000"
_TICKS = re.compile(r"`+")
#: What would read the backticks of a line otherwise: an address that they stand right behind, an escape, a formula.
_ADDRESS = re.compile(r"(?::/|:\\|www\.)[^\s<]*$", re.IGNORECASE)
_OTHERWISE = re.compile(r"\\`|\$`|`\$")


@dataclass(frozen=True, kw_only=True)
class MarkdownPart:
    """A run of lines; `code` when they are a fenced block, fences included."""

    code: bool
    text: str


def tame_markdown(text: str, allowed_hosts: frozenset[str]) -> tuple[MarkdownPart, ...]:
    """The parts of a text, prose made harmless. Ends with every fence and fold closed."""
    parts = [part if part.code else _tame_part(part, allowed_hosts) for part in _split(text)]
    folds = [tag for part in parts if not part.code for line in part.text.split("\n") for tag in _folds(line)]
    missing = folds.count("<details>") - folds.count("</details>")
    return (*parts, *([MarkdownPart(code=False, text="\n</details>" * missing)] if missing > 0 else []))


def around_code(prose: str, change: Callable[[str], str]) -> str:
    """The prose, changed everywhere but in inline code. Code counts only where no reader can doubt it: in paragraphs
    that have every backtick paired within its own line."""
    if "`" not in prose:
        return change(prose)
    taken: list[str] = []
    marked = "".join(_take_from_paragraph(paragraph, taken) for paragraph in re.split(r"(\n[ \t]*(?=\n))", prose))
    pieces = iter(taken)
    return re.sub(CODE_MARK, lambda _mark: next(pieces), change(marked))


def _take_from_paragraph(paragraph: str, taken: list[str]) -> str:
    lines = paragraph.split("\n")
    spans = [_code_spans(line) for line in lines]
    if any(_FOLD.match(line) for line in lines) or None in spans:
        return paragraph
    marked: list[str] = []
    for line, inside in zip(lines, spans, strict=True):
        at, parts = 0, []
        for start, end in inside or ():
            parts += [line[at:start], CODE_MARK]
            taken.append(line[start:end])
            at = end
        marked.append("".join((*parts, line[at:])))
    return "\n".join(marked)


def _code_spans(line: str) -> list[tuple[int, int]] | None:
    """Where the inline code of a line begins and ends; None where its backticks could be read in two ways."""
    if "`" not in line:
        return []
    spans: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    closed = 0
    for ticks in _TICKS.finditer(line):
        if opened is None:
            if _ADDRESS.search(line[closed : ticks.start()]):
                return None
            opened = ticks
        elif len(ticks[0]) == len(opened[0]):
            spans.append((opened.end(), ticks.start()))
            opened, closed = None, ticks.end()
    doubtful = opened or _OTHERWISE.search(line) or any("|" in line[start:end] for start, end in spans)
    return None if doubtful else spans


def _split(text: str) -> Iterator[MarkdownPart]:
    """The text cut at its fences, each of which is closed."""
    lines = list(_marked_lines(text))
    for code, group in groupby(lines, key=lambda line: line[0]):
        yield MarkdownPart(code=code > 0, text="\n".join(line for _, line in group))


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


def _tame_part(part: MarkdownPart, allowed: frozenset[str]) -> MarkdownPart:
    return MarkdownPart(code=False, text=around_code(part.text, lambda prose: _tame_prose(prose, allowed)))


def _tame_prose(text: str, allowed: frozenset[str]) -> str:
    without_tags = "\n".join(_break_tags(line) for line in text.split("\n"))
    without_links = _LINK_START.sub(lambda match: _break_link(match, allowed), without_tags)
    paragraphs = re.split(r"(\n[ \t]*(?=\n))", without_links)
    return "".join(_quote_urls(paragraph, allowed) for paragraph in paragraphs)


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
