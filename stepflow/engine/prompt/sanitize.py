"""The filter for all text from outside that goes to a model: what people do not see, the model does not see either.

People see GitHub's page, a model sees the source, so the model gets what the page shows. People are shown what was
removed; code and every visible word stay. A text that hides nothing stays as it is written.
"""

from __future__ import annotations

import html
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import unquote

from stepflow.domain.text import (
    ANSI,
    RemovalKind,
    RemovedPiece,
    find_invisible,
    read_tags,
    replace_surrogates,
    spell_out,
    strip_unseen,
)
from stepflow.engine.prompt.github_page import ATTRIBUTES, RESERVED, SHOWN, read_page

#: What editors write as the text of a picture: `image`, or the name of a screenshot's file.
_PICTURE_NAME = (
    r"(?:image|img|screen ?shot|screen recording|bildschirmfoto)"
    r"(?:[ \u202f_-]?(?:\d[\d.,:_-]{0,20}|at|um|[ap]m)){0,6}(?:\.(?:png|jpe?g|gif))?"
)
#: Where GitHub keeps what people attach.
_ATTACHED = r"https://(?:github\.com/user-attachments|user-images\.githubusercontent\.com)/[\w./-]{1,200}"
#: Values that only say how or where something is shown.
_LOOKS = (
    r"(?:target=\"_(?:blank|self)\"|rel=\"(?:noopener|noreferrer|nofollow|[ ])+\"|dir=\"(?:auto|ltr|rtl)\""
    r"|v?align=\"(?:left|right|center|justify|top|middle|bottom)\"|nowrap)"
)
#: Markup that editors write and that hides no text: nobody is told that it is gone. `kept` is what the page shows.
_USUAL_MARKUP = re.compile(
    rf"(?P<kept><img\b[^<>]{{0,500}}?\s)alt=\"{_PICTURE_NAME}\"|(?P<opening>!\[){_PICTURE_NAME}(?=\]\({_ATTACHED}\))"
    rf"|</?(?:picture|span|video|center|u)\s*>|<video(?:\s+controls(?:=\"\")?|\s+src=\"{_ATTACHED}\")+\s*/?>"
    rf"|<source\s+media=\"\(prefers-color-scheme:\s?(?:dark|light)\)\"\s+srcset=\"{_ATTACHED}\"\s*/?>"
    rf"|(?P<tag><\w{{1,10}}\b[^<>]{{0,500}}?\s){_LOOKS}(?:\s+{_LOOKS})*(?=[^<>]{{0,500}}>)",
    re.IGNORECASE,
)


def _keep_rest(match: re.Match[str]) -> str:
    return match["kept"] or match["opening"] or match["tag"] or " "


#: GitHub's API refuses a longer body of an issue or comment: "body is too long (maximum is 65536 characters)".
LONGEST_TEXT = 65_536
CUT_NOTE = "\n\n[The text is longer. Its last {left_out:,} characters are left out.]"
#: Characters reserved for the number in the note.
_FIGURES = 16
#: Characters of the cut text that people are shown.
CUT_SHOWN = 2000
#: Characters of a text that are read; a longer one is read up to the end of a paragraph. For some texts, the renderer
#: takes time by the square of their length.
LONGEST_SOURCE = 2 * LONGEST_TEXT
_UNREADABLE = {ord(character): "\ufffd" for character in f"\0{RESERVED}"}


@dataclass(frozen=True, kw_only=True)
class SanitizedText:
    """A text as people see it, the pieces that they do not see, and the addresses of its images."""

    text: str = ""
    removed: tuple[RemovedPiece, ...] = ()
    images: tuple[str, ...] = ()


def sanitize(text: str, where: str, *, limit: int = LONGEST_TEXT) -> SanitizedText:
    """Return the visible part of a Markdown text: at most `limit` characters, with a note on what was cut. `where`
    names the text."""
    plain = _with_plain_breaks(text)
    # Cut the visible text, not the source: a cut there could leave open what hides something.
    source = plain if len(plain) <= LONGEST_SOURCE else _beginning(plain[:LONGEST_SOURCE])
    unread = plain[len(source) :]
    page = read_page(source)
    stripped, seen = strip_unseen(source), strip_unseen(page.text)
    removed = [*_note_unseen(source, where)] or [*_note_unseen(page.text, where)]
    words, seen_words = _Words(stripped), _Words(seen)
    shows_all = words.spelled == seen_words.spelled and stripped.count("<!") == seen.count("<!")
    if shows_all and not find_invisible(html.unescape(stripped)):
        seen = stripped.strip("\n")
    missing = _Words(_USUAL_MARKUP.sub(_keep_rest, stripped)).missing_from(seen_words)
    removed += [RemovedPiece(kind=RemovalKind.HIDDEN, where=where, text=piece) for piece in missing]
    end = _cut_point(seen, limit) if unread or len(seen) > limit else len(seen)
    if left_out := seen[end:] + unread:
        removed.append(RemovedPiece(kind=RemovalKind.CUT, where=where, text=spell_out(left_out[:CUT_SHOWN])))
        seen = seen[:end] + CUT_NOTE.format(left_out=len(left_out))
    return SanitizedText(text=seen, removed=tuple(removed), images=page.images)


def sanitize_line(text: str, where: str) -> SanitizedText:
    """Return the visible part of a title or a name, as one line. GitHub renders no markup in it but code."""
    line = " ".join(text.split())
    return SanitizedText(text=" ".join(strip_unseen(line).split()), removed=tuple(_note_unseen(line, where)))


def sanitize_plain(text: str, where: str) -> SanitizedText:
    """Return the visible part of a text in which GitHub renders no markup, such as a diff or a log."""
    plain = text.replace("\r\n", "\n").replace("\0", "\ufffd")
    return SanitizedText(text=strip_unseen(plain).strip("\n"), removed=tuple(_note_unseen(plain, where)))


def _with_plain_breaks(text: str) -> str:
    return replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").translate(_UNREADABLE)


def _beginning(text: str) -> str:
    """Return a beginning of the text that leaves no comment open."""
    if (paragraph := text.rfind("\n\n", len(text) // 2)) > 0:
        return text[:paragraph]
    comment = text.rfind("<!--")
    return text[:comment] if comment > text.rfind("-->") else text


def _cut_point(text: str, limit: int) -> int:
    """Return where to cut, with room for the note: at the end of a paragraph, a line or a word, if there is one in the
    second half."""
    most = max(limit - len(CUT_NOTE) - _FIGURES, 0)
    if len(text) <= most:
        return len(text)
    ends = (text.rfind(sign, most // 2, most) for sign in ("\n\n", "\n", " "))
    return next((end for end in ends if end > 0), most)


def _note_unseen(text: str, where: str) -> Iterator[RemovedPiece]:
    for start, end in _unseen_runs(text):
        run = text[start:end]
        hidden = f", which spells: {read_tags(run)}" if read_tags(run) else ""
        yield RemovedPiece(kind=RemovalKind.CHARACTERS, where=where, text=spell_out(run) + hidden)


def _unseen_runs(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each run of invisible characters and terminal control sequences."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted([*find_invisible(text), *(match.span() for match in ANSI.finditer(text))]):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((start, end))
    return runs


#: Words, and between them markup that may be written in another way: tags that stay, and the numbers of a list.
_WORDS = re.compile(
    rf"</?(?:{'|'.join(sorted(SHOWN, key=len, reverse=True))})(?=[\s/>])|(?<=\s)(?:{'|'.join(ATTRIBUTES)})="
    r"|^[ \t>]*\d+[.)](?=\s|$)|(?P<word>[^\W_]+|[^\x00-\x7f\s])",
    re.MULTILINE | re.IGNORECASE,
)


class _Words:
    """The words of a text, without entities and percent encoding."""

    def __init__(self, text: str) -> None:
        self._text = unquote(html.unescape(text))
        self._matches = [match for match in _WORDS.finditer(self._text) if match["word"]]
        self.spelled = [match["word"] for match in self._matches]

    def missing_from(self, shown: _Words) -> Iterator[str]:
        """Yield the pieces of the text that are not shown. Of a word that is shown less often than it is written, those
        count as missing that are next to others that are missing."""
        count = Counter(shown.spelled)
        missing = Counter(self.spelled) - count
        certain = [at for at, word in enumerate(self.spelled) if word not in count]

        def distance(at: int) -> int:
            index = bisect(certain, at)
            return min((abs(at - near) for near in certain[max(index - 1, 0) : index + 1]), default=0)

        found: list[int] = []
        for at in sorted(range(len(self.spelled)) if missing else (), key=distance):
            if missing[self.spelled[at]] > 0:
                missing[self.spelled[at]] -= 1
                found.append(at)
        for _, run in groupby(enumerate(sorted(found)), key=lambda pair: pair[1] - pair[0]):
            matches = [self._matches[at] for _, at in run]
            yield spell_out(self._text[matches[0].start() : matches[-1].end()])
