"""Code lines and files of each folder: lines that hold a token other than a comment or a docstring.

Run it as `python -m release.size stepflow tests`.
"""

from __future__ import annotations

import sys
import tokenize
from collections import Counter
from pathlib import Path

SPACE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(file: Path) -> int:
    """The file's lines of code."""
    with file.open("rb") as stream:
        tokens = list(tokenize.tokenize(stream.readline))
    lines: set[int] = set()
    begins = True
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type in SPACE:
            begins = begins or token.type == tokenize.NEWLINE
            continue
        is_docstring = begins and token.type == tokenize.STRING and following and following.type == tokenize.NEWLINE
        begins = False
        if not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def main(folders: list[str]) -> None:
    """Print a table for each folder."""
    for folder in folders:
        lines: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for file in sorted(Path(folder).rglob("*.py")):
            lines[str(file.parent)] += code_lines(file)
            files[str(file.parent)] += 1
        for name, count in sorted(lines.items()):
            print(f"{count:6,} lines {files[name]:4} files  {name}")
        print(f"{lines.total():6,} lines {files.total():4} files  {folder} in all\n")


if __name__ == "__main__":
    main(sys.argv[1:])
