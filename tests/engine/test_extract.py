"""The extractors read what tools print: real outputs, each form of theirs, and hostile ones (prompts.md §10)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.checkout import CommandResult
from stepflow.engine.extract import EXTRACTORS, extract


def run(name, stdout="", stderr="", code=1, *, root="/repo", branch="topic"):
    result = CommandResult(exit_code=code, stdout=stdout, stderr=stderr)
    return extract({"value": name}, result, root=root, current_branch=lambda: branch)["value"]


# --- what the tools really print: one folder of `outputs/` is one test ---------------------------------------------

OUTPUTS = Path(__file__).parent / "outputs"
CASES = sorted(folder for folder in OUTPUTS.iterdir() if folder.is_dir())


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_extractors_find_what_the_tool_said(case):
    expected = json.loads(read(case / "expected.json"))
    result = CommandResult(
        exit_code=expected["exit_code"], stdout=read(case / "stdout.txt"), stderr=read(case / "stderr.txt")
    )
    names = {name: name for name in expected["extracted"]}
    extracted = extract(names, result, root="/srv/project", current_branch=lambda: "topic")
    assert extracted == expected["extracted"]


def test_there_is_an_output_of_every_tool():
    tools = {case.name.split("_")[0] for case in CASES}
    assert tools == {
        "black", "cargo", "deno", "eslint", "flake8", "git", "go", "gofmt", "mypy", "prettier", "pyright", "pytest",
        "ruff", "tsc", "unittest",
    }  # fmt: skip


# --- form by form ---------------------------------------------------------------------------------------------------


def test_an_unknown_extractor_gives_null_and_the_others_go_on():
    result = CommandResult(exit_code=3, stdout="\x1b[31mo\n", stderr="e")
    names = {"a": "parseNonsense", "b": "stdout", "c": "stderr", "d": "exitCode"}
    extracted = extract(names, result, root="/repo", current_branch=lambda: None)
    assert extracted == {"a": None, "b": "\x1b[31mo\n", "c": "e", "d": 3}


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("out", "\x1b[31mbad\x1b[0m\n", "out\nbad\n"),
        ("", "bad\n", "bad\n"),
        ("all\nfine", "", "all\nfine"),
    ],
)
def test_the_error_output_is_both_streams(stdout, stderr, expected):
    assert run("errorOutput", stdout, stderr) == expected


def test_the_error_output_is_in_the_order_in_which_it_was_written():
    combined = "compiling\nFAILED\nerror: test failed\n"
    result = CommandResult(exit_code=1, stdout="FAILED\n", stderr="compiling\nerror: test failed\n", combined=combined)
    assert extract({"value": "errorOutput"}, result, root="/", current_branch=lambda: None) == {"value": combined}


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
        ("test tests::a ... FAILED\ntest tests::b ... ok\nfailures:", [{"name": "tests::a", "error": ""}]),
        (
            "---- a stdout ----\nthread 'main' panicked at 'no', src/lib.rs:1:2\nnote: run with `RUST_BACKTRACE=1`",
            [{"name": "a", "file": "src/lib.rs", "error": "thread 'main' panicked at 'no', src/lib.rs:1:2"}],
        ),
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


@pytest.mark.parametrize("begun", ["\x1b]0;title", "\x1bP", "\x1b_", "\x9b"])
def test_terminal_control_that_never_ends_hides_no_error(begun):
    assert run("files", f"{begun} is on\na.py:1: error: bad\n") == ["a.py"]


# --- git ------------------------------------------------------------------------------------------------------------

STATUS = (
    " M src/a.py\nM  b.py\nMM c.py\nA  d.py\nD  e.py\nUU f.py\n?? g.py\n!! h.pyc\n"
    'R  old.py -> new.py\nR  "a \\"b\\".py" -> "c\\td.py"\n?? "caf\\303\\251.txt"\nR  x -> "y z"\n'
    "not a status line\n## main\n"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("parseChangedFiles", ["src/a.py", "b.py", "c.py", "d.py", "e.py", "f.py", "new.py", "c\td.py", "y z"]),
        ("parseUntrackedFiles", ["g.py", "café.txt"]),
        ("parseStagedFiles", ["b.py", "c.py", "d.py", "e.py", "f.py", "new.py", "c\td.py", "y z"]),
        ("parseUnstagedFiles", ["src/a.py", "c.py", "f.py"]),
    ],
)
def test_git_status_lines_are_sorted_by_their_two_columns(name, expected):
    assert run(name, STATUS, code=0) == expected
    assert run(name, STATUS.replace("\n", "\r\n"), code=0) == expected
    assert run(name, "", STATUS) == []


def test_a_file_named_twice_is_listed_once_where_it_came_first():
    assert run("parseChangedFiles", " M b\n M a\nM  b\n") == ["b", "a"]


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("", "fatal: The branch 'feat/x' is not fully merged.", "feat/x"),
        ("feat/y\n", "", "feat/y"),
        ("\n feat/y \nmore", "", "feat/y"),
        ("two words\n", "", "topic"),
        ("", "", "topic"),
    ],
)
def test_the_branch_is_named_or_printed_or_asked_for(stdout, stderr, expected):
    assert run("parseBranchName", stdout, stderr) == expected


def test_without_any_branch_the_name_is_null():
    assert run("parseBranchName", branch=None) is None


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "expected"),
    [
        ("origin/main\nx", "", 0, "origin/main"),
        ("", "warning: old\n", 0, "warning: old"),
        ("ignored", "fatal: no such ref\nmore", 1, "fatal: no such ref"),
        ("ignored", "warning: old\nfatal: no such ref\n", 1, "fatal: no such ref"),
        ("", "", 1, None),
        ("x", "The current branch has NO UPSTREAM branch.", 0, "no upstream"),
        ("", "You are in 'detached HEAD' state.", 0, "detached HEAD"),
    ],
)
def test_the_remote_status_says_what_is_wrong_or_what_the_upstream_is(stdout, stderr, code, expected):
    assert run("parseRemoteStatus", stdout, stderr, code) == expected


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "expected"),
    [
        (" \n", "", 0, "merged"),
        ("a1\n\nb2\n", "", 0, "2 commits not merged"),
        ("a1", "\nfatal: bad revision\n", 128, "fatal: bad revision"),
        ("", "warning: ignoring x\nfatal: bad revision\n", 128, "fatal: bad revision"),
        ("", "", 1, None),
    ],
)
def test_the_merge_status_counts_commits(stdout, stderr, code, expected):
    assert run("parseMergeStatus", stdout, stderr, code) == expected


# --- hostile outputs ------------------------------------------------------------------------------------------------

PIECES = ["FAILED ", "a.py", "::t[", "] - ", "error: ", ":1", ":2: ", "E501 ", "\n", "  ", "--> ",
          "x", '"', "\\3", "?? ",          " -> ", "TS1 [ERROR]: ", "at file:///", "--- FAIL: ", "=> ", "(", ")",
          "[warn] ", "\x1b[", "\x1b]", "é", "R  "]  # fmt: skip


@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join), code=st.sampled_from([0, 1, -1]))
def test_no_output_makes_an_extractor_fail(text, code):
    names = {name: name for name in EXTRACTORS}
    extracted = extract(
        names, CommandResult(exit_code=code, stdout=text, stderr=text), root="/r", current_branch=lambda: None
    )
    assert set(extracted) == set(EXTRACTORS)


@pytest.mark.parametrize(
    "line",
    [" " * 200_000, "FAILED a." * 30_000, "a.b:1(" * 40_000, "[1] - " * 40_000, '?? "' + "\\\\" * 100_000,
     "x ... " * 40_000,
     " => a:1:" * 30_000, ("a:1: error: x" + " " * 900 + "x\n") * 300,
     "\x1b]" * 100_000, "a.py:1: error: x\n" * 5_000,
     "--- FAIL: T (0s)\n" * 5_000, "--- x\n" * 10_000],
    ids=lambda line: repr(line[:12]),
)  # fmt: skip
def test_hostile_output_cannot_hold_the_extractors_up(line):
    names = {name: name for name in EXTRACTORS}
    begin = time.process_time()
    extract(names, CommandResult(exit_code=1, stdout=line), root="/r", current_branch=lambda: None)
    assert time.process_time() - begin < 10
