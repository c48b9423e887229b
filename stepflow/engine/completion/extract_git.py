"""What git said (prompts.md §10).

Takes: the output of `git status --porcelain` or another git command. Gives: files, branch, remote and merge state.
May touch: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stepflow.engine.completion.extract_output import first_line, lines_of, without_doubles

if TYPE_CHECKING:
    from stepflow.domain.json import JsonValue
    from stepflow.engine.completion.extract_output import Output

STATUS = re.compile(r"(?P<index>[ MTADRCU?!])(?P<tree>[ MTADRCU?!]) (?P<path>\S.*)")
QUOTED = re.compile(r'"(?P<inside>(?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
BRANCH = re.compile(r"branch '(?P<name>[^']+)'")
DETACHED = ("detached head", "not currently on a branch", "head does not point to a branch")


def changed_files(output: Output) -> JsonValue:
    """Tracked files with a change of any kind."""
    return _paths(output, lambda index, _: index not in "?!")


def untracked_files(output: Output) -> JsonValue:
    """Files that git does not know."""
    return _paths(output, lambda index, tree: index + tree == "??")


def staged_files(output: Output) -> JsonValue:
    """Files with a change in the index."""
    return _paths(output, lambda index, _: index not in " ?!")


def unstaged_files(output: Output) -> JsonValue:
    """Files with a change in the working tree."""
    return _paths(output, lambda _, tree: tree not in " ?!")


def branch_name(output: Output) -> JsonValue:
    """The branch a message names, else the one printed, else the repository's own."""
    named = BRANCH.search(output.stderr)
    if named:
        return named["name"]
    printed = first_line(output.stdout)
    return printed if printed and not re.search(r"\s", printed) else output.current_branch()


def remote_status(output: Output) -> JsonValue:
    """What is wrong with the upstream, or the upstream."""
    said = output.stderr.lower()
    if "no upstream" in said:
        return "no upstream"
    if any(sign in said for sign in DETACHED):
        return "detached HEAD"
    printed = first_line(output.stdout) if output.raw.exit_code == 0 else None
    return printed or first_line(output.stderr)


def merge_status(output: Output) -> JsonValue:
    """How many commits are not merged, or git's error."""
    if output.raw.exit_code != 0:
        return first_line(output.stderr)
    commits = sum(1 for line in lines_of(output.stdout) if line.strip())
    return f"{commits} commits not merged" if commits else "merged"


def _paths(output: Output, wanted: Callable[[str, str], bool]) -> JsonValue:
    return without_doubles(path for index, tree, path in _status(output.stdout) if wanted(index, tree))


def _status(stdout: str) -> Iterator[tuple[str, str, str]]:
    for line in stdout.split("\n"):
        found = STATUS.fullmatch(line.rstrip("\r"))
        if found and found["index"] + found["tree"] != "  ":
            yield found["index"], found["tree"], _new_path(found["path"])


def _new_path(text: str) -> str:
    """The path of a status line, or the new one of `old -> new`; either may be quoted."""
    quoted = QUOTED.match(text)
    old, rest = (quoted[0], text[quoted.end() :]) if quoted else _split_plain(text)
    return _unquoted(rest.removeprefix(" -> ") if rest.startswith(" -> ") else old)


def _split_plain(text: str) -> tuple[str, str]:
    old, arrow, new = text.partition(" -> ")
    return old, arrow + new


def _unquoted(path: str) -> str:
    quoted = QUOTED.fullmatch(path)
    if not quoted:
        return path
    return ESCAPE.sub(_escaped, quoted["inside"].encode()).decode(errors="replace")


def _escaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else LETTERS.get(code, code)
