"""The filter for all text from outside that goes to a model: what people do not see, the model does not see either.

People see GitHub's page, a model sees the source. What the page does not show is removed, and people are shown what was
removed; code and every visible word stay. The text as written decides first what is hidden, because that is what GitHub
renders; then invisible characters and entities are cleaned up, until nothing changes any more.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from stepflow.domain.text import DRAWN, RemovalKind, RemovedPiece
from stepflow.engine.prompt.gfm import BlockKind, InlineScan, MarkdownBlock, parse_blocks
from stepflow.engine.prompt.markup import Edit, Hiding, RawScan, Removals, apply_edits, remove_unseen

#: The languages that a fence may name. The page does not show what a fence names, so any other word is removed.
LANGUAGES = frozenset(
    re.findall(
        r"\S+",
        """
        abap abnf actionscript ada adoc apache apacheconf apex apl applescript arduino armasm asciidoc asm asp
        aspnet astro awk bash basic bat batch bazel bibtex bicep bnf brainfuck c c# c++ caddyfile cairo cfg clj
        cljs clojure cmake cmd cobol coffee coffeescript common-lisp conf console cpp crystal cs csh csharp
        cshtml cson csproj css csv cu cuda cue cxx cypher cython d dart delphi dhall diff docker docker-compose
        dockerfile dos dosbatch dot dotenv ebnf ejs elisp elixir elm emacs-lisp env erb erl erlang ex excel exs
        f# f90 fennel fish fix flow forth fortran fs fsharp ftl gams gap gawk gcode gd gdscript gherkin git
        gitattributes gitcommit gitconfig gitignore gleam glsl gn go go-html-template go.mod godot golang gotmpl
        gql gradle graphql graphviz groovy h hack haml handlebars haskell haxe hbs hcl heex help hjson hlsl hpp
        hs html html+erb htmlbars htmldjango http hx idris ini io ipynb ipython irb isabelle j java javascript
        javascriptreact jinja jinja2 jl js json json5 jsonc jsonl jsonnet jsp jsx julia just justfile kconfig
        kotlin kql kt kts kusto latex ldif lean less lhs liquid lisp livescript llvm log logql logs logtalk lua
        luau m4 make makefile markdown math mathematica matlab md mdx mediawiki meson metal mips mjs mk ml mojo
        mongodb move mts mustache mysql nasm ndjson nginx nginxconf nim nimrod nix nohighlight none nroff nu
        numpy nunjucks nushell objc objective-c objective-c++ objectivec objectivec++ objectpascal ocaml octave
        odin opencl openscad org output pascal patch pcre perl perl6 pgsql php phtml pine pkl pl plain plaintext
        plantuml plpgsql plsql po pony posix postcss postgres postgresql postscript pot powershell prisma
        procfile prolog promql properties proto protobuf ps1 psm1 pug puml puppet purescript pwsh py py3 pycon
        pyi pypy pyrex pytb python python-repl python-traceback python2 python3 q qml r racket raku razor rb rd
        re reason reasonml red regex regexp rego rescript rest rkt rmarkdown rmd robot robotframework ron rs rst
        ruby rust sas sass sbt scala scheme scss sed sh sh-session shell shell-session shellscript shellsession
        slim smali smalltalk smarty sml snippet sol solidity sparql sql sqlite squirrel ssh-config ssh_config
        starlark stata stderr stdout stylus suggestion sv svelte svg swift systemd systemverilog tap tcl tcsh
        templ terminal terraform tex text textile textproto tf tfvars thrift tla toml traceback ts tsql tsv tsx
        twig txt typescript typescriptreact typst unity v vala vb vb.net vba vbnet vbs vbscript verilog vhdl vim
        viml vimscript vue vyper wasm wat wgsl wolfram xhtml xml xpath xquery xs xsd xsl xslt yaml
        yaml+jinja yang yml zig zsh
        """,
    )
)


#: GitHub's API refuses a longer body of an issue or comment: "body is too long (maximum is 65536 characters)".
LONGEST_TEXT = 65_536
#: Passes over a text. Ordinary text needs two; one that hides text in more layers than this is dropped as a whole.
MOST_PASSES = 8
CUT_NOTE = "\n\n[The text is longer. Its last {left_out:,} characters are left out.]"
#: Characters reserved for the number in the note.
_FIGURES = 16
#: Characters of the cut text that people are shown.
CUT_SHOWN = 2000
#: Characters of a text that are read; a longer one is read up to the end of a paragraph.
LONGEST_SOURCE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SanitizedText:
    """A text as people see it, the pieces that they do not see, and the addresses of its images."""

    text: str = ""
    removed: tuple[RemovedPiece, ...] = ()
    images: tuple[str, ...] = ()


def sanitize(text: str, where: str, *, limit: int = LONGEST_TEXT) -> SanitizedText:
    """Return the visible part of a Markdown text: at most `limit` characters, with a note on what was cut. `where`
    names the text."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    # Cut the visible text, not the source: a cut there could leave open what hides something.
    looked_at = plain if len(plain) <= LONGEST_SOURCE else _beginning(plain[:LONGEST_SOURCE])
    removals = Removals(where=where, growth=max(limit - len(plain), 0))
    seen = _find_visible(looked_at, removals).strip("\n")
    unread = plain[len(looked_at) :]
    end = _cut_point(seen, limit) if unread or len(seen) > limit else len(seen)
    left_out = seen[end:] + unread
    if left_out:
        removals.note(RemovalKind.CUT, left_out[:CUT_SHOWN])
    note = CUT_NOTE.format(left_out=len(left_out)) if left_out else ""
    return SanitizedText(
        text=seen[:end] + note, removed=tuple(removals.pieces), images=tuple(removals.images if seen else ())
    )


def sanitize_line(text: str, where: str) -> SanitizedText:
    """Return the visible part of a title or a name, as one line. GitHub renders no markup in it but code."""
    removals = Removals(where=where, growth=0)
    seen = remove_unseen(" ".join(text.split()), removals)
    return SanitizedText(text=" ".join(seen.split()), removed=tuple(removals.pieces))


def sanitize_plain(text: str, where: str) -> SanitizedText:
    """Return the visible part of a text in which GitHub renders no markup, such as a diff or a log."""
    removals = Removals(where=where, growth=0)
    seen = remove_unseen(text.replace("\r\n", "\n").replace("\0", "\ufffd"), removals)
    return SanitizedText(text=seen.strip("\n"), removed=tuple(removals.pieces))


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


def _find_visible(text: str, removals: Removals) -> str:
    if not text:
        return ""
    for _ in range(MOST_PASSES):
        # Only the last pass finds the images that are left.
        removals.images.clear()
        seen = remove_unseen(_Page(text, removals).seen(), removals)
        if seen == text:
            return seen
        text = seen
    removals.note(RemovalKind.TOO_DEEP, text)
    return ""


#: Replaces a block that people see as a picture, not as text.
DRAWN_NOTE = "(A drawing in {language} is left out here.)"
#: A fence's language, without what tools that run or number examples add: `rust,no_run`, `js{1,3}`, `{r}`.
_LANGUAGE = re.compile(r"\{?([^\s,:{}]+)")
_SIGNS = re.compile(r"[<&\[]")
_PIPE = re.compile(r"(?<!\\)\|")


class _Page:
    """Finds what people do not see of a text, block by block. Every finding is an edit of the source."""

    def __init__(self, text: str, removals: Removals) -> None:
        self._text, self._lines, self._removals = text, text.split("\n"), removals
        #: Where each line begins, and where one after the last would.
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._parsed = parse_blocks(text)
        self._hiding = Hiding()
        self._used: set[str] = set()
        self._unused = find_unused_footnotes(self._lines, self._parsed.blocks)
        self._edits: list[Edit] = []

    def seen(self) -> str:
        """Return the visible text."""
        for block in self._parsed.blocks:
            self._read_block(block)
        for block in self._parsed.blocks:
            if block.kind is BlockKind.DEFINITION:
                self._note_definition(block)
        return apply_edits(self._text, self._edits)

    def _read_block(self, block: MarkdownBlock) -> None:
        match block.kind:
            case _ if self._hiding.to_the_end:
                self._remove(RemovalKind.ELEMENT, block.start, block.end)
            case _ if not self._unused.isdisjoint(range(block.start, block.end)):
                self._read_footnote(block)
            case BlockKind.HTML | BlockKind.PROSE:
                content = block.content.removesuffix("\n") if block.kind is BlockKind.HTML else block.content
                self._scan(block.kind, content, block.start)
            case BlockKind.ROW:
                self._scan_row(block)
            case BlockKind.OTHER:
                # Rules, underlines, empty lines, and what is nested too deep to be parsed.
                for line in range(block.start, block.end):
                    self._scan(BlockKind.PROSE, self._lines[line], line)
            case BlockKind.FENCE | BlockKind.CODE if self._hiding.hides:
                self._remove(RemovalKind.ELEMENT, block.start, block.end)
            case BlockKind.FENCE:
                self._read_fence(block)
            case BlockKind.DEFINITION:
                self._replace(block.start, block.end)
            case BlockKind.CODE:
                pass

    def _source(self, first: int, end: int) -> str:
        return "\n".join(self._lines[first:end])

    def _replace(self, first: int, end: int, text: str = "") -> None:
        """Replace whole lines."""
        self._edits.append(Edit(start=self._starts[first], end=self._starts[end] - 1, text=text))

    def _remove(self, kind: RemovalKind, first: int, end: int) -> None:
        self._replace(first, end)
        self._removals.note(kind, self._source(first, end))

    def _read_footnote(self, block: MarkdownBlock) -> None:
        """Read line by line a block of which some lines belong to a footnote that is not shown."""
        for line in range(block.start, block.end):
            if line in self._unused:
                self._remove(RemovalKind.FOOTNOTE, line, line + 1)
            else:
                self._scan(BlockKind.PROSE, self._lines[line], line)

    def _note_definition(self, block: MarkdownBlock) -> None:
        """Note what a definition hid. Links now carry their addresses, so an unused definition was hidden text."""
        if block.content not in self._used:
            self._removals.note(RemovalKind.DEFINITION, self._source(block.start, block.end))
        else:
            self._removals.note(RemovalKind.LINK_TITLE, block.mark)

    def _read_fence(self, block: MarkdownBlock) -> None:
        words = block.content.split()
        if words and words[0].lower() in DRAWN:
            source, note = self._source(block.start, block.end), DRAWN_NOTE.format(language=words[0].lower())
            self._removals.note(RemovalKind.DRAWN, source)
            may_grow = self._removals.may_grow(max(len(note) - len(source), 0))
            self._replace(block.start, block.end, note if may_grow else "")
            return
        named = _LANGUAGE.match(words[0]) if words else None
        language = named[1] if named and named[1].lower() in LANGUAGES else ""
        if block.content.strip() != language:
            self._removals.note(RemovalKind.FENCE_WORDS, block.content)
            start = self._text.index(block.mark, self._starts[block.start]) + len(block.mark)
            self._edits.append(Edit(start=start, end=self._starts[block.start + 1] - 1, text=language))

    def _scan(self, kind: BlockKind, content: str, first: int, column: int | None = None) -> None:
        """Scan the content of a paragraph, of raw HTML, or of a part of a line. It begins in line `first`, at
        `column` if that is known."""
        if not content or not (self._hiding.hides or _SIGNS.search(content)):
            return
        if kind is BlockKind.HTML:
            raw = RawScan(content, self._removals, self._hiding)
            edits, self._hiding = raw.run(), raw.hiding
        else:
            inline = InlineScan(content, self._removals, self._hiding)
            edits, self._hiding = inline.run(self._parsed.links), inline.hiding
            self._used |= inline.used
        if edits:
            place = self._locate(content, first, column)
            self._edits += (Edit(start=place(e.start), end=place(e.end - 1) + 1, text=e.text) for e in edits)

    def _locate(self, content: str, first: int, column: int | None) -> Callable[[int], int]:
        """Return a function from positions in a content to those in the source, whose lines have more before it: quote
        marks and indentation. If tabs were expanded there, the words of a line are searched for."""
        parts = content.split("\n")
        begins = [0, *accumulate(len(part) + 1 for part in parts)]
        offsets: list[tuple[int, int]] = []
        for number, (part, line) in enumerate(zip(parts, self._lines[first : first + len(parts)], strict=False)):
            words = part if part in line else part.strip()
            at = max(line.rfind(words), 0) if column is None else column
            offsets.append((self._starts[first + number] + at, len(part) - len(part.lstrip()) if words != part else 0))

        def place(position: int) -> int:
            number = bisect_right(begins, position, hi=len(offsets)) - 1
            start, indent = offsets[number]
            return start + max(position - begins[number] - indent, 0)

        return place

    def _scan_row(self, block: MarkdownBlock) -> None:
        """Scan a row cell by cell: no markup spans two cells, and cells beyond the last column are not shown."""
        line = self._lines[block.start]
        bounds = [0, *(pipe.end() for pipe in _PIPE.finditer(line)), len(line)]
        cells = [line[start:end] for start, end in pairwise(bounds)]
        shown = block.cells + (1 if not cells[0].removesuffix("|").strip(" \t>") else 0)
        surplus = "".join(cells[shown:])
        if surplus.strip(" \t|"):
            self._removals.note(RemovalKind.TABLE_CELL, surplus)
            cells = cells[:shown]
        for cell, start in zip(cells, bounds, strict=False):
            self._scan(BlockKind.PROSE, cell, block.start, start)
        if len(cells) < len(bounds) - 1:
            start, end = self._starts[block.start : block.start + 2]
            self._edits.append(Edit(start=start + bounds[shown], end=end - 1))


_BEGIN = re.compile(r"[ \t>]*+(?>(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)*)\[\^(?P<name>[^\]\s\[]++)\]:")
_MARKS = re.compile(r"[ \t]*(?:>[ \t]?)*")
_INDENT = 4
_ENDS_ONE = (BlockKind.FENCE, BlockKind.HTML, BlockKind.ROW)


def find_unused_footnotes(lines: Sequence[str], blocks: Sequence[MarkdownBlock]) -> frozenset[int]:
    """Return the lines of footnotes that GitHub does not show. One that only another footnote refers to counts as
    unused."""
    kinds = [block.kind for block in blocks for _ in range(block.start, block.end)]
    bodies = dict(_find_bodies(lines, kinds))
    if not bodies:
        return frozenset()
    inside = {line for body in bodies.values() for line in body}
    used = {name for block in blocks for name in _find_references(block, lines, inside)}
    begins = ((_BEGIN.match(lines[at]), body) for at, body in bodies.items())
    return frozenset(line for match, body in begins if match and match["name"] not in used for line in body)


def _find_bodies(lines: Sequence[str], kinds: Sequence[BlockKind]) -> Iterator[tuple[int, range]]:
    """Yield each footnote's first line and all its lines."""
    starts = [
        at
        for at, line in enumerate(lines)
        if kinds[at] in (BlockKind.PROSE, BlockKind.OTHER, BlockKind.DEFINITION) and _BEGIN.match(line)
    ]
    for number, start in enumerate(starts):
        end, limit = start + 1, starts[number + 1] if number + 1 < len(starts) else len(lines)
        while end < limit and _continues(lines, kinds, end):
            end += 1
        while not lines[end - 1].strip(" \t>"):
            end -= 1
        yield start, range(start, end)


def _continues(lines: Sequence[str], kinds: Sequence[BlockKind], at: int) -> bool:
    text = _MARKS.sub("", lines[at], count=1) if ">" in lines[at] else lines[at]
    if not text.strip() or len(text.expandtabs(_INDENT)) - len(text.expandtabs(_INDENT).lstrip()) >= _INDENT:
        return True
    return bool(lines[at - 1].strip(" \t>")) and kinds[at] not in _ENDS_ONE


def _find_references(block: MarkdownBlock, lines: Sequence[str], inside: set[int]) -> Iterator[str]:
    """Yield the footnotes that the visible part of a block refers to; code refers to none."""
    if block.kind not in (BlockKind.PROSE, BlockKind.ROW, BlockKind.OTHER):
        return
    if all(line in inside for line in range(block.start, block.end)):
        return
    shown = "\n".join(lines[line] for line in range(block.start, block.end) if line not in inside)
    scan = InlineScan(shown, Removals(where="", growth=0), Hiding())
    scan.run({})
    yield from scan.notes
