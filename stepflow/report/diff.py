"""Turns git's output on changed files into text that people can read and that always fits on a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stepflow.domain.checkout import FileDiff, StepDiff
from stepflow.domain.secrets import mask_secrets
from stepflow.domain.text import count

#: Limits in characters: a file's diff, and one line of it.
FILE_LIMIT = 10_000
LINE_LIMIT = 500
#: Characters that would break a line, or hide part of it.
BREAKS = re.compile("[\r\v\f\x1b\x1c-\x1e\x85\x9b\u2028\u2029]")
#: Limits of one step: characters of all its diffs, and its files.
STEP_LIMIT = 40_000
MOST_FILES = 50
#: Limit in characters of all diffs on a page.
PAGE_LIMIT = 3_000_000
TOO_MUCH = "left out to keep this page small"
_FILE = re.compile(r"^diff --git ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Diffs:
    """The diffs shown on a page."""

    #: By the number of the iteration.
    steps: Mapping[int, StepDiff] = field(default_factory=dict)
    #: The diff of the whole run.
    run: StepDiff = field(default_factory=StepDiff)
    #: A remark about all of the diffs.
    note: str = ""


def size_of(diff: StepDiff) -> int:
    """Return how many characters a diff takes on a page."""
    return sum(len(file.text) for file in diff.files)


def read_diff(output: bytes, *, is_whole: bool, left_out: Mapping[str, str], redact: Callable[[str], str]) -> StepDiff:
    """Parse the output of `git diff-tree --raw --patch`, remove secrets, and cut it to a readable size. If the output
    was cut, the last file is not shown. Files in `left_out` are listed with the reason."""
    listed, *texts = _FILE.split(output.decode("utf-8", "backslashreplace"))
    texts += [f"a/{path} b/{path}\nnot shown: {why}" for path, why in left_out.items()] if is_whole else []
    total = listed.count("\n:") + listed.startswith(":") + len(left_out)
    files, size = list[FileDiff](), 0
    for text in texts if is_whole else texts[:-1]:
        if len(files) == MOST_FILES or size >= STEP_LIMIT:
            break
        files.append(_file_diff(text.removesuffix("\n"), redact))
        size += len(files[-1].text)
    # A file that became a link has two diffs.
    missing = max(total - len(files), int(len(files) < len(texts)))
    return StepDiff(files=tuple(files), notes=(f"… {count(missing, 'more file')} left out",) if missing else ())


def _file_diff(text: str, redact: Callable[[str], str]) -> FileDiff:
    """Return the diff of one file. The text begins with the file's name twice."""
    names, *lines = text.split("\n")
    path = names[: len(names) // 2].replace("a/", "", 1)
    at = next((number for number, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    binary = "not shown: binary, or larger than 256 KiB"
    head = [binary if line.startswith("Binary files ") else line for line in lines[:at] if line[:6] != "index "]
    body = lines[at:]
    sides = ["\n".join(line[1:] for line in body if line[:1] in signs) for signs in (" -", " +")]
    # A secret may span several lines of one side, so that no single line contains it.
    if any(redact(side).count("\n") < side.count("\n") for side in sides):
        head, body = [*head, "not shown: a secret of the run is in it"], []
    elif all(line.endswith("\r") for line in body if line[:1] in (" ", "+", "-")) and body:
        head, body = ["line endings CRLF", *head], [line.removesuffix("\r") for line in body]
    shown = "\n".join(_bound_lines(redact("\n".join((f"diff --git {names}", *head, *body))).split("\n")))
    return FileDiff(
        path=_spell(redact(path)),
        # Commits with text that looks like a credential are not pushed, so the page does not show the text either.
        text=mask_secrets(shown),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _bound_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield as many lines as may be shown, each cut and without line breaks, then the number of lines left out."""
    size = 0
    for number, line in enumerate(lines):
        shown = _spell(line[:LINE_LIMIT])
        if len(line) > LINE_LIMIT:
            shown += f" [… {len(line) - LINE_LIMIT:,} characters left out …]"
        if size + len(shown) > FILE_LIMIT:
            yield f"… {count(len(lines) - number, 'more line')} of this difference left out"
            return
        size += len(shown) + 1
        yield shown


def _spell(text: str) -> str:
    return BREAKS.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
