"""The virtual environment in the repository whose Python a project's own commands start by its path."""

from __future__ import annotations

import re

_ASSIGNED = re.compile(r"""^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*[:?]*=[ \t]*["']?([^\s"'#]+)""", re.MULTILINE)
#: As Make, a shell, and just write the value of a variable.
_VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)|\{\{\s*(\w+)\s*\}\}")
#: Make and shells know these by themselves.
_HERE = {"CURDIR": ".", "PWD": "."}
#: A value may name another variable.
_DEEPEST = 3
_PROGRAM = re.compile(
    r"(?<![\w/~.$)}-])(?:\./)*(?P<folder>[\w.-]+)/bin/(?P<program>activate|python[\d.]*|pip3?|pytest|mypy|ruff)(?![\w/-])"
)


def split_by_environment(text: str) -> tuple[str, str, str]:
    """Return the folder of the environment from which these lines start programs, the lines that do so, without its
    path, and the other lines. Without an environment the first two are empty."""
    for _ in range(_DEEPEST):
        text = _with_values(text)
    lines = text.split("\n")
    found = next((match for line in lines if (match := _PROGRAM.search(line))), None)
    if found is None:
        return "", "", text
    inside = (_PROGRAM.sub(r"\g<program>", line) for line in lines if _PROGRAM.search(line))
    outside = (line for line in lines if not _PROGRAM.search(line))
    return found["folder"], "\n".join(inside), "\n".join(outside)


def _with_values(text: str) -> str:
    values = {**dict(_ASSIGNED.findall(text)), **_HERE}
    return _VARIABLE.sub(lambda match: values.get(next(filter(None, match.groups())), match[0]), text)
