"""Suggestions are tried on copies of the reviewed commit: which of them are offered, and what the others lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stepflow.domain.agent.definition import Condition
from stepflow.domain.effect import Suggestion, SuggestionResults
from stepflow.run.clock import Cancellation
from stepflow.run.closing import SuggestionTrials
from stepflow.run.proof import Trials
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.sandbox.change import ChangeRepository, edit_lines
from tests.build import make_validator
from tests.checkout import git

CODE = "one = 1\ntwo = 2\nthree = 3\n"
#: A check of what the file says, and one that is red from the beginning.
RUNS = "python3 -c 'import code_file as c; assert c.one + c.two == c.three'"
NAMES = "grep -q two code_file.py"

Try = Callable[..., SuggestionResults]


def check(name: str, command: str, timeout: float = 60.0) -> Condition:
    return Condition(validator=make_validator(name, command, timeout=timeout))


def at(first: int, last: int, text: str, path: str = "code_file.py") -> tuple[str, int, int, str]:
    return path, first, last, text


@pytest.fixture
def try_all(tmp_path: Path) -> Try:
    """Tries suggestions on a repository with one file, with these checks."""
    checkout = tmp_path / "repository"
    checkout.mkdir()
    git("init", "--quiet", "--template=", cwd=checkout)
    (checkout / "code_file.py").write_text(CODE)
    (checkout / "link.py").symlink_to("code_file.py")
    (checkout / "latin.txt").write_bytes(b"caf\xe9\n")
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Begin", cwd=checkout)

    def run(
        suggestions: Sequence[tuple[str, int, int, str]],
        *checks: Condition,
        note: Callable[[str], None] = lambda _: None,
        **given: float,
    ) -> SuggestionResults:
        cancellation = Cancellation()
        cancellation.hold()
        trials = Trials(
            repository=ChangeRepository(tmp_path / "change", checkout),
            request=RunRequest(
                run_id="run-1", inputs=read_inputs({}), trigger=Trigger(), root=checkout, folder=tmp_path / "run"
            ),
            commands=(),
            cancellation=cancellation,
            note=note,
            **given,
        )
        commit = git("rev-parse", "HEAD", cwd=checkout).strip()
        return SuggestionTrials(trials, commit, checks).run(
            [
                Suggestion(comment=number, path=path, first=first, last=last, text=text)
                for number, (path, first, last, text) in enumerate(suggestions)
            ]
        )

    return run


@pytest.mark.parametrize(
    ("first", "last", "text", "problem"),
    [
        (2, 2, "one = 1\ntwo = 22\n", "it repeats line 1 above it"),
        (2, 2, "two = 22\nthree = 3\n", "it repeats line 3 below it"),
        (2, 2, "one = 1\ntwo = 22\nthree = 3\n", "it repeats line 1 above it"),
        (3, 3, "one = 1\ntwo = 2\nthree = 4\n", "it repeats lines 1 to 2 above it"),
        (1, 1, "one = 11\ntwo = 2\nthree = 3\n", "it repeats lines 2 to 3 below it"),
        (1, 2, "one = 11\ntwo = 22\n", ""),
        (2, 2, "two = 22\none = 1\n", ""),
        (1, 1, "one = 1\n\n", ""),
    ],
)
def test_a_suggestion_that_repeats_the_lines_beside_it_is_not_offered(
    try_all: Try, first: int, last: int, text: str, problem: str
) -> None:
    (found,) = problems(try_all([at(first, last, text)]))
    assert found == (f"{problem}, which would then be there twice" if problem else "")


@pytest.mark.parametrize(
    ("before", "text", "is_offered"),
    [
        ("if a:\n  x\nend\n", "  if b:\n    x\n  end\n", True),
        ("x\nx\ny\n", "x\nz\n", True),
        ("a\n\nb\n", "\nc\n", True),
        ("a\r\nb\r\nc\r\n", "a\nB\n", False),
        ("a\nb\nc", "B\nc\n", False),
    ],
    ids=["of another depth", "twice before", "blank", "CRLF", "no last line break"],
)
def test_only_what_would_be_doubled_counts_as_repeated(before: str, text: str, is_offered: bool) -> None:
    edited = edit_lines(before.encode(), [Suggestion(comment=0, path="a", first=2, last=2, text=text)])
    assert isinstance(edited, bytes) is is_offered


def problems(tried: SuggestionResults) -> list[str]:
    return [each.problem for each in tried.suggestions]


@pytest.mark.whole
def test_a_suggestion_that_keeps_the_checks_green_is_offered(try_all: Try) -> None:
    noted: list[str] = []
    tried = try_all([at(2, 2, "two = 1 + 1\n")], check("test", RUNS), check("names", NAMES), note=noted.append)
    assert (problems(tried), tried.checks, tried.red_before) == ([""], ("test", "names"), ())
    assert noted == ["without a suggestion", "with the suggestion for `code_file.py:2`"]


def test_one_that_turns_a_check_red_is_not_and_names_it(try_all: Try) -> None:
    tried = try_all([at(2, 2, "two = 3\n"), at(1, 3, "x = (\n")], check("test", RUNS), check("names", NAMES))
    assert problems(tried) == ["it makes `test` fail", "it makes `test`, `names` fail"]
    assert tried.suggestions[0].red == ("test",)


@pytest.mark.whole
def test_a_check_that_was_red_before_speaks_against_nothing(try_all: Try) -> None:
    tried = try_all([at(2, 2, "two = 1 + 1\n"), at(2, 2, "two = 3\n")], check("test", RUNS), check("lint", "false"))
    assert (problems(tried), tried.red_before) == (["", "it makes `test` fail"], ("lint",))


def test_what_a_check_changes_does_not_reach_the_next_one(try_all: Try) -> None:
    changes = check("format", "echo > code_file.py; echo left > left.txt")
    sees = check("names", "grep -q one code_file.py && ! test -e left.txt")
    tried = try_all([at(1, 1, "x = 1\n")], changes, sees)
    assert (problems(tried), tried.red_before) == (["it makes `names` fail"], ())


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("suggestion", "problem"),
    [
        (at(1, 1, "x\n", "gone.py"), "it does not apply: there is no such file"),
        (at(1, 1, "x\n", "link.py"), "it does not apply: this is no regular file"),
        (at(1, 1, "x\n", "latin.txt"), "it does not apply: the file is not text in UTF-8"),
        (at(3, 4, "x\n"), "it does not apply: the file has only 3 lines"),
        (at(2, 2, "two = 2\n"), "it changes nothing"),
    ],
)
def test_one_that_does_not_apply_says_why(try_all: Try, suggestion: tuple[str, int, int, str], problem: str) -> None:
    assert problems(try_all([suggestion])) == [problem]


@pytest.mark.whole
def test_of_two_that_overlap_the_first_good_one_is_offered(try_all: Try) -> None:
    suggestions = [at(1, 2, "one = two = 9\n"), at(2, 2, "two = 1 + 1\n"), at(2, 3, "two = 2\nthree = 1 + 2\n")]
    tried = try_all(suggestions, check("test", RUNS))
    overlaps = "it overlaps the one for `code_file.py:2`, and people could commit only one of the two"
    assert problems(tried) == ["it makes `test` fail", "", overlaps]


@pytest.mark.whole
def test_those_that_are_good_alone_are_tried_together(try_all: Try) -> None:
    """Here each takes away one of two names of which the check needs one."""
    needs_one = check("names", "grep -q one code_file.py || grep -q two code_file.py")
    tried = try_all([at(1, 1, "a = 1\n"), at(2, 2, "b = 2\n"), at(3, 3, "c = 3\n")], needs_one)
    together = "together with the one for `code_file.py:1`, it makes `names` fail"
    assert problems(tried) == ["", together, ""]


def test_without_time_none_is_offered(try_all: Try) -> None:
    tried = try_all([at(2, 2, "two = 1 + 1\n")], check("test", RUNS), ends=0.0)
    assert problems(tried) == ["there was no time left to try it"]


@pytest.mark.whole
def test_a_check_that_takes_too_long_is_red(try_all: Try) -> None:
    slow = check("slow", "grep -q 'two = 2' code_file.py || sleep 60", timeout=3.0)
    assert problems(try_all([at(2, 2, "two = 1 + 1\n")], slow)) == ["it makes `slow` fail"]


@pytest.mark.parametrize(
    ("before", "suggestion", "after"),
    [
        (b"a\nb\nc\n", at(2, 2, "x\ny\n"), b"a\nx\ny\nc\n"),
        (b"a\r\nb\r\n", at(1, 1, "x\ny\n"), b"x\r\ny\r\nb\r\n"),
        (b"a\r\nb", at(2, 2, "x\ny\n"), b"a\r\nx\r\ny"),
        (b"a\nb", at(2, 2, "x\n"), b"a\nx"),
        (b"a\nb", at(1, 2, ""), b""),
        (b"a\nb\nc", at(2, 2, ""), b"a\nc"),
        (b"a\nb\r\nc\n", at(2, 3, "x\n"), b"a\nx\r\n"),
        (b"a\x0cb\nc\n", at(2, 2, "x\n"), b"a\x0cb\nx\n"),
        (b"a\rb\n", at(1, 1, "x\n"), b"x\n"),
        ("é\n".encode(), at(1, 1, "ü\n"), "ü\n".encode()),
    ],
)
def test_line_endings_stay_as_they_are(before: bytes, suggestion: tuple[str, int, int, str], after: bytes) -> None:
    path, first, last, text = suggestion
    assert edit_lines(before, [Suggestion(comment=0, path=path, first=first, last=last, text=text)]) == after
