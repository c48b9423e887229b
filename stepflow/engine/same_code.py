"""Tells whether two versions of a file are the same code, with other comments or formatting."""

from __future__ import annotations

import ast
import re

#: The parts of a file in Go between which a comment or a blank can stand. A block comment counts as code. What is not
#: closed is one part up to its end, so that it is read once.
_GO = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<space>\s+)|/\*.*?(?:\*/|\Z)
    |"(?>(?:\\.|[^"\\\n])*)"?|'(?>(?:\\.|[^'\\\n])*)'?|`[^`]*+`?|\w+|.""",
    re.DOTALL | re.VERBOSE,
)
#: Comments that Go's tools obey: `//go:embed`, `//line`, `//export`, and the output of an example.
_GO_DIRECTIVE = re.compile(r"//(?:[a-z0-9]+:[a-z0-9]|line |export |extern )|//(?i:\s*(?:unordered )?output:)")
#: Above `import "C"` a comment is code in C, and around `// +build` blank lines count.
_GO_UNSURE = re.compile(r'["`]C["`]|\+build')


def is_same_code(path: str, text: str, without: str) -> bool:
    """Return whether two versions of a file certainly mean the same. Known for Python and Go."""
    if path.endswith((".py", ".pyi")):
        try:
            return ast.dump(ast.parse(text)) == ast.dump(ast.parse(without))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    if path.endswith(".go") and not _GO_UNSURE.search(text + without):
        return _go_tokens(text) == _go_tokens(without)
    return False


def _go_tokens(text: str) -> list[str]:
    """Return the file's parts without line comments, and with one line end or blank where there were several."""
    tokens = ["\n"]
    for match in _GO.finditer(f"{text}\n"):
        token = match[0]
        if match["space"]:
            token = "\n" if "\n" in token else " "
            if tokens[-1] in {" ", "\n"}:
                token = max(tokens.pop(), token, key="\n".__eq__)
        if not match["comment"] or _GO_DIRECTIVE.match(token):
            tokens.append(token)
    return tokens
