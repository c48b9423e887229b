"""HTML in a text from outside: which tags and attributes GitHub's pages show, and which it takes away.

Takes: one tag. Gives: what of it people see, and the pieces they do not.
May touch: nothing. Raw HTML of a block is read as browsers do, not as Markdown does: GitHub's sanitizer sees that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
#: Elements of which browsers or GitHub show no content, or show something else in its place.
UNSHOWN = frozenset(
    re.findall(r"\w+", "template head noscript object svg math select datalist audio video canvas")
    + list(FILTERED)  # in a spelling that the renderer does not know
)
#: Attributes that lead somewhere or shape what is seen, and the values that can carry nothing else.
_ADDRESS = re.compile(r"[^\s\"'<>]{1,2000}")
_MEASURE = re.compile(r"\d{1,4}(?:px|%)?")
_SIDE = re.compile(r"left|right|center|top|middle|bottom", re.IGNORECASE)
_OPEN = re.compile(r"(?:open)?", re.IGNORECASE)
KEPT = {
    **dict.fromkeys(("href", "src"), _ADDRESS),
    **dict.fromkeys(("width", "height", "colspan", "rowspan", "start", "border"), _MEASURE),
    **dict.fromkeys(("align", "valign"), _SIDE),
    "open": _OPEN,
}

_NAME = r"[A-Za-z][^\s/>]*+"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)"""
#: A value whose quote is never closed swallows what follows, so it makes no tag here.
_ATTRIBUTE = rf"[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:{_VALUE}|(?=>)))?+(?!\s*+=)"
#: A tag as HTML reads it (html.spec.whatwg.org, "Tokenization"). Markdown's own tags are among these.
TAG = re.compile(rf"<(?P<slash>/?)(?P<name>{_NAME})(?P<rest>(?:[\s/]++|{_ATTRIBUTE})*+)>")
#: A tag as Markdown knows it inside a paragraph (CommonMark 0.31 §6.6); anything else there is text.
MARKDOWN_TAG = re.compile(
    r"""<(?:[A-Za-z][A-Za-z0-9-]*+(?:\s++[A-Za-z_:][\w:.-]*+(?:\s*+=\s*+(?:[^\s"'=<>`]++|'[^']*+'|"[^"]*+"))?+)*+\s*+/?
    |/[A-Za-z][A-Za-z0-9-]*+\s*+)>""",
    re.VERBOSE | re.ASCII,
)
_ONE_ATTRIBUTE = re.compile(rf"(?P<name>[^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?P<value>{_VALUE}))?+")


@dataclass(frozen=True, kw_only=True)
class SeenTag:
    """A tag: its name, whether it closes, what stays of it, and the attributes that go. `whole`: the tag goes."""

    name: str
    closes: bool
    text: str
    gone: tuple[str, ...] = ()
    whole: bool = False


def see_tag(found: re.Match[str]) -> SeenTag:
    """What people see of a tag that `TAG` matched; one that has nothing hidden stays as it is written."""
    name, closes = found["name"].lower(), bool(found["slash"])
    if name not in SHOWN:
        return SeenTag(name=name, closes=closes, text="", whole=True)
    attributes = list(_ONE_ATTRIBUTE.finditer(found["rest"]))
    kept = [] if closes else [each for each in attributes if _is_kept(each)]
    gone = tuple(each[0] for each in attributes if each not in kept)
    if not gone:
        return SeenTag(name=name, closes=closes, text=found[0])
    end = " />" if found["rest"].rstrip().endswith("/") else ">"
    words = (f"<{found['slash']}{found['name']}", *(each[0] for each in kept))
    return SeenTag(name=name, closes=closes, text=" ".join(words) + end, gone=gone)


def _is_kept(attribute: re.Match[str]) -> bool:
    pattern = KEPT.get(attribute["name"].lower())
    value = (attribute["value"] or "").strip("\"'")
    return pattern is not None and pattern.fullmatch(value) is not None
