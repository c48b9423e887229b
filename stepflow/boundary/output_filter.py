"""Filters every text of the model before it leaves, so that it notifies nobody and runs nothing: no foreign link or
image, no HTML except folds, no mention, no keyword that closes an issue.

Fenced code stays as it is, so the scanner must agree with GitHub about what a fence is. It recognizes only fences and
`<details>` blocks that begin in the first column. Anything else that could hide a fence is broken or moved there.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from stepflow.domain.secrets import Redactor, mask_secrets
from stepflow.domain.text import DRAWN, is_invisible, strip_invisible

ZERO_WIDTH = "\u200b"

_FENCE = re.compile(r"(?P<mark>`{3,}+)(?P<info>[^`]*)|(?P<tilde>~{3,}+)(?P<rest>.*)")
_INDENTED_FENCE = re.compile(r" {1,3}(?=`{3}|~{3})")
_FOLD = re.compile(r"</?(?:details|summary)>")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!/?(?:details|summary)>)")
_ANY_TAG = re.compile(r"<(?=[A-Za-z/!?])")
#: Languages of fences that GitHub renders instead of showing as code. They can contain links.
_DRAWN = DRAWN | {"math", "suggestion"}

_LINK_START = re.compile(r"\](?=[(:])")
#: The destination of a link or a definition. Links with a title are not allowed, because a title can hide the next
#: link.
_LINK = re.compile(r"\](?:\([ \t\n]*+(?P<link>[^ \t\n()]++)[ \t\n]*+\)|:[ \t\n]*+(?P<definition>[^ \t\n]++))")
_RELATIVE = re.compile(r"(?!//)[\w#./-][\w#./?=&%+~-]*", re.ASCII)
_URL = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,30}:(?:\\?[/\\]){2}|(?<![a-z0-9])www\.)(?>(?:(?!\]\()[^ \t\n<`|])*)", re.IGNORECASE
)
#: Allowed links, which remain after foreign links were broken, or URLs. A URL in a link ends with the link.
_LINK_OR_URL = re.compile(
    rf"(?P<before>\]\([ \t\n]*+)(?P<own>[^ \t\n()]++)(?=[ \t\n]*+\))|(?P<url>{_URL.pattern})", re.IGNORECASE
)
_PLAIN_URL = re.compile(r"https?://(?P<host>[a-z0-9.-]+)(?::\d+)?(?P<path>[/?#][^\\\s()<>`]*)?", re.IGNORECASE)
_TRAILING = ".,;:!?)>]*_'\""
#: Replaces inline code while the text around it is made harmless. A model's text cannot contain it, because invisible
#: characters are removed.
CODE_MARK = "\ue000"
_TICKS = re.compile(r"`+")
#: Text that would change the meaning of backticks: an address directly before them, an escape, a formula.
_ADDRESS = re.compile(r"(?::/|:\\|www\.)[^\s<]*$", re.IGNORECASE)
_OTHERWISE = re.compile(r"\\`|\$`|`\$")


@dataclass(frozen=True, kw_only=True)
class MarkdownPart:
    """A sequence of lines. `code` is true for a fenced block, including its fences."""

    code: bool
    text: str


def tame_markdown(text: str, allowed_hosts: frozenset[str]) -> tuple[MarkdownPart, ...]:
    """Split a text into parts and make its prose harmless. Every fence and fold is closed at the end."""
    parts = [part if part.code else _tame_part(part, allowed_hosts) for part in _split(text)]
    folds = [tag for part in parts if not part.code for line in part.text.split("\n") for tag in _folds(line)]
    missing = folds.count("<details>") - folds.count("</details>")
    return (*parts, *([MarkdownPart(code=False, text="\n</details>" * missing)] if missing > 0 else []))


def around_code(prose: str, change: Callable[[str], str]) -> str:
    """Change the prose outside of inline code. Code counts only if it is unambiguous: in paragraphs in which every
    backtick is paired within its own line."""
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
    """Return where each piece of inline code in a line begins and ends, or None if the backticks are ambiguous."""
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
    """Yield the text split at its fences, each of which is closed."""
    lines = list(_marked_lines(text))
    for code, group in groupby(lines, key=lambda line: line[0]):
        yield MarkdownPart(code=code > 0, text="\n".join(line for _, line in group))


def _marked_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with the number of its fenced block, or 0 for prose."""
    block, fence, folded = 0, "", False
    for raw in text.split("\n"):
        line = raw.lstrip(" ") if not fence and _INDENTED_FENCE.match(raw) else raw
        if fence:
            yield block, line
            fence = "" if _closes(line, fence) else fence
        elif not folded and (opened := _FENCE.fullmatch(line)):
            block, fence = block + 1, opened["mark"] or opened["tilde"]
            yield block, _shown_line(line, fence)
        else:
            folded = bool(line.strip(" \t")) and (folded or bool(_FOLD.match(line)))
            yield 0, line
    if fence:
        yield block, fence


def _closes(line: str, fence: str) -> bool:
    match = re.fullmatch(r" {0,3}(`{3,}|~{3,})[ \t]*", line)
    return match is not None and match[1][0] == fence[0] and len(match[1]) >= len(fence)


def _shown_line(line: str, fence: str) -> str:
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
    """Keep `](` and `]:` together only before a destination that is clearly allowed."""
    link = _LINK.match(match.string, match.start())
    to = (link["link"] or link["definition"]) if link else ""
    return "]" if _RELATIVE.fullmatch(to) or _allow_url(to, allowed) else "]" + ZERO_WIDTH


def _allow_url(url: str, allowed: frozenset[str]) -> str:
    """Return the URL if its host is allowed, else an empty string. The result has a path, so that no text after it
    becomes part of the host."""
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None or plain["host"].lower() not in allowed:
        return ""
    return url if plain["path"] else f"{url}/"


def _quote_urls(paragraph: str, allowed: frozenset[str]) -> str:
    """Turn foreign URLs into code. If other backticks could pair with the new ones, insert a zero-width space
    instead."""
    crowded = "`" in paragraph

    def replace(match: re.Match[str]) -> str:
        if own := match["own"]:
            return match["before"] + (_allow_url(own, allowed) or own)
        url, core = match[0], match[0].rstrip(_TRAILING)
        if ours := _allow_url(core, allowed):
            return ours + url[len(core) :]
        if crowded or match.string[match.start() - 1 : match.start()] == "\\":
            return _break_url(url)
        return f"`{core}`{url[len(core) :]}"

    return _LINK_OR_URL.sub(replace, paragraph)


def _break_url(url: str) -> str:
    """Break a URL so that it is not a link. Browsers ignore a zero-width space in a host name, so it is inserted before
    the dot."""
    return re.sub(r"(?i)(?<=www)(?=\.)|(?<=:)(?=\\?[/\\])", ZERO_WIDTH, url)


#: GitHub accepts 65,536 characters. The rest is for the lines and the marker that are added to a comment.
LONGEST_TEXT = 60_000
LONGEST_LINE = 240
#: Text beyond this limit is not processed at all.
LONGEST_SOURCE = 4 * LONGEST_TEXT
DEEPEST_ENTITY = 8
CUT_NOTE = "\n\n*(The text was longer and has been cut here.)*"

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
#: Characters that an entity must not hide: the letters of keywords and hosts, and the signs of mentions, references and
#: URLs.
_MEANINGFUL = re.compile(r"[A-Za-z0-9@#/:.]")
_MENTION = re.compile(rf"@(?=[^\s{ZERO_WIDTH}])")
#: Markup that readers of the page do not see between two characters: link destinations, folds, emphasis, escapes,
#: brackets.
_UNSEEN = (
    r"(?:\]\([ \t\n]*+[^ \t\n()]*+[ \t\n]*+\)|\]\[(?>(?:\\.|[^\[\]\\])*)\](?!\()|</?(?:details|summary)>|[\\*_~`\[\]!])"
)
_KEYWORDS = ("closes", "closed", "close", "fixes", "fixed", "fix", "resolves", "resolved", "resolve")
_REFERENCES = (("#", r"\d"), ("g", "h", "-", r"\d"), ("h", "t", "t", "p", "s?", ":"), ("w", "w", "w", r"\."))


def _closing(unseen: str, *, between: str, link: str) -> tuple[str, str]:
    """Return two patterns: a closing keyword with everything up to a reference, and the reference. `unseen` may occur
    between any two characters of both, and `between` between the keyword and the reference. `link` is another form of a
    reference."""
    keyword = "|".join(unseen.join(word) for word in _KEYWORDS)
    reference = "|".join(unseen.join(signs) for signs in _REFERENCES)
    return (
        rf"(?:{keyword})(?![^\W_])"
        # Atomic (`(?>…)`) and possessive (`}}+`), so that no text is searched twice.
        rf"(?>(?:{between}|[^\w#]|_|#(?!{unseen}\d))*)",
        rf"(?:(?:[^\s#/]{{1,250}}+/[^\s#]{{1,250}}+)?(?:{reference})|{link})",
    )


_WORD_START = r"(?<![^\W_])"


def _first_letter(keyword: str, reference: str) -> re.Pattern[str]:
    return re.compile(rf"{_WORD_START}(?={keyword}{reference})(\w)", re.IGNORECASE)


_KEYWORD, _REFERENCE = _closing("", between=r"\s", link=r"https?:")
#: For text that is shown as it is, such as a commit message.
_CLOSING = _first_letter(_KEYWORD, _REFERENCE)
#: The same keyword, with everything up to the reference.
_BEFORE_REFERENCE = re.compile(rf"{_WORD_START}{_KEYWORD}(?={_REFERENCE})", re.IGNORECASE)
#: For rendered Markdown, in which a link to an issue is a reference whatever its text says.
_CLOSING_ON_PAGE = _first_letter(
    *_closing(
        f"(?>{_UNSEEN}*)",
        between=f"{_UNSEEN}|{_ENTITY.pattern}",
        link=r"[^\[\]]{0,1000}+\]\([^\s()]*?(?:issues|pull|discussions)/\d",
    )
)
_SKIP_CI = re.compile(r"\[(?:skip ci|ci skip|no ci|skip actions|actions skip)\]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class OutputFilter:
    """The data that the filter needs."""

    #: Hosts that links may lead to, in lower case.
    allowed_hosts: frozenset[str] = frozenset()
    redactor: Redactor = field(default_factory=Redactor)

    def mask(self, text: str) -> str:
        """Return the text without the secrets, and without anything that looks like one."""
        return mask_secrets(self.redactor(text))


def filter_text(text: str, output_filter: OutputFilter, *, limit: int = LONGEST_TEXT) -> str:
    """Return Markdown that may be posted, at most `limit` characters. If the text is cut, a note says so."""
    readable = output_filter.mask(_decode_entities(output_filter.mask(strip_hidden(text))[:LONGEST_SOURCE]))
    filtered = _filter_line(readable, output_filter)
    if len(filtered) <= limit:
        return filtered
    budget = limit - len(CUT_NOTE)
    shortened = readable[:budget]
    while len(filtered := _filter_line(shortened, output_filter)) > budget:
        shortened = shortened[: len(shortened) * budget // len(filtered) - 1]
    return filtered + CUT_NOTE


def filter_line(text: str, output_filter: OutputFilter) -> str:
    """Return one line for a title, without line breaks, CI directives, secrets and closing keywords. Closing keywords
    matter because the title may become a commit message. A mention in a title notifies nobody, so everything else stays
    as it was written."""
    line = " ".join(without_directives(output_filter.mask(strip_hidden(text))).split())
    return _BEFORE_REFERENCE.sub(_name_issue, line)[:LONGEST_LINE].rstrip()


def _name_issue(before: re.Match[str]) -> str:
    """Insert a word between keyword and reference, so that GitHub does not close the issue."""
    return f"{before[0]}issue " if before[0][-1] in " (" else f"{before[0]} issue "


def defuse(text: str) -> str:
    """Return text whose mentions notify nobody and whose closing keywords close nothing."""
    return _CLOSING.sub(r"\1" + ZERO_WIDTH, _MENTION.sub("@" + ZERO_WIDTH, text))


def without_directives(text: str) -> str:
    """Remove `[skip ci]` and similar directives, including any that form when one is removed."""
    return _SKIP_CI.sub(lambda match: f"({match[0][1:-1]})", _SKIP_CI.sub("", text))


def strip_hidden(text: str) -> str:
    """Return the text with plain line breaks, without characters that readers cannot see. Characters that shape visible
    ones stay.

    An invisible character could hide a secret from the redactor, but not from a reader who copies it.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "").replace("\u2029", "")
    return strip_invisible(plain)


def _decode_entities(text: str) -> str:
    """Decode entities that hide meaningful characters. If entities are nested too deeply, show them all as written."""
    for _ in range(DEEPEST_ENTITY):
        if (plain := _ENTITY.sub(_spell, text)) == text:
            return text
        text = plain
    return text.replace("&", "&amp;")


def _spell(match: re.Match[str]) -> str:
    character = html.unescape(match[0])
    if all(each not in "\n\t" and is_invisible(each) for each in character):
        return ""
    return character if _MEANINGFUL.fullmatch(character) else match[0]


def _filter_line(text: str, output_filter: OutputFilter) -> str:
    parts = tame_markdown(without_directives(text), output_filter.allowed_hosts)
    return _CLOSING.sub(r"\1" + ZERO_WIDTH, "\n".join(_without_commands(part) for part in parts))


def _without_commands(part: MarkdownPart) -> str:
    """Make sure that no line begins with a command and that prose mentions nobody. GitHub ignores mentions in code."""
    if part.code:
        # Paths and comments in code stay as they are, so that people can copy them.
        return re.sub(r"(?m)^([ \t]*)/(?=\w[^\s/]*+(?!/))", rf"\1{ZERO_WIDTH}/", part.text)
    mentions_none = around_code(part.text, lambda prose: _MENTION.sub("@" + ZERO_WIDTH, prose))
    closes_none = _CLOSING_ON_PAGE.sub(r"\1" + ZERO_WIDTH, mentions_none)
    return re.sub(r"(?m)^([ \t]*)/", r"\1\\/", closes_none)
