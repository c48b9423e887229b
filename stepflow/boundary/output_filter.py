"""The filter that every text of the model passes on its way out, so that it notifies and runs nothing."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from stepflow.boundary.markdown import ZERO_WIDTH, MarkdownPart, around_code, tame_markdown
from stepflow.domain.secrets import Redactor, mask_secrets
from stepflow.domain.text import is_invisible, strip_invisible

#: GitHub takes 65,536 characters; the rest is for the lines and the marker that are added when a comment is written.
LONGEST_TEXT = 60_000
LONGEST_LINE = 240
#: Texts beyond this are not even looked at.
LONGEST_SOURCE = 4 * LONGEST_TEXT
DEEPEST_ENTITY = 8
CUT_NOTE = "\n\n*(The text was longer and has been cut here.)*"

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
#: What an entity may not hide: the letters of keywords and hosts, and the signs of mentions, references and URLs.
_MEANINGFUL = re.compile(r"[A-Za-z0-9@#/:.]")
_MENTION = re.compile(rf"@(?=[^\s{ZERO_WIDTH}])")
#: What readers of the page do not see between two characters: where a link leads, folds, emphasis, escapes, brackets.
_UNSEEN = (
    r"(?:\]\([ \t\n]*+[^ \t\n()]*+[ \t\n]*+\)|\]\[(?>(?:\\.|[^\[\]\\])*)\](?!\()|</?(?:details|summary)>|[\\*_~`\[\]!])"
)


_KEYWORDS = ("closes", "closed", "close", "fixes", "fixed", "fix", "resolves", "resolved", "resolve")
_REFERENCES = (("#", r"\d"), ("g", "h", "-", r"\d"), ("h", "t", "t", "p", "s?", ":"), ("w", "w", "w", r"\."))


def _closing(unseen: str, *, between: str, link: str) -> tuple[str, str]:
    """A closing keyword with what stands between it and a reference, and that reference. `unseen` may stand between any
    two characters of both, and any of `between` between the two; `link` is one more form of a reference."""
    keyword = "|".join(unseen.join(word) for word in _KEYWORDS)
    reference = "|".join(unseen.join(signs) for signs in _REFERENCES)
    return (
        rf"(?:{keyword})(?![^\W_])"
        # Matched once and for all (`(?>…)`, `}}+`): no text is searched twice.
        rf"(?>(?:{between}|[^\w#]|_|#(?!{unseen}\d))*)",
        rf"(?:(?:[^\s#/]{{1,250}}+/[^\s#]{{1,250}}+)?(?:{reference})|{link})",
    )


_WORD_START = r"(?<![^\W_])"


def _first_letter(keyword: str, reference: str) -> re.Pattern[str]:
    return re.compile(rf"{_WORD_START}(?={keyword}{reference})(\w)", re.IGNORECASE)


_KEYWORD, _REFERENCE = _closing("", between=r"\s", link=r"https?:")
#: In a text as it stands, such as a commit message.
_CLOSING = _first_letter(_KEYWORD, _REFERENCE)
#: The same up to the reference.
_BEFORE_REFERENCE = re.compile(rf"{_WORD_START}{_KEYWORD}(?={_REFERENCE})", re.IGNORECASE)
#: In what a page shows of Markdown, where a link to an issue is a reference whatever its text says.
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
    """What the filter needs to know: hosts that links may lead to, lower case, and the secrets."""

    allowed_hosts: frozenset[str] = frozenset()
    redactor: Redactor = field(default_factory=Redactor)

    def mask(self, text: str) -> str:
        """The text without the secrets, and without what looks like one."""
        return mask_secrets(self.redactor(text))


def filter_text(text: str, output_filter: OutputFilter, *, limit: int = LONGEST_TEXT) -> str:
    """Markdown that may be posted, `limit` characters at most; what is cut is said."""
    readable = output_filter.mask(_decoded(output_filter.mask(strip_hidden(text))[:LONGEST_SOURCE]))
    filtered = _filtered(readable, output_filter)
    if len(filtered) <= limit:
        return filtered
    budget = limit - len(CUT_NOTE)
    shortened = readable[:budget]
    while len(filtered := _filtered(shortened, output_filter)) > budget:
        shortened = shortened[: len(shortened) * budget // len(filtered) - 1]
    return filtered + CUT_NOTE


def filter_line(text: str, output_filter: OutputFilter, *, limit: int = LONGEST_LINE) -> str:
    """One line for a title: no line break, CI directive or secret, and no closing keyword where the title becomes the
    message of a commit. A mention in a title notifies nobody, so all else reads and copies as it was written."""
    line = " ".join(without_directives(output_filter.mask(strip_hidden(text))).split())
    return _BEFORE_REFERENCE.sub(_name_issue, line)[:limit].rstrip()


def _name_issue(before: re.Match[str]) -> str:
    """With a word between keyword and reference GitHub closes nothing."""
    return f"{before[0]}issue " if before[0][-1] in " (" else f"{before[0]} issue "


def defuse(text: str) -> str:
    """Text whose mentions notify nobody and whose closing keywords close nothing."""
    return _CLOSING.sub(r"\1" + ZERO_WIDTH, _MENTION.sub("@" + ZERO_WIDTH, text))


def without_directives(text: str) -> str:
    """Text without `[skip ci]` and its kin, also none that forms when one is taken out."""
    return _SKIP_CI.sub(lambda match: f"({match[0][1:-1]})", _SKIP_CI.sub("", text))


def strip_hidden(text: str) -> str:
    """The text with plain line breaks and none of the characters that readers cannot see, but for those that shape
    visible ones.

    They would hide a secret from the redactor that a reader then copies.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "").replace("\u2029", "")
    return strip_invisible(plain)


def _decoded(text: str) -> str:
    """Entities of telling characters spelled out; a text that nests them deeper shows them all as written."""
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


def _filtered(text: str, output_filter: OutputFilter) -> str:
    parts = tame_markdown(without_directives(text), output_filter.allowed_hosts)
    return _CLOSING.sub(r"\1" + ZERO_WIDTH, "\n".join(_without_commands(part) for part in parts))


def _without_commands(part: MarkdownPart) -> str:
    """No line begins with a command; in prose nobody is mentioned (in code GitHub mentions nobody)."""
    if part.code:
        # Paths and comments of a program are copied as they stand.
        return re.sub(r"(?m)^([ \t]*)/(?=\w[^\s/]*+(?!/))", rf"\1{ZERO_WIDTH}/", part.text)
    mentions_none = around_code(part.text, lambda prose: _MENTION.sub("@" + ZERO_WIDTH, prose))
    closes_none = _CLOSING_ON_PAGE.sub(r"\1" + ZERO_WIDTH, mentions_none)
    return re.sub(r"(?m)^([ \t]*)/", r"\1\\/", closes_none)
