"""What somebody else wrote is read in a time that grows with its length, not with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.domain.proof import ChangedTestFile
from stepflow.engine.extract import EXTRACTORS, extract
from stepflow.engine.gate import FENCE, parse_answer
from stepflow.engine.prompt.github_page import read_page
from stepflow.engine.prompt.own_words import read_own_words
from stepflow.engine.proof import find_weakened, read_trial
from stepflow.engine.same_code import is_same_code


def read_output(text: str) -> None:
    read_trial(CommandResult(exit_code=1, stdout=text, combined=text))


def read_tests(text: str) -> None:
    [*find_weakened([ChangedTestFile(file="a_test.java", before=text, after=text + "x")])]


def compare_go(text: str) -> None:
    is_same_code("a.go", text, text + "x")


def read_for_retry(text: str) -> None:
    extract(
        {name: name for name in EXTRACTORS},
        CommandResult(exit_code=1, stdout=text, combined=text),
        root="/repository",
        current_branch=lambda: None,
    )


def read_answer(text: str) -> None:
    parse_answer(text, is_only=False)
    [*FENCE.finditer(text)]


CASES: dict[str, tuple[Callable[[str], object], str]] = {
    "empty lines": (read_output, "\n"),
    "blank lines": (read_output, " \n"),
    "failures without a name": (read_output, "✖\n"),
    "marks of tests": (read_tests, "@Test\n"),
    "attributes of tests": (read_tests, "#[test]\n"),
    "comments that do not end": (compare_go, "/*a"),
    "strings that do not end": (compare_go, '"\\'),
    "footnotes that do not end": (read_page, "[^"),
    "lines below a comment": (read_own_words, "\n "),
    "rules below a comment": (read_own_words, "-----\n"),
    "fenced blocks that do not end": (read_answer, "```a\n"),
    "marks of fenced blocks": (read_answer, "`"),
    "quotes in an output": (read_for_retry, '"\\'),
    "results in an output": (read_for_retry, "FAILED a:1:1: "),
    "locations in an output": (read_for_retry, "a:1:1: error"),
    "lines of results": (read_for_retry, "=== \n"),
}


def seconds(read: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    read(text)
    return time.process_time() - begun


@pytest.mark.parametrize(("read", "unit"), CASES.values(), ids=CASES)
def test_four_times_the_text_takes_about_four_times_as_long(read: Callable[[str], object], unit: str) -> None:
    short, long = unit * 2_000, unit * 8_000
    read(short)
    # A square would be sixteen times as long. What takes almost no time cannot be compared.
    assert seconds(read, long) < 0.1 + 9 * min(seconds(read, short) for _ in range(3))
