"""What git says of the files that changed, as text that people can read and that never outgrows a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stepflow.domain.checkout import FileDiff, StepDiff
from stepflow.domain.secrets import mask_secrets
from stepflow.domain.text import count

#: Characters of a file's diff, and of one line in it.
FILE_LIMIT = 10_000
LINE_LIMIT = 500
#: What would end a line, or hide one, in the middle of it.
BREAKS = re.compile("[\r\v\f\x1b\x1c-\x1e\x85\x9b\u2028\u2029]")
#: Characters of all that a step changed, and its files.
STEP_LIMIT = 40_000
MOST_FILES = 50
#: Characters of all diffs of a page.
PAGE_LIMIT = 3_000_000
TOO_MUCH = "left out to keep this page small"
_FILE = re.compile(r"^diff --git ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Diffs:
    """The diffs of a page by the number of the iteration, the one of the whole `run`, and what is to be said of all of
    them."""

    steps: Mapping[int, StepDiff] = field(default_factory=dict)
    run: StepDiff = field(default_factory=StepDiff)
    note: str = ""


def size_of(diff: StepDiff) -> int:
    """Characters that it takes on a page."""
    return sum(len(file.text) for file in diff.files)


def read_diff(output: bytes, *, is_whole: bool, left_out: Mapping[str, str], redact: Callable[[str], str]) -> StepDiff:
    """What `git diff-tree --raw --patch` prints, without secrets and cut to what people read. Of an output that was
    cut, the last file is not shown. Files that are `left_out` of it are named with the reason."""
    listed, *texts = _FILE.split(output.decode("utf-8", "backslashreplace"))
    texts += [f"a/{path} b/{path}\nnot shown: {why}" for path, why in left_out.items()] if is_whole else []
    total = listed.count("\n:") + listed.startswith(":") + len(left_out)
    files, size = list[FileDiff](), 0
    for text in texts if is_whole else texts[:-1]:
        if len(files) == MOST_FILES or size >= STEP_LIMIT:
            break
        files.append(_file_diff(text.removesuffix("\n"), redact))
        size += len(files[-1].text)
    # A file that became a link has two texts.
    missing = max(total - len(files), int(len(files) < len(texts)))
    return StepDiff(files=tuple(files), notes=(f"… {count(missing, 'more file')} left out",) if missing else ())


def _file_diff(text: str, redact: Callable[[str], str]) -> FileDiff:
    """The diff of one file, which begins with its name twice."""
    names, *lines = text.split("\n")
    path = names[: len(names) // 2].replace("a/", "", 1)
    at = next((number for number, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    head = [_head_line(line) for line in lines[:at] if not line.startswith("index ")]
    body = lines[at:]
    if _holds_long_secret(body, redact):
        head, body = [*head, "not shown: a secret of the run is in it"], []
    elif all(line.endswith("\r") for line in body if line[:1] in (" ", "+", "-")) and body:
        head, body = ["line endings CRLF", *head], [line.removesuffix("\r") for line in body]
    shown = "\n".join(_bounded(redact("\n".join((f"diff --git {names}", *head, *body))).split("\n")))
    return FileDiff(
        path=_spelled(redact(path)),
        # What looks like a credential keeps the commits from being pushed, so the page does not show it either.
        text=mask_secrets(shown),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _head_line(line: str) -> str:
    return "not shown: binary, or larger than 256 KiB" if line.startswith("Binary files ") else line


def _holds_long_secret(body: Sequence[str], redact: Callable[[str], str]) -> bool:
    """Whether a secret goes over several lines of one side, so that no line shows it by itself."""
    sides = ("\n".join(line[1:] for line in body if line[:1] in signs) for signs in (" -", " +"))
    return any(redact(side).count("\n") < side.count("\n") for side in sides)


def _bounded(lines: Sequence[str]) -> Iterator[str]:
    """As many lines as may be shown, each cut and on one line, and how many there are more."""
    size = 0
    for number, line in enumerate(lines):
        shown = _spelled(line[:LINE_LIMIT])
        if len(line) > LINE_LIMIT:
            shown += f" [… {len(line) - LINE_LIMIT:,} characters left out …]"
        if size + len(shown) > FILE_LIMIT:
            yield f"… {count(len(lines) - number, 'more line')} of this difference left out"
            return
        size += len(shown) + 1
        yield shown


def _spelled(text: str) -> str:
    return BREAKS.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
