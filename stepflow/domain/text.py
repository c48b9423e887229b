"""Text of people, models and programs: which characters are visible, how to cut, quote and name text, how to excerpt
long output, and how to format figures."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: Sequences that a terminal executes instead of displaying. An unterminated title or link removes the rest of its line,
#: but no more: an error may follow.
ANSI = re.compile(
    r"""(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?          # control sequences such as colors
      | \x1b[\]PX^_][^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?  # titles, links and other strings up to their end
      | \x1b[ -/]*[0-~]?                           # everything else that begins with escape
    """,
    re.VERBOSE,
)
#: Letters and marks that fonts do not draw, although Unicode does not class them as format characters: the rest of
#: Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the Braille blank.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
INVISIBLE_CLASSES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
#: Ranges where newer versions of Unicode add characters that this Python does not know: pictures and Chinese
#: characters.
_NEWER = re.compile("[\U0001f000-\U0001faff\U00020000-\U0003fffd]")
#: Scripts in which a joiner between two letters changes their shape, and the format characters in their ranges.
_JOINING = (
    r"\u0590-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ua840-\ua8ff\ua960-\ua9ff\uaa00-\uaadf\uabc0-\uabff"
    r"\ufb1d-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
_FORMATS = r"\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u17b4\u17b5\u180b-\u180f\U000110bd\U000110cd"
_LETTER = rf"(?![{_FORMATS}])[{_JOINING}]"
_AFTER_LETTER = rf"(?<=[{_JOINING}])(?<![{_FORMATS}])"
#: Symbols that are drawn as pictures.
_EMOJI = (
    r"[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935\u2b05-\u2b55"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
#: Format characters that are drawn around or over what follows (Prepended_Concatenation_Mark in PropList.txt).
_DRAWN = r"[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]"
#: Invisible characters with a visible effect on their neighbors: one joiner after a letter or between pictures, one
#: variation selector after a letter or symbol, and the three flags that are spelled in the tag block.
_SHAPING = re.compile(
    rf"{_AFTER_LETTER}(?:[\u200c\u200d](?={_LETTER})|\u200d(?![\u200c\u200d]))"
    rf"|{_DRAWN}(?=[0-9]|{_LETTER})"
    r"|(?<=[\u1820-\u18aa])[\u180b-\u180f](?![\u180b-\u180f])"
    rf"|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})"
    rf"|(?<={_EMOJI})[\ufe0e\ufe0f](?![\ufe00-\ufe0f])"
    r"|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    r"|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_SHAPERS = re.compile(rf"{_DRAWN}|[\u180b-\u180f\u200c\u200d\ufe0e\ufe0f\U000e007f]")
_SEEN = re.compile(r"[ -~\n\t]*")
#: Offset of the tag block from the ASCII characters that its characters represent.
TAGS = 0xE0000
ELLIPSIS = "…"
#: The most files, branches or similar items that a message names.
MOST_NAMED = 20
#: Languages of code fences that GitHub renders as a drawing instead of text.
DRAWN = frozenset({"mermaid", "geojson", "topojson", "stl"})
#: Failure words of test runners, compilers, linters, package managers and shells. In a path or an identifier, such as
#: `errors.py` or `test_error`, they do not count.
_FAILURE = re.compile(
    r"(?<![\w./-])(?:fail(?:ed|s|ing)?|failures?|err|errors?|fatal|panic(?:ked)?|assert(?:ion)?|not ok|traceback"
    r"|exceptions?|unhandled|undefined|cannot|could not|denied|missing|not found|no such|no rule|killed|aborted"
    r"|core dumped|segmentation fault|data race|timed? ?out|timeout|overflowed)(?![\w/-]|\.\w)|\bFailure/Error:"
    r"|(?-i:[a-z](?:Error|Exception|Failure|Failed|Rejection)|\bERR_[A-Z_]+)\b|\berror\[|\[E\]$|^E:? "
    r"|^\s*[✕✖✗✘⨯×●❌] ",
    re.IGNORECASE,
)
#: Lines about a test that starts or passed, whatever its name; and lines of make, which only repeat that a command
#: failed.
_NO_FAILURE = re.compile(
    r"^\s*[✓√✔✅] |(?-i:\bPASS(?:ED)?\b)|^\s*(?:ok|passed)\b|\.\.\. ok$|' passed \(|^=== (?:RUN|PAUSE|CONT|NAME)\b"
    r"|^\[ +(?:RUN|OK) +\]|^\S*make(?:\[\d+\])?: \*\*\* \[.*\] Error",
    re.IGNORECASE,
)
_NONE_FAILED = re.compile(
    r"\b(?:0|no|without(?: any)?) (?:failed|failing|failures?|errors?|exceptions?)\b"
    r"|\b(?:fail(?:ed|s|ing)?|failures?|errors?)\b[:=]? *0\b",
    re.IGNORECASE,
)
#: How a line with rules before and after a title begins and ends.
_RULES = tuple(3 * rule for rule in "=_-*#")
#: How many lines of context to keep before and after a line that names a failure.
_BEFORE, _AFTER = 2, 6
_GAP = "…[{lines} left out]…"
_CUT = "…[{count} characters cut]…"
#: Upper bound for the length of either mark.
_MARK = 36
#: A line gets at most 1/_PARTS of the space, unless there are only a few lines.
_PARTS = 10
#: US dollars. Smaller amounts would be written with zeros only.
SMALLEST = 0.0001


def is_invisible(character: str) -> bool:
    """Return True for invisible characters, including line breaks and tabs. Spaces with a width are visible."""
    # The two blocks of variation selectors are marks, not format characters.
    if "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef" or character in BLANK:
        return True
    category = unicodedata.category(character)
    return category in INVISIBLE_CLASSES and not (category == "Cn" and _NEWER.match(character))


def find_invisible(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each run of invisible characters, except line breaks, tabs, and characters that shape
    visible ones."""
    if _SEEN.fullmatch(text):
        return []
    # Hyphens, as many, for the invisible characters that shape visible ones.
    masked = _SHAPING.sub(lambda match: "-" * len(match[0]), text) if _SHAPERS.search(text) else text
    unseen = "".join(each for each in set(masked) if each not in "\n\t" and is_invisible(each))
    return [match.span() for match in re.finditer(f"[{re.escape(unseen)}]+", masked)] if unseen else []


def replace_invisible(text: str, replace: Callable[[str], str]) -> str:
    """Replace each run of invisible characters."""
    parts: list[str] = []
    at = 0
    for start, end in find_invisible(text):
        parts += [text[at:start], replace(text[start:end])]
        at = end
    return "".join((*parts, text[at:]))


def strip_invisible(text: str) -> str:
    """Remove invisible characters, except line breaks, tabs, and characters that shape visible ones."""
    return replace_invisible(text, lambda _run: "")


def strip_unseen(text: str) -> str:
    """Remove invisible characters, as `strip_invisible` does, and terminal sequences."""
    return strip_invisible(ANSI.sub("", text))


def spell_out(text: str) -> str:
    """Write the invisible characters of the text as `<U+200B>`; keep line breaks and tabs."""
    return replace_invisible(text, lambda run: "".join(f"<U+{ord(each):04X}>" for each in run))


def read_tags(text: str) -> str:
    """Return the ASCII text that is spelled in tag characters; empty if there are none."""
    return "".join(chr(ord(c) - TAGS) for c in text if 0x20 <= ord(c) - TAGS <= 0x7E)


class RemovalKind(StrEnum):
    """Why a piece of text is not visible on GitHub's page."""

    HIDDEN = "hidden text"
    CHARACTERS = "invisible characters"
    CUT = "text beyond the limit"


@dataclass(frozen=True, kw_only=True)
class RemovedPiece:
    """A removed piece of text. `where` names the text it came from; in `text`, invisible characters are spelled out."""

    kind: RemovalKind
    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class TextRemoved:
    """Text that people cannot see was withheld from the model. `pieces` are the first of `count`, truncated."""

    count: int = 0
    pieces: tuple[RemovedPiece, ...] = ()
    event: Literal["text_removed"] = "text_removed"


def count_kinds(pieces: tuple[RemovedPiece, ...]) -> str:
    """Describe the kinds of the pieces: `HTML comment ×2, image text`."""
    counts = Counter(piece.kind for piece in pieces)
    return ", ".join(f"{kind} ×{number}" if number > 1 else kind for kind, number in counts.items())


def cut(text: str, limit: int) -> str:
    """Return the text, truncated with `…` if it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1] + ELLIPSIS


def name_some(names: Iterable[str]) -> str:
    """List the first of these names on one line, without duplicates, and how many more there are."""
    once = list(dict.fromkeys(name.strip() for name in names))
    return ", ".join(once[:MOST_NAMED]) + (f" and {len(once) - MOST_NAMED} more" if len(once) > MOST_NAMED else "")


def code_span(line: str) -> str:
    """Return a line as Markdown inline code; it may contain backticks."""
    ticks = "`" * (_longest_ticks(line) + 1)
    blank = " " if "`" in line else ""
    return f"{ticks}{blank}{line}{blank}{ticks}"


def code_block(text: str, language: str = "") -> str:
    """Return a text as a Markdown code block that the text cannot close."""
    fence = fence_of(text)
    return f"{fence}{language}\n{text}\n{fence}"


def fence_of(text: str) -> str:
    """Return a fence for a Markdown code block that the text cannot close."""
    return "`" * max(3, _longest_ticks(text) + 1)


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def readable_output(text: str) -> str:
    """Return the output without colors, and with only the final state of each progress bar."""
    text = ANSI.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def names_failure(line: str) -> bool:
    """Return whether a line of output names a failure."""
    return not _NO_FAILURE.search(line) and bool(_FAILURE.search(_NONE_FAILED.sub("", line)))


def excerpt(text: str, characters: int, *, lines: int | None = None) -> str:
    """Return the output, shortened to about this many characters and lines, in its original order. Half of the space
    goes to the end; lines that name a failure come next. Marks show what was left out."""
    rows = text.strip("\n").split("\n")
    most = len(rows) if lines is None else lines
    if len(text) <= characters and len(rows) <= most:
        return text
    longest = characters // min(len(rows), most, _PARTS) - _MARK - 1
    rows = [_cut_middle(row, longest) for row in rows]
    shown, next_row = [], 0
    for at in (*sorted(_choose(rows, characters, most)), len(rows)):
        if at > next_row:
            shown.append(_GAP.format(lines=count(at - next_row, "line")))
        shown += rows[at : at + 1]
        next_row = at + 1
    return "\n".join(shown)


def telling_line(text: str, longest: int) -> str:
    """Return the first line that names a failure, or else the last line; empty if there are no lines. A heading such as
    `=== FAILURES ===` counts only if nothing else does."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    failures = sorted(filter(names_failure, rows), key=_is_heading)
    return (*failures, *rows[-1:], "")[0][:longest]


def _is_heading(row: str) -> bool:
    return row.startswith(_RULES) and row.endswith(_RULES)


def _choose(rows: Sequence[str], characters: int, most: int) -> set[int]:
    """Return the indexes of the rows that fit."""
    chosen: set[int] = set()
    spent = 0

    def choose(wanted: Iterable[int], share: float = 1.0) -> None:
        """Add the wanted rows until one does not fit into this share of the space."""
        nonlocal spent
        for at in wanted:
            if at in chosen:
                continue
            cost = len(rows[at]) + 1 + (0 if {at - 1, at + 1} & chosen else _MARK)
            if spent + cost > characters * share or len(chosen) + 1 > most * share:
                return
            chosen.add(at)
            spent += cost

    end = range(len(rows) - 1, -1, -1)
    failures = [at for at, row in enumerate(rows) if names_failure(row)]
    choose(end, 0.5)
    choose(failures)
    for at in filter(chosen.__contains__, failures):
        choose(range(at + 1, min(at + 1 + _AFTER, len(rows))))
        choose(range(at - 1, max(at - 1 - _BEFORE, -1), -1))
    choose(end)
    return chosen


def _cut_middle(row: str, longest: int) -> str:
    """Return the row, without its middle if it is too long."""
    if len(row) <= longest:
        return row
    half = max((longest - _MARK) // 2, 1)
    return f"{row[:half]}{_CUT.format(count=len(row) - 2 * half)}{row[-half:]}"


def usd(amount: float | None) -> str:
    """Format an amount: `$1.24`, four digits below a dollar, `unknown` for None."""
    if amount is None:
        return "unknown"
    if amount < 0:
        return f"-{usd(-amount)}"
    if 0 < amount < SMALLEST:
        return f"less than ${SMALLEST}"
    return f"${amount:,.2f}" if amount == 0 or round(amount, 4) >= 1 else f"${amount:.4f}"


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum in US dollars; None if one of the prices is unknown."""
    known = tuple(costs)
    return None if None in known else sum(cost or 0.0 for cost in known)


def minutes(number: float) -> str:
    """Format minutes with the precision that people use for limits: `50`, `2.5`, `0.02`."""
    if number >= 10:
        return f"{number:.0f}"
    return f"{number:.1f}".removesuffix(".0") if number >= 1 or not number else f"{number:.1g}"


def count(number: int, noun: str) -> str:
    """Format a count: `1 step`, `2 steps`, `1,234 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def mebibytes(size: int) -> str:
    """Format a size in bytes: `12 MiB`, `1,234 MiB`; at least `1 MiB`."""
    return f"{max(1, round(size / 1024**2)):,} MiB"


def changed_lines(added: int, removed: int) -> str:
    """Format line counts: `+12 −3`."""
    return f"+{added:,} −{removed:,}"


@dataclass(frozen=True, kw_only=True)
class Spent:
    """A sum in US dollars. `at_least`: some turns had no known price and are not included."""

    usd: float = 0.0
    at_least: bool = False

    def __add__(self, other: Spent) -> Spent:
        return Spent(usd=self.usd + other.usd, at_least=self.at_least or other.at_least)

    def or_more(self, known: Spent) -> Spent:
        """Return the larger sum: a known expense counts even if this sum has lost it."""
        return Spent(usd=max(self.usd, known.usd), at_least=self.at_least or known.at_least)

    def __str__(self) -> str:
        return f"{'at least ' if self.at_least else ''}{usd(self.usd)}"


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each half of a surrogate pair, which no file and no request can hold."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
