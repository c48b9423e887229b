"""What a step changed, as unified diffs: right, readable, harmless, and never without end."""

from __future__ import annotations

import base64
import random
import re
import time
from collections.abc import Sequence

import pytest

from stepflow.domain.checkout import LINK, PLAIN, PROGRAM, FileChange, FileSide
from stepflow.domain.secrets import Redactor
from stepflow.report.diff import (
    BYTES_LIMIT,
    FILE_LIMIT,
    LINE_LIMIT,
    MOST_FILES,
    STEP_LIMIT,
    Budget,
    FileDiff,
    StepDiff,
    file_diff,
    hunk_lines,
    operations,
    step_diff,
)
from stepflow.report.safe_text import visible

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def side(content: str | bytes | None, mode: int = PLAIN) -> FileSide | None:
    if content is None:
        return None
    data = content.encode() if isinstance(content, str) else content
    return FileSide(mode=mode, size=len(data), content=data)


def changed(
    before: str | bytes | FileSide | None, after: str | bytes | FileSide | None, path: str = "a.txt"
) -> FileChange:
    sides = [one if isinstance(one, FileSide) else side(one) for one in (before, after)]
    return FileChange(path=path, before=sides[0], after=sides[1])


def diff(before: str | bytes | FileSide | None, after: str | bytes | FileSide | None, path: str = "a.txt") -> FileDiff:
    made = file_diff(changed(before, after, path), str)
    assert made is not None
    return made


def diff_lines(before: str | bytes | FileSide | None, after: str | bytes | FileSide | None) -> list[str]:
    return diff(before, after).text.split("\n")


def applied(lines: Sequence[str], before: Sequence[str]) -> list[str]:
    """What the hunks make of the lines, by what the format says of them."""
    made: list[str] = []
    at = 0
    for line in lines:
        if hunk := HUNK.fullmatch(line):
            begin = int(hunk[1]) - (hunk[2] != "0")
            made += before[at:begin]
            at = begin
        elif line[0] in " -":
            assert before[at].rstrip("\n") == line[1:]
            at += 1
            made += [line[1:]] * (line[0] == " ")
        elif line[0] == "+":
            made.append(line[1:])
    return [line.rstrip("\n") for line in (*made, *before[at:])]


def test_the_hunks_make_the_one_text_of_the_other():
    choose = random.Random(7)
    for _ in range(300):
        before = [f"{choose.randrange(4)}\n" for _ in range(choose.randrange(30))]
        after = [line for line in before if choose.random() > 0.2]
        for _ in range(choose.randrange(4)):
            after.insert(choose.randrange(len(after) + 1), f"{choose.randrange(6)}\n")
        lines = list(hunk_lines(before, after, operations(before, after)[0]))
        assert applied(lines, before) == [line.rstrip("\n") for line in after]
        assert bool(lines) == (before != after)
        if lines:
            assert max(len(run) for run in re.findall(" *", "".join(line[0] for line in lines))) <= 6


def test_a_changed_line_is_shown_with_three_lines_around_it():
    before = "".join(f"line {number}\n" for number in range(1, 21))
    made = diff(before, before.replace("line 10\n", "line ten\n").replace("line 20\n", "line 20"))
    assert (made.added, made.removed) == (2, 2)
    assert made.text.split("\n") == [
        "diff --git a/a.txt b/a.txt",
        "--- a/a.txt",
        "+++ b/a.txt",
        *("@@ -7,7 +7,7 @@", " line 7", " line 8", " line 9", "-line 10", "+line ten"),
        *(" line 11", " line 12", " line 13"),
        *("@@ -17,4 +17,4 @@", " line 17", " line 18", " line 19", "-line 20", "+line 20"),
        "\\ No newline at end of file",
    ]


CASES = {
    "a new file": (None, "one\n", ["new file", "--- /dev/null", "+++ b/a.txt", "@@ -0,0 +1 @@", "+one"]),
    "a new program": (None, side("", PROGRAM), ["new file mode 100755"]),
    "a file that is gone": (
        "x\ny\n",
        None,
        ["deleted file", "--- a/a.txt", "+++ /dev/null", "@@ -1,2 +0,0 @@", "-x", "-y"],
    ),
    "a mode alone": (side("x", PLAIN), side("x", PROGRAM), ["old mode 100644", "new mode 100755"]),
    "a link": (None, side("../b", LINK), ["new file mode 120000", "--- /dev/null", "+++ b/a.txt", "@@ -0,0 +1 @@"]),
    "a binary file": (b"a\0b", b"\0" * 5000, ["binary file changed (3 → 5,000 bytes)"]),
    "a new binary file": (None, b"a\0b", ["new file", "binary file added (3 bytes)"]),
    "a binary file of which the size is known": (
        FileSide(mode=PLAIN, size=9, why="binary"),
        b"now text",
        ["binary file changed (9 → 8 bytes)"],
    ),
    "a large file": (
        FileSide(mode=PLAIN, size=300_000, why="too large to be shown"),
        "x",
        ["changed (300,000 → 1 bytes), not shown: too large to be shown"],
    ),
    "a file nobody can read": ("x", FileSide(why="Permission denied"), ["changed, not shown: Permission denied"]),
    "line ends that stay CRLF": ("a\r\nb\r\n", "a\r\nc\r\n", ["line endings CRLF"]),
    "line ends alone": ("a\nb\n", "a\r\nb\r\n", ["line endings LF → CRLF"]),
    "mixed line ends": ("a\nb\n", "a\r\nb\n", ["line endings LF → mixed", "--- a/a.txt", "+++ b/a.txt"]),
    "other signs than UTF-8's": (b"caf\xe9\n", b"caf\xc3\xa9\n", ["--- a/a.txt", "+++ b/a.txt", "@@ -1 +1 @@"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_changed_is_told_in_the_first_lines(name):
    before, after, lines = CASES[name]
    shown = diff_lines(before, after)
    assert shown[0] == "diff --git a/a.txt b/a.txt"
    assert shown[1 : 1 + len(lines)] == lines


def test_bytes_that_are_no_text_and_carriage_returns_are_spelled_out():
    assert diff_lines(b"caf\xe9\n", b"caf\xc3\xa9\n")[-2:] == ["-caf\\xe9", "+café"]
    assert diff_lines("a\nb\n", "a\r\nb\n")[-3:] == ["-a", "+a<U+000D>", " b"]


def test_nothing_that_git_knows_of_is_no_change():
    assert file_diff(changed("x", "x"), str) is None


@pytest.mark.parametrize("sign", ["\r", "\v", "\f", "\x1b[2K", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_sign_in_a_line_makes_another_line_of_it_or_hides_it(sign):
    made = diff("x\n", f"x{sign}+forged\n", path=f"a{sign}\n+++ b/forged")
    shown = visible(made.text).split("\n")
    assert len(shown) == 6
    assert not any(line.startswith(("+forged", "+++ b/forged")) for line in shown)
    assert f"<U+{ord(sign[0]):04X}>" in shown[-1]
    assert f"<U+{ord(sign[0]):04X}>" in shown[0]


def test_a_secret_is_masked_on_both_sides_in_every_form():
    secret = "ghs_0123456789secret"
    wrapped = base64.encodebytes(secret.encode() * 4).decode()
    redact = Redactor([secret])
    made = file_diff(changed(f"token={secret}\n{wrapped}", f"other={secret}\n{wrapped}more\n", f"{secret}.txt"), redact)
    assert made
    assert "-token=***" in made.text
    assert "+other=***" in made.text
    assert secret not in made.text + made.path
    assert base64.b64encode(secret.encode()).decode()[:10] not in made.text
    masked = file_diff(changed(secret, secret.encode().hex()), redact)
    assert masked
    assert masked.text.endswith("\nonly what is masked here changed")


def test_a_long_diff_and_a_long_line_are_cut_with_a_word():
    made = diff(None, "".join(f"line {number}\n" for number in range(5000)) + "x" * 100_000)
    assert made.added == 5001
    assert len(made.text) < FILE_LIMIT + 200
    assert re.search(r"\n… \d,\d\d\d more lines of this difference left out$", made.text)
    assert diff_lines(None, "y" * 100_000)[-2] == f"+{'y' * (LINE_LIMIT - 1)} [… 99,501 characters left out …]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([f"{number % 400}" for number in range(20_000)], [f"{number % 399}" for number in range(20_000)]),
        (["a", "b"] * 2500, ["a", "b", "b"] * 66),
        (["a", "b"] * 30_000, ["b", "a"] * 30_000),
    ],
    ids=["many times each", "two lines again and again", "very long"],
)
def test_two_hostile_texts_are_compared_within_a_moment(before: list[str], after: list[str]):
    """difflib alone takes seconds for the second pair, and minutes for the others."""
    began = time.process_time()
    made = diff("\n".join(before), "\n".join(after))
    assert time.process_time() - began < 1
    assert made.removed > len(before) // 2


def step(*changes: FileChange, budget: Budget | None = None) -> StepDiff:
    known = {change.path: change for change in changes}
    return step_diff(known, known.__getitem__, budget or Budget(), str)


def test_a_step_with_very_many_files_shows_the_first_and_counts_the_others():
    made = step(*(changed(None, "x", f"f{number}") for number in range(MOST_FILES + 12)))
    assert len(made.files) == MOST_FILES
    assert made.notes == ("… 12 more files left out",)


def test_a_step_with_very_much_text_shows_the_first_files_and_counts_the_others():
    text = "some words of a line\n" * 2000
    made = step(*(changed(None, text, f"f{number}") for number in range(20)))
    assert 0 < len(made.files) < 10
    assert sum(len(file.text) for file in made.files) < STEP_LIMIT + FILE_LIMIT + 200
    assert made.notes == (f"… {20 - len(made.files)} more files left out",)


def test_a_page_without_room_looks_at_no_file():
    def look(path: str) -> FileChange:
        raise AssertionError(path)

    assert step_diff(["a", "b"], look, Budget(characters=0), str).notes == ("… 2 more files left out",)


def test_a_page_has_room_for_so_many_bytes_of_files():
    budget = Budget()
    step(changed("x" * 1000, "y" * 1000), budget=budget)
    assert budget.bytes == BYTES_LIMIT - 2000
    assert budget.characters < Budget().characters
    assert budget.pairs == Budget().pairs - 1
