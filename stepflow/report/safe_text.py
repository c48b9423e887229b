"""Makes text of models, tools and people safe for logs, terminals and pages, and for GitHub's Markdown, in which it can
only be plain text; gives lines and results their tone and mark; and renders the templates of this package, with every
value escaped.

The runner obeys `::command::` at the start of a line, after any spaces, and `##[command]` anywhere in a line. Its
comparison depends on the culture and skips invisible characters. Those must be removed first, and a zero-width
character would not protect anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Self

from markupsafe import Markup

from stepflow.domain.effect import EffectStatus
from stepflow.domain.json import JsonValue, compact, escape_unseen
from stepflow.domain.reports.report import CheckState
from stepflow.domain.text import (
    ANSI,
    ELLIPSIS,
    code_block,
    code_span,
    cut,
    excerpt,
    spell_out,
    strip_invisible,
    usd,
)
from stepflow.domain.words import Outcome

if TYPE_CHECKING:
    from jinja2 import Environment, Template

LINE_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_PRINTABLE = re.compile(r"[ -~]*")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: Characters that can begin markup in the middle of a line: emphasis, code, links, images, table cells, strikethrough,
#: formulas.
STRUCTURE = "\\`*_{}[]()|~$!"
_ESCAPES = str.maketrans({**ENTITIES, **{character: f"\\{character}" for character in STRUCTURE}})
#: What can begin markup at the start of a line: headings, list items, rules.
LINE_START = re.compile(r"^(\d+(?=[.)])|(?=[#+=-]))")
#: Only plain addresses become links. A space, a quote or a bracket in an address could end the link's syntax.
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~%/#?=&+@:,-]*)?")


def clean(text: str) -> str:
    """Return the visible part of a text, with `\\n` as the only line break, and spaces instead of tabs."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text)).replace("\t", "    ")
    return strip_invisible(text)


def one_line(text: str, limit: int = 160) -> str:
    """Return the whole text on one line, cut to `limit` characters."""
    return cut(" ".join(clean(_head(text, limit)).split()), limit)


def first_line(text: str, limit: int = 160) -> str:
    """Return the first line that is not blank, followed by `…` if there is more."""
    lines = [line.strip() for line in clean(_head(text, limit)).split("\n") if line.strip()]
    if not lines:
        return ""
    return cut(" ".join(lines[0].split()) + (f" {ELLIPSIS}" if len(lines) > 1 else ""), limit)


def first_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """Return the first lines that are not blank, each cut. A last line `…` means that lines were left out."""
    lines = [line.rstrip() for line in clean(text[: most * limit * 4]).split("\n") if line.strip()]
    left_out = (ELLIPSIS,) if len(lines) > most or len(text) > most * limit * 4 else ()
    return (*(cut(line, limit) for line in lines[:most]), *left_out)


def last_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """Return the last lines that are not blank, each cut. A first line `…` means that lines were left out."""
    lines = [line.rstrip() for line in clean(text[-most * limit * 4 :]).split("\n") if line.strip()]
    left_out = (ELLIPSIS,) if len(lines) > most or len(text) > most * limit * 4 else ()
    return (*left_out, *(cut(line, limit) for line in lines[-most:]))


def telling_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """Return the lines of a command's output that name a failure, and its last lines. Each is cut, and none is
    blank."""
    said = "\n".join(line.rstrip() for line in clean(text).split("\n") if line.strip())
    return tuple(cut(line, limit) for line in excerpt(said, most * limit, lines=most).split("\n") if line)


def clean_line(text: str) -> str:
    """Return one line of exactly the visible characters of a text, which no terminal executes and no runner obeys."""
    if not _PRINTABLE.fullmatch(text):
        text = clean(text).replace("\n", " ")
    text = text.replace("##[", "##\\[")
    return f"│ {text}" if text.lstrip().startswith("::") else text


def seconds_text(seconds: float) -> str:
    """Format a duration as in `0.4 s`, `12 s` and `3.5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _head(text: str, limit: int) -> str:
    """Return enough of a text for `limit` characters. Cleaning takes time per character, and a tool may return a
    million."""
    return text[: limit * 3 + 200]


def aligned(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return one line per row, with two spaces between columns and none at the end."""
    cells = [list(row) for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    return tuple(
        "  ".join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def width(text: str) -> int:
    """Return how many cells a terminal uses for the text. East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    # Imported here because `stepflow validate` does not need it if all text is ASCII.
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def spell_unseen(text: str) -> str:
    """Return a text with its line breaks, without terminal control sequences, and with every invisible character
    spelled out."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text))
    return spell_out(text)


def plain(text: str, limit: int = 200) -> str:
    """Return one line of Markdown that shows exactly these characters, in a paragraph, a list item or a table cell."""
    return LINE_START.sub(r"\1\\", _escape_text(one_line(text, limit)))


def plain_with_code(text: str, limit: int = 200) -> str:
    """Do the same as `plain`, but show text between backticks as a code span."""
    parts = re.split(r"`([^`]+)`", one_line(text, limit))
    parts[::2] = [_escape_text(part) for part in parts[::2]]
    parts[1::2] = [f"`{part}`" for part in parts[1::2]]
    return LINE_START.sub(r"\1\\", "".join(parts))


def _escape_text(text: str) -> str:
    return text.translate(_ESCAPES).replace("://", ":\\//").replace("www.", "www\\.")


def html_text(text: str, limit: int = 60) -> str:
    """Return one line for use inside HTML, where Markdown's own escapes would be visible."""
    return html.escape(one_line(text, limit))


def code(text: str, limit: int = 60) -> str:
    """Return inline code, as HTML because a code span cannot contain every text."""
    shown = plain(text, limit)
    return f"<code>{shown}</code>" if shown else ""


def link(text: str, address: str) -> str:
    """Return a link to an address that the engine knows. An unusual address becomes text."""
    if ADDRESS.fullmatch(address):
        return f"[{plain(text)}]({address})"
    return plain(f"{text} {address}") if address else plain(text)


def fence(text: str, *, lines: int, width: int = 200) -> str:
    """Return the last lines of a text as a code block that the text cannot close."""
    return code_block("\n".join(last_lines(text, lines, width)), "text")


def details(title: str, body: str) -> str:
    """Return a folded section. `title` must already be HTML, with any foreign text in it escaped by `html_text`."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def reveal(text: str, limit: int) -> str:
    """Return a text with its invisible characters spelled out, as in `<U+200B>`, and with its line breaks."""
    return cut(clean(spell_out(text[:limit])), limit * 2)


WIDTH = 400
#: Characters of a text that is shown whole: more than one effect writes, and below what GitHub shows of a job.
WHOLE = 400_000
#: Leaves space for the mark at the left edge.
FULL_WIDTH = WIDTH - 2


def json_line(value: JsonValue) -> str:
    """Return one line of JSON that `clean_line` leaves as it is. What nobody sees is escaped."""
    return escape_unseen(compact(value))


class Tone(StrEnum):
    """What kind of event happened, or what kind of log line this is. Pages and terminals show it as a color."""

    RUN = "run"
    PROMPT = "prompt"
    MODEL = "model"
    TOOL = "tool"
    ROUTE = "route"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"
    # For lines only. A `FOLD` is the title of the `FOLDED` or `ASIDE` lines after it, which belong to the same entry.
    # `ASIDE` lines are details for a closer look.
    STEP = "step"
    STEP_END = "step_end"
    WORDS = "words"
    PROGRESS = "progress"
    FOLD = "fold"
    FOLDED = "folded"
    ASIDE = "aside"


class Line(str):
    """One printable line without its line break, whatever text it is made of. What a command or a job prints takes
    lines and `Command`s, and nothing else."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, tone: Tone, text: str) -> Self:
        """Make the line of a text."""
        made = super().__new__(cls, clean_line(text))
        made.tone = tone
        return made

    def __reduce__(self) -> tuple[type[Line], tuple[Tone, str]]:
        """Return what a copy is made of."""
        return Line, (self.tone, str(self))

    def indented(self) -> Line:
        """Return the line as part of what is above it."""
        return Line(self.tone, f"  {self}")


def text_lines(text: str, tone: Tone = Tone.PLAIN) -> tuple[Line, ...]:
    """Return each line of a text."""
    return tuple(Line(tone, each) for each in clean(text).split("\n"))


class Command(str):
    """A command that the job's runner obeys. It has the form `::name property=value::message`."""

    __slots__ = ()

    def __new__(cls, name: str, *lines: str, **properties: str | None) -> Self:
        """Make a command whose message has these lines, whatever texts they are made of. Properties without a value are
        left out."""
        given = ",".join(f"{each}={_property(value)}" for each, value in properties.items() if value)
        return super().__new__(cls, f"::{name}{' ' if given else ''}{given}::{'%0A'.join(map(_data, lines))}")


def _data(text: str) -> str:
    # The runner prints an annotation's text into the log, where it may parse it for commands again.
    return clean_line(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def line(tone: Tone, text: str) -> Line:
    """Return a line of text that is not too wide for a log."""
    return Line(tone, cut(text, WIDTH))


def quote_lines(texts: Iterable[str]) -> tuple[Line, ...]:
    """Return quoted text as lines."""
    return tuple(line(Tone.WORDS, f"│ {text}") for text in texts)


def whole_lines(text: str) -> Iterator[Line]:
    """Yield the full text. Long lines are broken."""
    for whole in clean(text).split("\n"):
        for start in range(0, max(len(whole), 1), FULL_WIDTH):
            yield line(Tone.WORDS, f"│ {whole[start : start + FULL_WIDTH]}")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How a result looks: `emoji` in Markdown, `text` elsewhere, where an emoji font may be missing."""

    text: str
    emoji: str
    tone: Tone


PASSED = Mark(text="✓", emoji="✅", tone=Tone.GOOD)
FAILED = Mark(text="✗", emoji="❌", tone=Tone.BAD)
PLANNED = Mark(text="–", emoji="▫️", tone=Tone.PLAIN)
MARKS: dict[bool | str, Mark] = {
    **dict.fromkeys((True, CheckState.OK, EffectStatus.APPLIED, Outcome.COMPLETED), PASSED),
    CheckState.WARNING: Mark(text="!", emoji="⚠️", tone=Tone.WARNING),
    CheckState.UNKNOWN: Mark(text="?", emoji="❔", tone=Tone.PLAIN),
    EffectStatus.PLANNED: PLANNED,
    **dict.fromkeys(
        (EffectStatus.SKIPPED, Outcome.SKIPPED, Outcome.NO_CHANGES), Mark(text="–", emoji="⏭️", tone=Tone.PLAIN)
    ),
    Outcome.AWAITING_APPROVAL: Mark(text="…", emoji="⏸️", tone=Tone.PLAIN),
    Outcome.CANCELLED: Mark(text="■", emoji="⏹️", tone=Tone.PLAIN),
}


def mark_of(result: bool | CheckState | EffectStatus | Outcome | None) -> Mark:
    """Return the mark of a result. A result without its own mark counts as failed."""
    return FAILED if result is None else MARKS.get(result, FAILED)


def mark_title(tone: Tone, title: str) -> str:
    """Return the title, after the mark of success or failure if the tone has one."""
    marks = {Tone.GOOD: PASSED, Tone.TOOL: PASSED, Tone.BAD: FAILED}
    return f"{marks[tone].text} {title}" if tone in marks else title


POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


def _finish(make: Callable[..., str]) -> Callable[..., Markup]:
    """Return a filter whose result is finished Markdown, with all text escaped."""
    return lambda *values, **named: Markup(make(*values, **named))  # noqa: S704 - nothing in it is markup any more


def _code_cell(line: str) -> str:
    """Return a line as inline code for a table, where a bar would end the cell; as plain text if it might."""
    return plain(line) if re.search(r"[|\\`]", line) else code_span(line)


#: The filters of Markdown templates. A value without a filter becomes text of the default length.
FILTERS = {
    "code": _finish(code),
    "code_span": _finish(lambda text, limit=200: code_span(one_line(text, limit))),
    "code_cell": _finish(lambda text, limit=200: _code_cell(one_line(text, limit))),
    "dollars": _finish(lambda amount: usd(amount).lstrip("$")),
    "whole": _finish(lambda text: code_block(cut(clean(text), WHOLE), "text")),
    "fence": _finish(lambda text, lines: fence(text, lines=lines)),
    "output": _finish(lambda text, lines: code_block("\n".join(telling_lines(text, lines)), "text")),
    "figure": _finish(format),
    "html": _finish(html_text),
    "link": _finish(lambda address, text: link(text, address)),
    "mark": _finish(lambda result: mark_of(result).emoji),
    "prose": _finish(plain_with_code),
    "seconds": _finish(seconds_text),
    "text": _finish(plain),
}


def render(name: str, /, **values: object) -> str:
    """Render a template. If its name ends with `.md.j2`, the result is Markdown for GitHub, and values stay plain text.
    Any other template makes HTML or SVG."""
    return _template(name).render(values).rstrip("\n")


def render_page(name: str, /, *styles: str, **values: object) -> str:
    """Render a page with these style sheets of this package. Its policy allows them alone: the page fetches nothing,
    because it contains its images, and it sends no form and runs no script."""
    style = "".join(map(read_text, styles))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # The style sheets are our own files.
    return render(name, policy=POLICY.format(style=digest), style=Markup(style), **values)  # noqa: S704


def render_blocks(name: str, /, **values: object) -> list[str]:
    """Return the blocks of a Markdown template that are not empty."""
    template = _template(name)
    context = template.new_context(values)
    blocks = ("".join(block(context)).strip("\n") for block in template.blocks.values())
    return [block for block in blocks if block]


def read_text(name: str) -> str:
    """Return the text of a file in this package."""
    return (files("stepflow.report") / name).read_text(encoding="utf-8")


def _template(name: str) -> Template:
    return _environment(is_markdown=name.endswith(".md.j2")).get_template(name)


@cache
def _environment(*, is_markdown: bool) -> Environment:
    # Imported here because a run needs no template before its first request.
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415

    shown = FILTERS["text"] if is_markdown else spell_unseen
    environment = Environment(
        loader=FunctionLoader(read_text),
        autoescape=True,
        finalize=lambda value: shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    if is_markdown:
        environment.filters.update(FILTERS)
    return environment
