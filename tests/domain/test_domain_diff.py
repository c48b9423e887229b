"""What a step changed, as git says it: readable, harmless, and never without end."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stepflow.domain.checkout import FILE_LIMIT, LINE_LIMIT, MOST_FILES, STEP_LIMIT, FileDiff, StepDiff, read_diff
from stepflow.domain.secrets import Redactor
from stepflow.report.safe_text import spell_unseen


@pytest.fixture
def diff(tmp_path: Path) -> Callable[..., StepDiff]:
    """The difference between two sets of files, by git."""

    def make(
        before: Mapping[str, bytes | str],
        after: Mapping[str, bytes | str],
        *,
        redact: Callable[[str], str] = str,
        left_out: Mapping[str, str] | None = None,
        cut: int | None = None,
    ) -> StepDiff:
        names = []
        for files in (before, after):
            for path in tmp_path.iterdir():
                if path.name != ".git":
                    path.unlink()
            for name, content in files.items():
                (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
            git("init", "-q")
            git("add", "-A")
            names.append(git("write-tree").decode().strip())
        output = git("-c", "core.quotePath=false", "diff-tree", "-r", "--raw", "--patch", "--no-renames", *names)
        return read_diff(output[:cut], is_whole=cut is None, left_out=left_out or {}, redact=redact)

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, check=True).stdout

    return make


def one(step: StepDiff) -> FileDiff:
    (file,) = step.files
    return file


def test_a_changed_line_is_shown_with_three_lines_around_it(diff) -> None:
    before = "".join(f"line {number}\n" for number in range(1, 21))
    made = one(diff({"a.txt": before}, {"a.txt": before.replace("line 10\n", "line ten\n").removesuffix("\n")}))
    assert (made.path, made.added, made.removed) == ("a.txt", 2, 2)
    lines = made.text.split("\n")
    assert lines[:3] == ["diff --git a/a.txt b/a.txt", "--- a/a.txt", "+++ b/a.txt"]
    assert lines[3].startswith("@@ -7,7 +7,7 @@")
    assert lines[4:12] == [
        *(" line 7", " line 8", " line 9", "-line 10", "+line ten"),
        *(" line 11", " line 12", " line 13"),
    ]
    assert lines[-3:] == ["-line 20", "+line 20", "\\ No newline at end of file"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (None, "one\n", ["new file mode 100644", "--- /dev/null", "+++ b/a.txt", "@@ -0,0 +1 @@", "+one"]),
        ("x\ny\n", None, ["deleted file mode 100644", "--- a/a.txt", "+++ /dev/null", "@@ -1,2 +0,0 @@", "-x", "-y"]),
        (b"a\0b", b"\0" * 50, ["not shown: binary, or larger than 256 KiB"]),
        (
            "a\r\nb\r\n",
            "a\r\nc\r\n",
            ["line endings CRLF", "--- a/a.txt", "+++ b/a.txt", "@@ -1,2 +1,2 @@", " a", "-b"],
        ),
        ("a\n", "a\r\n", ["--- a/a.txt", "+++ b/a.txt", "@@ -1 +1 @@", "-a", "+a<U+000D>"]),
        (
            b"caf\xe9\n",
            b"caf\xc3\xa9\n",
            ["--- a/a.txt", "+++ b/a.txt", "@@ -1 +1 @@", "-caf\\xe9", "+café"],
        ),
    ],
    ids=["new", "gone", "binary", "CRLF", "line endings", "other signs than UTF-8's"],
)
def test_what_changed_is_told_in_the_first_lines(diff, before, after, lines) -> None:
    sides = [{} if side is None else {"a.txt": side} for side in (before, after)]
    shown = one(diff(*sides)).text.split("\n")
    assert shown[0] == "diff --git a/a.txt b/a.txt"
    assert shown[1 : 1 + len(lines)] == lines


def test_a_file_that_is_left_out_says_why(diff) -> None:
    made = diff({}, {"b": "x\n"}, left_out={"a": "permission denied"})
    assert [file.path for file in made.files] == ["b", "a"]
    assert made.files[1].text == "diff --git a/a b/a\nnot shown: permission denied"
    assert made.notes == ()


@pytest.mark.sample(2)
@pytest.mark.parametrize("sign", ["\r", "\v", "\f", "\x1b[2K", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_sign_in_a_line_makes_another_line_of_it_or_hides_it(diff, sign) -> None:
    name = f"a{sign}\n+++ b_forged\ndiff --git x"
    made = one(diff({name: "x\n"}, {name: f"x{sign}+forged\n"}))
    shown = spell_unseen(made.text).split("\n")
    assert len(shown) == 6
    assert not any(line.startswith(("+forged", "+++ b_forged")) for line in shown)
    assert f"<U+{ord(sign[0]):04X}>" in shown[-1]
    assert spell_unseen(made.path) == made.path


def test_a_secret_is_masked_on_both_sides_in_every_form(diff) -> None:
    secret = "ghs_0123456789secret"
    redact = Redactor([secret])
    name = f"{secret}.txt"
    made = one(diff({name: f"token={secret}\n"}, {name: f"other={secret.encode().hex()}\n"}, redact=redact))
    assert "-token=***" in made.text
    assert "+other=***" in made.text
    assert made.path == "***.txt"
    wrapped = base64.encodebytes(secret.encode() * 4).decode()
    for before, after in (("x\n", wrapped), (wrapped, "x\n"), (wrapped, wrapped + "more\n")):
        text = one(diff({"a": before}, {"a": after}, redact=redact)).text
        assert text == "diff --git a/a b/a\n--- a/a\n+++ b/a\nnot shown: a secret of the run is in it"
    key = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
    assert "abc" not in one(diff({}, {"key": key})).text


def test_a_long_diff_and_a_long_line_are_cut_with_a_word(diff) -> None:
    made = one(diff({}, {"a": "".join(f"line {number}\n" for number in range(5000)) + "x" * 100_000}))
    assert made.added == 5001
    assert len(made.text) < FILE_LIMIT + 200
    assert re.search(r"\n… \d,\d\d\d more lines of this difference left out$", made.text)
    assert one(diff({}, {"a": "y" * 100_000})).text.split("\n")[-2] == (
        f"+{'y' * (LINE_LIMIT - 1)} [… 99,501 characters left out …]"
    )


def test_a_step_with_very_many_files_shows_the_first_and_counts_the_others(diff) -> None:
    made = diff({}, {f"f{number}": "x" for number in range(MOST_FILES + 12)})
    assert len(made.files) == MOST_FILES
    assert made.notes == ("… 12 more files left out",)


def test_a_step_with_very_much_text_shows_the_first_files_and_counts_the_others(diff) -> None:
    made = diff({}, {f"f{number}": "some words of a line\n" * 2000 for number in range(20)})
    assert 0 < len(made.files) < 10
    assert sum(len(file.text) for file in made.files) < STEP_LIMIT + FILE_LIMIT + 200
    assert made.notes == (f"… {20 - len(made.files)} more files left out",)


def test_of_an_output_that_was_cut_the_last_file_is_not_shown(diff) -> None:
    """It may end in the middle of a secret."""
    made = diff({}, {"a": "one\n", "b": "two\n"}, cut=-2)
    assert [file.path for file in made.files] == ["a"]
    assert made.notes == ("… 1 more file left out",)
    assert diff({}, {"a": "one\n", "b": "two\n"}, cut=20) == StepDiff(notes=("… 1 more file left out",))
