"""Renders a text as GitHub's page shows it, and writes that as Markdown again.

comrak renders the text as GitHub does, an HTML5 parser with GitHub's list of elements cleans the result, and what is
left is written as Markdown, so nothing that the page does not show can be in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stepflow.domain.text import DRAWN, code_block, code_span

if TYPE_CHECKING:
    import comrak


#: The elements of GitHub's own sanitizer (html-pipeline, `SanitizationFilter`), with the `section` of footnotes.
SHOWN = frozenset(
    re.findall(
        r"\S+",
        """h1 h2 h3 h4 h5 h6 h7 h8 br b i strong em a pre code img tt div ins del sup sub p ol ul table thead tbody
        tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details section""",
    )
)
#: Elements whose content browsers or GitHub do not show, or replace by something else.
UNSHOWN = frozenset(
    re.findall(
        r"\S+",
        """title textarea style xmp iframe noembed noframes script plaintext template head noscript object svg math
        select datalist audio video canvas""",
    )
)
#: Attributes that are addresses or change how things look, and the values that can carry no other text.
_ADDRESS = re.compile(r"[^\s\"'<>]{1,2000}")
_MEASURE = re.compile(r"\d{1,4}(?:px|%)?")
ATTRIBUTES = {
    **dict.fromkeys(("href", "src"), _ADDRESS),
    **dict.fromkeys(("width", "height", "colspan", "rowspan", "start"), _MEASURE),
    "align": re.compile(r"left|right|center", re.IGNORECASE),
    "open": re.compile(r"(?:open)?", re.IGNORECASE),
    # What the renderer adds. The writer does not write these.
    "class": re.compile(r"language-\S+|footnote-ref"),
    "id": re.compile(r"fn-.+"),
}
#: Longer names of footnotes could carry text that nobody sees on the page.
LONGEST_NOTE = 12
#: An image this wide or high is only a speck, whatever it shows.
_TINY = re.compile(r"0*\d(?:px|%)?")
#: Replaces a block that people see as a picture, not as text.
DRAWN_NOTE = "(A drawing in {language} is left out here.)"
#: A fence's language, without what tools that run or number examples add: `rust,no_run`, `js{1,3}`, `{r}`.
_LANGUAGE = re.compile(r"language-\{?([^\s,:{}]+)")
#: Common names of languages that pygments does not know.
_MORE_LANGUAGES = frozenset(
    re.findall(
        r"\S+",
        """suggestion math none plain plaintext nohighlight log logs stdout stderr terminal traceback snippet regex
        regexp patch git gitignore dotenv env asciidoc jsonc jsonl ipynb docker-compose plantuml sh-session
        shellscript""",
    )
)

#: Stands between blocks until they are written, and what stands in `<!x` and names until they are rendered, followed by
#: digits. Unicode reserves these for use inside of programs; no source may hold them.
RESERVED = "".join(map(chr, range(0xFDD0, 0xFDDC)))
BREAK, APART, DIGITS = RESERVED[0], RESERVED[1], RESERVED[2:]
# Where GitHub's renderer, which knows an older CommonMark, reads a text in another way than comrak: a declaration in
# lower case is text, what follows a task's box may be a footnote, the first of two footnotes counts, and `source`
# begins a block of HTML, but not `search`.
_SMALL_DECLARATION = re.compile(r"<(?=![a-z])")
_BOX = re.compile(r"^([ \t>]*+(?:[-*+]|\d{1,9}[.)])[ \t]++)\[[ xX]\][ \t]++(?=\[\^)", re.MULTILINE)
_NEST = r"[ \t]*+(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))"
#: More quotes and lists in each other than this would take the cleaner a long time.
_DEEP = re.compile(rf"^((?:{_NEST}){{200}})(?>(?:{_NEST})+)", re.MULTILINE)
_FOOTNOTE = re.compile(r"\[\^([^\]\s]++)(?P<defined>(?=\]:))?")
_SWAPPED = re.compile(r"(?<=[</t;])(?:source|search)(?=[\s/>&])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class VisibleText:
    """What the page shows: its text, and the addresses of its images."""

    text: str
    images: tuple[str, ...]


def read_page(markdown: str) -> VisibleText:
    """Return what GitHub's page shows of a text."""
    writer = _Writer()
    writer.feed(render_page(markdown))
    writer.close()
    return VisibleText(text=writer.frames[0].text(), images=tuple(writer.images))


def render_page(markdown: str) -> str:
    """Return what GitHub's page shows of a text as HTML, in which every element is closed."""
    import comrak  # noqa: PLC0415 - only runs need it
    import nh3  # noqa: PLC0415

    extensions, rendering = _options()
    names = Counter[str]()

    def make_unique(match: re.Match[str]) -> str:
        if match["defined"] is None:
            return match[0]
        name = match[1].casefold()
        names[name] += 1
        number = "".join(DIGITS[int(digit)] for digit in str(names[name]))
        return f"{match[0]}{APART}{number}" if names[name] > 1 else match[0]

    source = _BOX.sub(r"\1", _DEEP.sub(r"\1", _SMALL_DECLARATION.sub(f"<{APART}", _SWAPPED.sub(_swap, markdown))))
    # How many characters references may add is counted from the length of the text; GitHub's renderer counts from this.
    source = "\n" * 100_000 + _FOOTNOTE.sub(make_unique, source)
    rendered = re.sub(f"[{APART}{DIGITS}]", "", comrak.render_markdown(source, extensions, None, rendering))
    return nh3.clean(
        _SWAPPED.sub(_swap, rendered),
        tags=set(SHOWN),
        clean_content_tags=set(UNSHOWN),
        attributes={name: set(ATTRIBUTES) for name in SHOWN},
        attribute_filter=_keep_attribute,
        link_rel=None,
    )


def _swap(match: re.Match[str]) -> str:
    other = "search" if match[0].lower() == "source" else "source"
    return "".join(new.upper() if old.isupper() else new for old, new in zip(match[0], other, strict=True))


def _keep_attribute(_tag: str, name: str, value: str) -> str | None:
    allowed = ATTRIBUTES.get(name)
    return value if allowed and allowed.fullmatch(value) else None


@cache
def _options() -> tuple[comrak.ExtensionOptions, comrak.RenderOptions]:
    import comrak  # noqa: PLC0415

    extensions, rendering = comrak.ExtensionOptions(), comrak.RenderOptions()
    for name in ("autolink", "footnotes", "strikethrough", "table", "tagfilter"):
        setattr(extensions, name, True)
    rendering.unsafe_ = True  # the cleaner comes after it
    return extensions, rendering


@cache
def known_languages() -> frozenset[str]:
    """Return the words that may name a fence's language. The page does not show them, so any other word is removed."""
    from pygments.lexers import get_all_lexers  # noqa: PLC0415

    lexers = [(aliases, patterns) for _, aliases, patterns, _ in get_all_lexers(plugins=False)]
    endings = (pattern.removeprefix("*.") for _, patterns in lexers for pattern in patterns)
    return _MORE_LANGUAGES.union(endings, *(aliases for aliases, _ in lexers))


@dataclass(kw_only=True)
class _Frame:
    """An open element whose text is written when it ends."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    #: Whether blank lines separate its blocks.
    is_loose: bool = True

    def text(self) -> str:
        blocks = (block.strip(" \t\n") for block in "".join(self.parts).split(BREAK))
        return ("\n\n" if self.is_loose else "\n").join(filter(None, blocks))


#: What is written where an element begins and where it ends; an element that is not named here keeps its tags.
_AROUND = {
    **{tag: (sign, sign) for tag, sign in (("strong", "**"), ("em", "*"), ("del", "~~"))},
    **{f"h{level}": (f"{BREAK}{'#' * level} ", BREAK) for level in range(1, 7)},
    **dict.fromkeys(
        re.findall(r"\w+", "p div section ul ol dl dt dd table blockquote li td th tr h7 h8"), (BREAK, BREAK)
    ),
    **dict.fromkeys(("thead", "tbody", "tfoot", "a", "code"), ("", "")),
}
_CODE = ("pre", "code")
#: Elements whose text is needed as a whole before it can be written.
_WHOLE = ("a", "li", "blockquote", "td", "th", "tr")
#: Elements that are nested deeper add no marks to the lines in them.
_DEEPEST = 20


class _Writer(HTMLParser):
    """Writes clean HTML, in which every element is closed, as Markdown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.frames = [_Frame(tag="")]
        self.images: list[str] = []
        #: What is written where each open element ends; None for one with a frame.
        self._ends: list[str | None] = []
        #: The number of the last item of each open list; None in a list without numbers.
        self._numbers: list[int | None] = []
        self._columns = 0

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        inner = self.frames[-1]
        if tag in ("br", "hr", "img"):
            self._write_void(tag, attributes)
        elif inner.tag in _CODE:
            inner.attributes.update(attributes)
            self._ends.append("")
        elif tag in _CODE or (tag in _WHOLE and len(self.frames) < _DEEPEST):
            self.frames.append(_Frame(tag=tag, attributes=attributes, is_loose=tag != "li"))
            self._ends.append(None)
        else:
            if tag in ("ul", "ol"):
                first = int(re.sub(r"\D", "", attributes.get("start", "")) or 1)
                self._numbers.append(first - 1 if tag == "ol" else None)
            inner.is_loose = inner.is_loose or tag == "p"
            begin, end = _around(tag, attributes)
            self._put(begin)
            self._ends.append(end)

    def handle_endtag(self, tag: str) -> None:
        end = self._ends.pop()
        if end is None:
            self._put(self._close(self.frames.pop()))
            return
        self._put(end)
        if tag in ("ul", "ol") and self.frames[-1].tag not in _CODE:
            self._numbers.pop()
        elif tag == "thead":
            self._put(f"|{' --- |' * self._columns}\n")

    def handle_data(self, data: str) -> None:
        inner = self.frames[-1]
        is_between = inner.tag == "tr" or not inner.parts or inner.parts[-1].endswith(("\n", BREAK))
        if data.strip() or inner.tag in _CODE or not is_between:
            self._put(data)

    def _put(self, text: str) -> None:
        if text:
            self.frames[-1].parts.append(text)

    def _write_void(self, tag: str, attributes: dict[str, str]) -> None:
        source = attributes.get("src", "")
        if tag == "br":
            self._put("\n")
        elif tag == "hr":
            self._put(f"{BREAK}---{BREAK}")
        elif source and not any(_TINY.fullmatch(attributes.get(side, "")) for side in ("width", "height")):
            self.images.append(source)
            self._put(f"![]({_bracket(source)})" if len(attributes) == 1 else _tag(tag, attributes))

    def _close(self, frame: _Frame) -> str:
        """Return the text of an element that ends."""
        text = "".join(frame.parts)
        match frame.tag:
            case "pre":
                written = BREAK + _write_block(text.removesuffix("\n"), frame.attributes.get("class", "")) + BREAK
            case "code":
                written = code_span(text.replace("\n", " "))
            case "a":
                written = _write_link(text, frame.attributes.get("href", ""))
            case "blockquote":
                written = BREAK + "> " + frame.text().replace("\n", "\n> ").replace("\n> \n", "\n>\n") + BREAK
            case "li":
                written = self._write_item(frame)
            case "tr":
                self._columns = len(frame.parts)
                written = f"{text}|\n"
            case _:
                written = "| " + frame.text().replace("\n", " ").replace("|", "\\|") + " "
        return written

    def _write_item(self, frame: _Frame) -> str:
        mark, note = "- ", frame.attributes.get("id")
        if self._numbers and (last := self._numbers[-1]) is not None:
            self._numbers[-1] = number = last + 1
            mark = f"{_write_note(note, str(number))}: " if note else f"{number}. "
        indent = "\n" + " " * (4 if note else len(mark))
        return mark + frame.text().replace("\n", indent).replace(f"{indent}\n", "\n\n") + "\n"


def _around(tag: str, attributes: dict[str, str]) -> tuple[str, str]:
    if tag in _AROUND:
        return _AROUND[tag]
    if attributes.get("class") == "footnote-ref":
        return "", ""
    return _tag(tag, attributes), f"</{tag}>"


def _tag(tag: str, attributes: dict[str, str]) -> str:
    shown = {name: value for name, value in attributes.items() if name not in ("class", "id")}
    return "<" + " ".join((tag, *(f'{name}="{value}"' if value else name for name, value in shown.items()))) + ">"


def _write_block(code: str, class_: str) -> str:
    named = _LANGUAGE.match(class_)
    language = named[1].lower() if named else ""
    if language in DRAWN:
        return DRAWN_NOTE.format(language=language)
    return code_block(code, named[1] if named and language in known_languages() else "")


def _write_link(text: str, address: str) -> str:
    if address.startswith("#fn-") and text.isdigit():
        return _write_note(unquote(address[1:]), text)
    if address.startswith("#fnref-") and text.startswith("↩"):
        return ""
    if not address or unquote(address) in (f"{scheme}{unquote(text)}" for scheme in ("", "http://", "mailto:")):
        return text
    return f"[{text}]({_bracket(address)})"


def _write_note(anchor: str, number: str) -> str:
    """Return a footnote's mark, with its number if its name is long: the page does not show it."""
    name = anchor.removeprefix("fn-")
    return f"[^{name if len(name) <= LONGEST_NOTE else number}]"


def _bracket(address: str) -> str:
    return f"<{address}>" if re.search(r"[()]", address) else address
