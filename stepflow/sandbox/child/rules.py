"""Writes the ignore and attribute files of many folders as one file for the whole tree.

Takes: the bytes of the files by their folder, "" for the root. Gives: one file that says the same.
May touch: nothing. So git can be asked by the rules of one moment whatever lies in the folders by then
(gitignore(5) and gitattributes(5) for the forms; security.md case 14).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Everything that lets a changed file look unchanged to git, back to nothing; and a macro that could be given another
#: meaning, back to its own.
_NO_ATTRIBUTES = b"""[attr]binary -diff -merge -text
* !text !eol !crlf !filter !ident !working-tree-encoding
"""
_BOM = b"\xef\xbb\xbf"
_SPECIAL = re.compile(rb"[\\*?\[]")
_BLANKS = b" \t\r\n\f\v"
_TOKEN = re.compile(rb'"(?P<quoted>(?:[^"\\]|\\.)*)"(?P<rest>[ \t].*)?|(?P<plain>[^ \t\r]+)(?P<more>.*)', re.DOTALL)


def ignore_rules(files: Mapping[str, bytes]) -> bytes:
    """The patterns of `.gitignore` files, those of deeper folders last, because the last one that fits decides."""
    return b"".join(line + b"\n" for folder in _outer_first(files) for line in _ignore_lines(folder, files[folder]))


def attribute_rules(files: Mapping[str, bytes]) -> bytes:
    """The lines of `.gitattributes` files, such that no other file has a say in how content is compared."""
    lines = (line + b"\n" for folder in _outer_first(files) for line in _attribute_lines(folder, files[folder]))
    return _NO_ATTRIBUTES + b"".join(lines)


def _outer_first(files: Mapping[str, bytes]) -> list[str]:
    """A folder with a line break in its name cannot be written into a pattern; without it nothing more is hidden."""
    return sorted((folder for folder in files if "\n" not in folder), key=lambda folder: (folder.count("/"), folder))


def _ignore_lines(folder: str, data: bytes) -> Iterator[bytes]:
    for raw in data.removeprefix(_BOM).split(b"\n"):
        line = raw.removesuffix(b"\r")
        if not line or line.startswith(b"#"):
            continue
        negated = line.startswith(b"!")
        if pattern := _below(folder, line[negated:]):
            yield b"!" * negated + pattern


def _attribute_lines(folder: str, data: bytes) -> Iterator[bytes]:
    for raw in data.removeprefix(_BOM).split(b"\n"):
        line = raw.lstrip(_BLANKS)
        if not line or line.startswith((b"#", b"!")):
            continue
        if line.startswith(b"[attr]"):
            # Only the root's file may define macros.
            yield from () if folder else (line,)
            continue
        if found := _TOKEN.fullmatch(line):
            yield _moved_attributes(folder, found)


def _moved_attributes(folder: str, found: re.Match[bytes]) -> bytes:
    if not folder:
        return found[0]
    inside = found["quoted"]
    if inside is None:
        inside = found["plain"].replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    where = _escaped(folder).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"' + _joined(where, inside) + b'"' + (found["rest"] or found["more"] or b"")


def _below(folder: str, pattern: bytes) -> bytes:
    """The pattern as the root's file would write it; empty when it fits nothing."""
    if not pattern.strip(b" ").removesuffix(b"/"):
        return b""
    return _joined(_escaped(folder), pattern) if folder else pattern


def _joined(where: bytes, pattern: bytes) -> bytes:
    """Without a slash, but for one at its end, a pattern fits a name at any depth below its folder."""
    if b"/" in pattern.rstrip(b" ").removesuffix(b"/"):
        return b"/" + where + b"/" + pattern.removeprefix(b"/")
    return b"/" + where + b"/**/" + pattern


def _escaped(folder: str) -> bytes:
    return _SPECIAL.sub(rb"\\\g<0>", folder.encode("utf-8", "surrogateescape"))
