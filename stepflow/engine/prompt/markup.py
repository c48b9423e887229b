"""Find what people do not see of a text: invisible characters, tags, and hidden parts of raw HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from stepflow.domain.text import ANSI, RemovalKind, RemovedPiece, find_invisible, read_tags, spell_out

#: Kinds that may span several blocks, and are noted once.
_SPANNING = (RemovalKind.ELEMENT, RemovalKind.FOOTNOTE)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Replace the characters from `start` to before `end`."""

    start: int
    end: int
    text: str = ""


@dataclass(kw_only=True)
class Removals:
    """Collects what is removed from one text, which `where` names."""

    where: str
    #: How many characters the result may be longer than its source.
    growth: int
    pieces: list[RemovedPiece] = field(default_factory=list)
    #: The addresses of the images that stay.
    images: list[str] = field(default_factory=list)

    def note(self, kind: RemovalKind, text: str) -> None:
        """Note a removed piece, unless it is blank and spells nothing in tag characters."""
        spelled = spell_out(text).strip()
        if hidden := read_tags(text):
            spelled = f"{spelled}, which spells: {hidden}"
        if not spelled:
            return
        last = self.pieces[-1] if self.pieces else None
        if last and last.kind is kind and kind in _SPANNING:
            del self.pieces[-1]
            spelled = f"{last.text}\n{spelled}"
        self.pieces.append(RemovedPiece(kind=kind, where=self.where, text=spelled))

    def may_grow(self, characters: int) -> bool:
        """Reserve room for so many more characters; False if there is none."""
        if characters > self.growth:
            return False
        self.growth -= characters
        return True


#: Stands where something was removed, until the lines that are left empty are dropped. No text holds it.
_REMOVED = "\0"
_MARGIN = " \t>"


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap, in order. A line of which only its margin is left is dropped."""
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], _REMOVED, edit.text]
        at = edit.end
    lines = "".join((*parts, text[at:])).split("\n")
    lines_left = (line for line in lines if _REMOVED not in line or line.strip(_MARGIN + _REMOVED))
    return "\n".join(lines_left).replace(_REMOVED, "")


#: Any entity with a semicolon; without one, numbers and the names that can spell markup or an invisible character. Its
#: `&` may be spelled as an entity too, any number of times.
ENTITY = re.compile(
    r"&(?:(?:amp|AMP|#0{0,5}38|#[xX]0{0,4}26);)*(?P<name>#[0-9]{1,7}+;?|#[xX][0-9a-fA-F]{1,6}+;?"
    r"|[A-Za-z][A-Za-z0-9]{1,30}+;|(?:lt|gt|amp|quot|nbsp|shy|LT|GT|AMP|QUOT)(?![A-Za-z0-9=]))"
)
#: How Markdown escapes a `<` that begins nothing.
PLAIN_ANGLE = "\\<"
_SEEN = re.compile(r"[ -~\n\t]+")


def spell_entity(name: str) -> str:
    """Return the character of an entity: never a line break, and `<` escaped."""
    character = html.unescape(f"&{name.removesuffix(';')};")
    if character.isspace() and character != "\u00a0":
        return " "
    return PLAIN_ANGLE if character == "<" else character


def remove_unseen(text: str, removals: Removals) -> str:
    """Remove characters that nobody sees. Those that shape visible ones, such as joiners in scripts and emoji, stay."""
    if _SEEN.fullmatch(text):
        return text
    parts: list[str] = []
    at = 0
    for start, end in _unseen_runs(text):
        parts.append(text[at:start])
        at = end
        removals.note(RemovalKind.CHARACTERS, text[start:end])
    return "".join((*parts, text[at:]))


def _unseen_runs(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each run of invisible characters and terminal control sequences."""
    spans = find_invisible(text)
    if "\x1b" in text or "\x9b" in text:
        spans = sorted([*spans, *(match.span() for match in ANSI.finditer(text))])
    runs: list[tuple[int, int]] = []
    for start, end in spans:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


#: The elements of GitHub's own sanitizer (html-pipeline, `SanitizationFilter`), and `picture` with its `source`.
SHOWN = frozenset(
    re.findall(
        r"\w+",
        """h1 h2 h3 h4 h5 h6 h7 h8 br b i strong em a pre code img tt div ins del sup sub p ol ul table thead tbody
        tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details picture source""",
    )
)
#: GitHub's renderer shows the `<` of these as it is written (GFM 0.29 §6.11, as cmark-gfm's `tagfilter` reads it).
FILTERED = ("title", "textarea", "style", "xmp", "iframe", "noembed", "noframes", "script", "plaintext")
FILTERED_TAG = re.compile(rf"</?(?:{'|'.join(FILTERED)})(?=[ \t\n\v\f\r>]|/>)", re.IGNORECASE | re.ASCII)
#: Elements whose content browsers or GitHub do not show, or replace by something else.
UNSHOWN = frozenset(
    re.findall(r"\w+", "template head noscript object svg math select datalist audio video canvas")
    + list(FILTERED)  # in a spelling that the renderer does not know
)
#: Attributes that are addresses or change how things look, and the values that can carry no other text.
_ADDRESS = re.compile(r"[^\s\"'<>]{1,2000}")
_MEASURE = re.compile(r"\d{1,4}(?:px|%)?")
#: An image this wide or high is only a speck, whatever it shows.
_TINY = re.compile(r"0*\d(?:px|%)?")
_SIDE = re.compile(r"left|right|center|top|middle|bottom", re.IGNORECASE)
_OPEN = re.compile(r"(?:open)?", re.IGNORECASE)
ALLOWED_ATTRIBUTES = {
    **dict.fromkeys(("href", "src"), _ADDRESS),
    **dict.fromkeys(("width", "height", "colspan", "rowspan", "start", "border"), _MEASURE),
    **dict.fromkeys(("align", "valign"), _SIDE),
    "open": _OPEN,
}

_NAME = r"[A-Za-z][^\s/>]*+"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)"""
#: A value whose quote is never closed swallows what follows, so it is not a tag here.
_ATTRIBUTE = rf"[^\s/>][^\s/>=]*+(?>(?:\s*+=\s*+(?:{_VALUE}|(?=>)))?)(?!\s*+=)"
#: A tag as HTML reads it (html.spec.whatwg.org, "Tokenization"). Markdown's own tags are among these.
TAG = re.compile(rf"<(?P<slash>/?)(?P<name>{_NAME})(?P<rest>(?>(?:[\s/]++|{_ATTRIBUTE})*))>")
#: A tag as Markdown knows it inside a paragraph (CommonMark 0.31 §6.6); anything else there is text.
MARKDOWN_TAG = re.compile(
    r"""<(?:[A-Za-z][A-Za-z0-9-]*+
     (?>(?:\s++[A-Za-z_:][\w:.-]*+(?>(?:\s*+=\s*+(?:[^\s"'=<>`]++|'[^']*+'|"[^"]*+"))?))*)\s*+/?
    |/[A-Za-z][A-Za-z0-9-]*+\s*+)>""",
    re.VERBOSE | re.ASCII,
)
_ONE_ATTRIBUTE = re.compile(rf"(?P<name>[^\s/>][^\s/>=]*+)(?>(?:\s*+=\s*+(?P<value>{_VALUE}))?)")


@dataclass(frozen=True, kw_only=True)
class SeenTag:
    """What people see of a tag."""

    name: str
    closes: bool
    #: What stays of the tag.
    text: str
    #: The address, if the tag is an image.
    image: str = ""
    #: The attributes that are removed.
    gone: tuple[str, ...] = ()
    #: The whole tag is removed.
    whole: bool = False


def see_tag(match: re.Match[str]) -> SeenTag:
    """Return what people see of a tag that `TAG` matched; one that hides nothing stays as it is written."""
    name, closes = match["name"].lower(), bool(match["slash"])
    if name not in SHOWN:
        return SeenTag(name=name, closes=closes, text="", whole=True)
    attributes = list(_ONE_ATTRIBUTE.finditer(match["rest"]))
    attributes_left = [] if closes else [each for each in attributes if _is_allowed(each)]
    gone = tuple(each[0] for each in attributes if each not in attributes_left)
    # The first attribute of a name counts.
    values = {each["name"].lower(): _value(each) for each in reversed(attributes_left)} if name == "img" else {}
    if any(_TINY.fullmatch(values.get(side, "")) for side in ("width", "height")):
        return SeenTag(name=name, closes=closes, text="", whole=True)
    image = html.unescape(values.get("src", ""))
    if not gone:
        return SeenTag(name=name, closes=closes, text=match[0], image=image)
    end = " />" if match["rest"].rstrip().endswith("/") else ">"
    words = (f"<{match['slash']}{match['name']}", *(each[0] for each in attributes_left))
    return SeenTag(name=name, closes=closes, text=" ".join(words) + end, image=image, gone=gone)


def _is_allowed(attribute: re.Match[str]) -> bool:
    pattern = ALLOWED_ATTRIBUTES.get(attribute["name"].lower())
    return pattern is not None and pattern.fullmatch(_value(attribute)) is not None


def _value(attribute: re.Match[str]) -> str:
    return (attribute["value"] or "").strip("\"'")


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """Whether the text at a position is hidden: by `element`, open `depth` times, or `to_the_end` of the text."""

    element: str = ""
    depth: int = 0
    to_the_end: bool = False

    @property
    def hides(self) -> bool:
        """True while nothing is shown."""
        return self.to_the_end or self.depth > 0

    def after(self, tag: SeenTag) -> Hiding:
        """Return the state after a tag."""
        if self.to_the_end:
            return self
        if self.depth == 0:
            opens = tag.name in UNSHOWN and not tag.closes
            return Hiding(element=tag.name, depth=1) if opens else self
        if tag.name != self.element:
            return self
        depth = self.depth - 1 if tag.closes else self.depth + 1
        return Hiding(element=self.element, depth=depth) if depth else Hiding()


class Scan:
    """Collects the edits of one piece of text. `hiding` is the state at its beginning, then at the position reached."""

    def __init__(self, text: str, removals: Removals, hiding: Hiding) -> None:
        self.text, self.removals, self.hiding = text, removals, hiding
        self._edits: list[Edit] = []
        self._since = 0 if hiding.hides else None
        self._pieces_since = len(removals.pieces)

    def replace(self, start: int, end: int, text: str = "") -> None:
        """Replace text without a note: nothing is hidden there."""
        self._edits.append(Edit(start=start, end=end, text=text))

    def remove(self, kind: RemovalKind, start: int, end: int) -> None:
        """Remove text, and note it."""
        self.replace(start, end)
        self.removals.note(kind, self.text[start:end])

    def entity(self, at: int, *, in_html: bool = False) -> int:
        """Decode the entity that may begin here, and return where to continue. In raw HTML, an entity that spells `<`
        stays: nothing else can write it as text."""
        match = ENTITY.match(self.text, at)
        if not match:
            return at + 1
        spelled = spell_entity(match["name"])
        if spelled != match[0] and not (in_html and spelled == PLAIN_ANGLE):
            self.replace(at, match.end(), spelled)
        return match.end()

    def tag(self, match: re.Match[str]) -> int:
        """Keep what people see of a tag, and return where to continue."""
        seen, before = see_tag(match), self.hiding
        start, end = match.start(), match.end()
        self.hiding = before.after(seen)
        if self.hiding.hides and not before.hides:
            self._begin(start)
        elif before.hides and not self.hiding.hides:
            self._end(end)
        elif seen.whole:
            self.remove(RemovalKind.TAG, start, end)
        else:
            if seen.gone:
                self.replace(start, end, seen.text)
            for attribute in seen.gone:
                self.removals.note(RemovalKind.ATTRIBUTE, attribute)
            if seen.image and not self.hiding.hides:
                self.removals.images.append(seen.image)
        return end

    def hide_rest(self, at: int) -> int:
        """Hide the rest of the text, and return its end."""
        if not self.hiding.hides:
            self._begin(at)
        self.hiding = Hiding(to_the_end=True)
        return len(self.text)

    def finish(self) -> list[Edit]:
        """Return all edits; an open hidden part extends to the end of the text."""
        if self._since is not None:
            self._end(len(self.text))
        return self._edits

    def _begin(self, at: int) -> None:
        self._since, self._pieces_since = at, len(self.removals.pieces)

    def _end(self, at: int) -> None:
        """Remove a hidden part as a whole, in place of the pieces found inside."""
        since = self._since or 0
        del self.removals.pieces[self._pieces_since :]
        while self._edits and self._edits[-1].start >= since:
            self._edits.pop()
        self.remove(RemovalKind.ELEMENT, since, at)
        self._since = None


_SIGN = re.compile(r"[<&]")
SHORT_COMMENT = re.compile(r"<!---?>")
#: What browsers treat as a comment besides real ones.
_BOGUS = re.compile(r"<(?:[!?]|/(?![A-Za-z]))")
_LETTER = re.compile(r"</?[A-Za-z]")


class RawScan(Scan):
    """Scans one block of raw HTML from left to right."""

    def run(self) -> list[Edit]:
        """Return the block's edits."""
        at = 0
        while sign := _SIGN.search(self.text, at):
            at = self.entity(sign.start(), in_html=True) if sign[0] == "&" else self._angle(sign.start())
        return self.finish()

    def _angle(self, at: int) -> int:
        if short := SHORT_COMMENT.match(self.text, at):
            return self._comment(at, short.end())
        if self.text.startswith("<!--", at):
            end = self.text.find("-->", at + 4)
            return self._comment(at, end + 3) if end >= 0 else self.hide_rest(at)
        if _BOGUS.match(self.text, at):
            end = self.text.find(">", at)
            return self._comment(at, end + 1) if end >= 0 else self.hide_rest(at)
        if filtered := FILTERED_TAG.match(self.text, at):
            return filtered.end()
        if match := TAG.match(self.text, at):
            return self.tag(match)
        return self.hide_rest(at) if _LETTER.match(self.text, at) else at + 1

    def _comment(self, start: int, end: int) -> int:
        self.remove(RemovalKind.COMMENT, start, end)
        return end
