"""Long outputs, texts and lists are cut so that what matters stays, and code is quoted whatever is in it."""

from __future__ import annotations

import time

import pytest

from stepflow.domain.text import (
    code_block,
    code_span,
    cut,
    excerpt,
    name_some,
    names_failure,
    readable_output,
    telling_line,
)


def noise(count: int, start: int = 0) -> list[str]:
    return [f"line {number} of the build, which went well" for number in range(start, start + count)]


def test_what_fits_is_shown_as_it_is() -> None:
    assert excerpt("\n a\nfailed\n", 20) == "\n a\nfailed\n"


@pytest.mark.parametrize("at", [0, 1, 17, 5_000, 9_999, 10_000])
def test_a_failure_anywhere_in_ten_thousand_lines_is_shown_with_what_explains_it_and_the_end(at: int) -> None:
    failure = ["--- FAIL: TestGreet (0.00s)", "    greet_test.go:7: got hi", "    want hello"]
    text = "\n".join((*noise(at), *failure, *noise(10_000 - at), "exit status 1"))
    shown = excerpt(text, 4_000)
    assert len(shown) <= 4_200
    for line in (*failure, "exit status 1"):
        assert line in shown.split("\n")
    assert shown.index("--- FAIL") < shown.index("exit status 1")
    assert "lines left out]…" in shown


def test_of_too_many_failures_the_first_are_shown_and_the_end() -> None:
    text = "\n".join((*(f"error: number {number}" for number in range(10_000)), *noise(5), "the end"))
    shown = excerpt(text, 2_000).split("\n")
    assert "error: number 0" in shown
    assert shown[-1] == "the end"


def test_names_of_tests_that_go_well_take_no_room_from_the_one_that_fails() -> None:
    names = [f"=== RUN   TestParserRefuses{number}Error" for number in range(3_000)]
    text = "\n".join((*names, "--- FAIL: TestGreet (0.00s)", "    greet_test.go:7: got hi", *noise(3_000)))
    assert "    greet_test.go:7: got hi" in excerpt(text, 20_000).split("\n")


def test_left_out_lines_are_counted() -> None:
    text = "\n".join((*noise(100), "fatal: no", *noise(100)))
    shown = excerpt(text, 10_000, lines=6).split("\n")
    left = [int(line.strip("…[]").split()[0]) for line in shown if line.endswith("left out]…")]
    assert sum(left) + len(shown) - len(left) == 201
    assert len(shown) - len(left) == 6


def test_a_single_line_that_is_left_out_is_one_line() -> None:
    assert excerpt("fatal: no\nx\nfatal: never", 10_000, lines=2) == "fatal: no\n…[1 line left out]…\nfatal: never"


def test_one_endless_line_keeps_both_ends() -> None:
    shown = excerpt("a" * 50_000 + "b" * 50_000, 2_000)
    assert (shown[:3], shown[-3:]) == ("aaa", "bbb")
    assert "characters cut" in shown
    assert len(shown) <= 2_000


def test_an_endless_line_does_not_take_the_room_of_others() -> None:
    text = "\n".join((*noise(300), "x" * 100_000, "Error: boom", *noise(3)))
    assert "Error: boom" in excerpt(text, 4_000)


@pytest.mark.parametrize(
    "line",
    [
        "FAILED tests/test_a.py::test_b - assert 1 == 2",
        "E   assert 1 == 2",
        "--- FAIL: TestA (0.00s)",
        "FAIL\texample.org/a\t0.01s",
        "./a.go:3:2: undefined: x",
        "panic: runtime error: index out of range",
        "error[E0308]: mismatched types",
        "thread 'tests::a' panicked at src/lib.rs:3:5:",
        "test tests::a ... FAILED",
        "npm ERR! code ELIFECYCLE",
        "npm error Lifecycle script `test` failed with error:",
        "  ✕ greets (3 ms)",
        "not ok 3 - greets",
        "src/a.ts(1,2): error TS2304: Cannot find name 'x'.",
        "ValueError: bad",
        "java.lang.IllegalStateException: no",
        "Tests run: 3, Failures: 1, Errors: 0, Skipped: 0",
        "=== 1 failed, 30 passed, 0 errors in 2s ===",
        "sh: 1: tsc: not found",
        "make: *** No rule to make target 'tset'.  Stop.",
        "cp: cannot stat 'x': No such file or directory",
        "E: Unable to locate package nope",
        "Segmentation fault (core dumped)",
        "bash: line 1: 42 Killed                  ./server",
        "  3/9 Test #3: parser ...........................***Timeout  10.01 sec",
        "WARNING: DATA RACE",
        "     Failure/Error: expect(greeting).to eq 'hello'",
        "ERR_PNPM_NO_SCRIPT  Missing script: tset",
        "[UnhandledPromiseRejection: This error originated in a promise]",
        "** (Mix) Could not compile dependency :greet",
        "00:01 +3 -1: greets the world [E]",
        "   ✘ greets the world",
    ],
)
def test_lines_that_name_a_failure(line: str) -> None:
    assert names_failure(line)


@pytest.mark.parametrize(
    "line",
    [
        "tests/test_errors.py::test_fails PASSED [ 10%]",
        "test error_is_shown ... ok",
        "ok 12 - fails on error",
        "✓ throws an error when it is empty",
        "30 passed, 0 failed",
        "Found 0 errors.",
        "Tests run: 3, Failures: 0, Errors: 0",
        "compiling src/error.rs",
        "make: *** [Makefile:2: test] Error 1",
        "make[1]: *** [test] Error 2",
        "warning: unused variable",
        "--- PASS: TestError (0.00s)",
        "=== RUN   TestParseError",
        "=== CONT  TestParseError/empty",
        "[ RUN      ] Parser.ThrowsException",
        "[       OK ] Parser.ThrowsException (0 ms)",
        "  Passed Greeter.ThrowsException [2 ms]",
        "Test Case '-[GreetTests testError]' passed (0.001 seconds).",
        "0 failed, 0 timeouts",
    ],
)
def test_lines_that_do_not(line: str) -> None:
    assert not names_failure(line)


def test_colors_and_progress_bars_are_read_as_a_terminal_shows_them() -> None:
    assert readable_output("10%\r50%\r100%\r\n\x1b[31mred\x1b[0m\r\n") == "100%\nred\n"


def test_the_telling_line_is_the_first_failure_else_the_last_line() -> None:
    assert telling_line("a\nE   assert 1\nmake: *** [test] Error 1\n", 50) == "E   assert 1"
    assert telling_line("a\n\nb\n \n", 50) == "b"
    assert telling_line("\n", 50) == ""
    assert (
        telling_line("=== FAILURES ===\n___ test_a ___\nE   assert 1\n=== 1 failed in 2s ===\n", 50) == "E   assert 1"
    )
    assert telling_line("=== 1 failed, 2 passed in 2s ===\nbye", 50) == "=== 1 failed, 2 passed in 2s ==="


@pytest.mark.whole
@pytest.mark.parametrize("line", ["", "error ", " " * 500, "fail" * 100, "no " * 200, "E" * 900])
def test_no_output_holds_it_up(line: str) -> None:
    begin = time.process_time()
    excerpt(f"{line}\n" * (2_000_000 // (len(line) + 1)), 20_000)
    assert time.process_time() - begin < 20


def test_a_text_is_cut_to_exactly_its_limit_and_says_so() -> None:
    assert [cut(text, 4) for text in ("", "abcd", "abcde")] == ["", "abcd", "abc…"]


def test_of_many_names_the_first_are_named_each_once_and_the_rest_is_counted() -> None:
    assert name_some(["b", " a", "b"]) == "b, a"
    assert name_some(map(str, [*range(22), 0])) == f"{', '.join(map(str, range(20)))} and 2 more"


def test_code_is_quoted_with_more_backticks_than_are_in_it() -> None:
    assert (code_span("a"), code_span("`a``")) == ("`a`", "``` `a`` ```")
    assert code_block("a\n````", "text") == "`````text\na\n````\n`````"
