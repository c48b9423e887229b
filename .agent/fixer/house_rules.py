"""The house rules that no linter knows, as a validator of the agent `fixer`; needs nothing but Python.

It runs in the repository root, reads the package's Python files that git tracks or would add, and prints one
`file:line:column: CODE text` per broken rule; with any, it exits with 1.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "stepflow/*.py"
LONGEST_MODULE = 500
LONGEST_FUNCTION = 60


def main() -> int:
    """Print every broken rule; the exit code says whether there is one."""
    broken = [line for file in _files() for line in _broken_rules(file)]
    print("\n".join(broken) or "Every file keeps the house rules.")
    return 1 if broken else 0


def _files() -> tuple[Path, ...]:
    """What is committed and what could be, so that a file cannot escape by not being added yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", PACKAGE]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")  # noqa: S603
    return tuple(path for path in map(Path, sorted(set(filter(None, names)))) if path.is_file())


def _broken_rules(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text)
    except SyntaxError as exc:
        yield f"{file}:{exc.lineno or 1}:{exc.offset or 1}: H001 this is not Python: {exc.msg}"
        return
    yield from (f"{file}:{line}:1: {said}" for line, said in (*_opening(tree), *_sizes(text, tree)))


def _opening(tree: ast.Module) -> Iterator[tuple[int, str]]:
    if not ast.get_docstring(tree):
        yield 1, "H002 the module has no docstring: say in one or two sentences what it is for"


def _sizes(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    lines = len(text.splitlines())
    if lines > LONGEST_MODULE:
        yield 1, f"H003 the module has {lines} lines, more than {LONGEST_MODULE}: split it by what it answers"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = _body_length(node)
            if length > LONGEST_FUNCTION:
                yield node.lineno, f"H004 the body of {node.name} has {length} lines, more than {LONGEST_FUNCTION}"


def _body_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring: a long signature is no long function."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


if __name__ == "__main__":
    sys.exit(main())
