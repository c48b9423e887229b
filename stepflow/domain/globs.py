"""Globs as people write them, as regular expressions for whole paths."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|[{},]|.", re.DOTALL)
_PARTS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_BRACES = {"{": "(?:", "}": ")"}
_SPECIAL_IN_CLASS = re.compile(r"[\\^\[\]&~|]")
_WILD = re.compile(r"[*?\[]")


def glob_expression(pattern: str, *, braces: bool = False) -> str:
    """`*`, `?`, `[…]`, and `**` over folders, as in a shell; with `braces` also `{a,b}`. Raises `ValueError` for braces
    that do not match."""
    parts: list[str] = []
    depth = 0
    for piece in _PIECE.findall(pattern):
        if braces:
            depth += {"{": 1, "}": -1}.get(piece, 0)
        if braces and piece in _BRACES:
            parts.append(_BRACES[piece])
        elif piece == "," and depth > 0:
            parts.append("|")
        else:
            parts.append(_part(piece))
    if depth != 0:
        raise ValueError("its braces do not match")
    return "".join(parts)


def _part(piece: str) -> str:
    if piece in _PARTS:
        return _PARTS[piece]
    if len(piece) == 1:
        return re.escape(piece)
    negated = piece[1] == "!"
    members = _SPECIAL_IN_CLASS.sub(r"\\\g<0>", piece[2 if negated else 1 : -1])
    return f"[^/{members}]" if negated else f"[{members}]"


def path_expression(pattern: str) -> str:
    """A glob as in `.gitignore`: without a slash before its end it fits a name at any depth, else a path from the root;
    what fits a folder fits everything in it."""
    return f"{glob_expression(_from_root(pattern).removesuffix('/**'))}(?:/.*)?"


def folders_before(pattern: str) -> list[str]:
    """The names, one below the other, that lead to everything that such a glob can fit."""
    names = _from_root(pattern).split("/")
    wild = next((number for number, name in enumerate(names) if _WILD.search(name)), len(names))
    return names[:wild]


def _from_root(pattern: str) -> str:
    plain = pattern.removesuffix("/")
    return plain.removeprefix("./").removeprefix("/") if "/" in plain else f"**/{plain}"
