"""The extractors, form by form: what the real outputs do not show (prompts.md §10)."""

from __future__ import annotations

import pytest
from extract_parts import run

from stepflow.domain.checkout import CommandResult
from stepflow.engine.completion.extract import EXTRACTORS, extract


def test_an_unknown_extractor_gives_null_and_the_others_go_on():
    result = CommandResult(exit_code=3, stdout="o\n", stderr="e")
    names = {"a": "parseNonsense", "b": "stdout", "c": "stderr", "d": "exitCode"}
    extracted = extract(names, result, root="/repo", current_branch=lambda: None)
    assert extracted == {"a": None, "b": "o\n", "c": "e", "d": 3}


def test_the_list_of_extractors_is_the_published_one():
    assert set(EXTRACTORS) == {
        "parseChangedFiles", "parseUntrackedFiles", "parseStagedFiles", "parseUnstagedFiles",
        "parseTestOutput", "failedTests", "errorOutput", "parseTypeErrors", "errors", "extractFiles", "files",
        "parseLintErrors", "lintErrors", "lintFiles", "parseFormatOutput", "formatFiles", "generateDiff", "diff",
        "parseBranchName", "parseRemoteStatus", "parseMergeStatus", "stdout", "stderr", "exitCode",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("out", "\x1b[31mbad\x1b[0m\n", "bad\n"),
        ("1\n2 Failed\n3", " \n", "2 Failed\n3"),
        ("1\nan ERROR\n3", "", "an ERROR\n3"),
        ("all\nfine", "", "all\nfine"),
    ],
)
def test_the_error_output_is_stderr_or_the_telling_part_of_stdout(stdout, stderr, expected):
    assert run("errorOutput", stdout, stderr) == expected


def test_streams_are_given_as_they_are():
    assert run("stdout", "\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FAILED | adds up", [{"name": "adds up", "error": ""}]),
        ("FAILED | 1 passed | 2 failed (9ms)", []),
        ("adds up ... FAILED (3ms)\nbecause\n\nof this", [{"name": "adds up", "error": "because\nof this"}]),
        ("ERROR app/conftest.py", [{"name": "app/conftest.py", "file": "app/conftest.py", "error": ""}]),
        ("FAILED t.py::a\nFAILED t.py::a", [{"name": "a", "file": "t.py", "error": ""}]),
        (
            "FAIL: test_a (m.T)\n----------\nAssertionError: 1\n\n----------\nRan 1 test in 0.1s\n\nFAILED (errors=1)",
            [{"name": "test_a", "error": "AssertionError: 1"}],
        ),
        ("--- FAIL: TestA (0.00s)\n" + "line\n" * 12, [{"name": "TestA", "error": "\n".join(["line"] * 9)}]),
        ("everything ok", []),
    ],
)
def test_failed_tests_of_every_form_are_found(text, expected):
    assert run("failedTests", text) == expected
    assert run("parseTestOutput", "", text) == expected


def test_tests_are_found_in_both_streams_stdout_first():
    records = run("failedTests", "--- FAIL: TestB (0s)", "--- FAIL: TestA (0s)")
    assert [record["name"] for record in records] == ["TestB", "TestA"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error: Module not found\nnote\nerror TS18003: none", ["error: Module not found", "error TS18003: none"]),
        ("Error: boom", ["Error: boom"]),
        ("fine", []),
    ],
)
def test_without_a_known_form_lines_that_begin_with_error_are_taken(text, expected):
    assert run("errors", text) == [{"file": "unknown", "line": 0, "message": line} for line in expected]


def test_with_a_known_form_other_error_lines_are_not_taken():
    assert run("parseTypeErrors", "a.py:1: error: bad\nerror: summary") == [
        {"file": "a.py", "line": 1, "message": "bad"}
    ]


def test_a_message_of_tsc_that_goes_on_is_joined():
    text = "a.ts(1,2): error TS2345: Not assignable.\n  Types differ.\n    Deeply.\na.ts(3,4): error TS1: Next."
    assert [record["message"] for record in run("errors", text)] == ["Not assignable. Types differ. Deeply.", "Next."]


def test_the_indented_source_under_a_message_is_no_part_of_it():
    text = "a.ts:1:2 - error TS2345: Bad.\n  1 let x\na.py:1: error: Wrapped\n    source\n"
    text += "a.py:2: error: No code\na.py:2: note: See [docs]\na.py:3: error: Last\nFound 3 errors [x]\n"
    assert [record["message"] for record in run("errors", text)] == ["Bad.", "Wrapped", "No code", "Last"]


def test_a_deno_error_without_a_place_is_kept():
    text = "TS2307 [ERROR]: Cannot find module.\nTS1 [ERROR]: Bad.\n    at file:///repo/a%20b.ts:3:4\n"
    assert run("errors", "", text) == [
        {"file": "unknown", "line": 0, "code": "TS2307", "message": "Cannot find module."},
        {"file": "a b.ts", "line": 3, "column": 4, "code": "TS1", "message": "Bad."},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/repo/src/a.py:3:1: x and ./b.ts(4,2): y", ["src/a.py", "b.ts"]),
        ("at file:///repo/web/c.ts:1:2", ["web/c.ts"]),
        ("/elsewhere/d.py:9", ["/elsewhere/d.py"]),
        ("/repository/d.py:9", ["/repository/d.py"]),
        ("node_modules/x/y.js:1 /usr/lib/site-packages/z.py:2 a/node_modules/q.ts(1,1)", []),
        ("https://example.org:443 127.0.0.1:80 noext:3 a.py b.py:x time 12:30", []),
        ("a.py:1 a.py:2", ["a.py"]),
    ],
)
def test_files_stand_before_a_line_number(text, expected):
    assert run("files", text) == expected
    assert run("extractFiles", "", text) == expected


def test_without_a_root_paths_stay_as_they_are():
    assert run("files", "/repo/a.py:1 ./b.py:2", root="") == ["/repo/a.py", "b.py"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.py:1: E501 Line too long", {"file": "a.py", "line": 1, "rule": "E501", "message": "Line too long"}),
        (
            "a.py:1:2: C0114: No docstring (missing-docstring)",
            {"file": "a.py", "line": 1, "column": 2, "rule": "C0114", "message": "No docstring (missing-docstring)"},
        ),
        (
            "/repo/a.js: line 1, col 2, Error - Bad thing. (no-bad)",
            {"file": "a.js", "line": 1, "column": 2, "rule": "no-bad", "message": "Bad thing."},
        ),
        (
            "/repo/a.js\n  1:2  warning  Two  parts  no-bad",
            {"file": "a.js", "line": 1, "column": 2, "rule": "no-bad", "message": "Two parts"},
        ),
    ],
)
def test_a_lint_finding_in_each_form(text, expected):
    assert run("lintErrors", text) == [expected]
    assert run("parseLintErrors", "", text) == [expected]
    assert run("lintFiles", text) == [expected["file"]]


def test_an_arrow_without_a_finding_before_it_is_no_finding():
    assert run("lintErrors", "F401 unused\n\n --> a.py:1:2\n  1:2  error  no file before\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("would reformat /repo/a b.py", ["a b.py"]),
        ("[warn] a b.ts\n[warn] Code style issues found in 2 files. Run Prettier with --write to fix.", ["a b.ts"]),
        ("src/a.go\nnot a.path here\n", ["src/a.go"]),
        ("unformatted: File would be reformatted\n --> a.py:1:1\n --> b.py:1:1\n", ["a.py"]),
        ("unformatted: File would be reformatted\n --> a.py\n", ["a.py"]),
        ("a.py\na.py\n", ["a.py"]),
    ],
)
def test_unformatted_files_are_named_in_each_formatters_words(text, expected):
    assert run("formatFiles", text) == expected
    assert run("parseFormatOutput", "", text) == expected
    assert run("diff", text) == "\n".join(expected)


def test_a_diff_ends_where_its_lines_end():
    diff = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file"
    assert run("diff", f"Checking\n{diff}\n\n2 files would change\n+ no diff") == diff
    assert run("generateDiff", "all fine", f"{diff}\n") == diff


def test_without_diff_and_files_the_diff_is_empty():
    assert run("diff", "--- a heading\nall is fine\n") == ""


@pytest.mark.parametrize(
    "control", ["\x1b[0m\x1b[1;31m", "\x1b]8;;https://x.example\x07", "\x1b]0;title\x1b\\", "\x1b[2K", "\x1bM"]
)
def test_terminal_control_does_not_disturb(control):
    assert run("errors", f"{control}a.py{control}:1: error:{control} bad{control}") == [
        {"file": "a.py", "line": 1, "message": "bad"}
    ]
