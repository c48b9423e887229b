"""What outputs say about tests, and which trials of a change decide about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.domain.proof import (
    ChangedTestFile,
    ChangeTrees,
    Hunk,
    Proof,
    ProofSettings,
    ProofVerdict,
    TrialLimits,
    TrialOutcome,
    WeakenedTest,
    Weakening,
)
from stepflow.engine.proof import (
    is_test,
    prove_change,
    read_trial,
    runnable_tests,
)
from stepflow.report.proof import describe_proof

PYTEST_FAILED = """\
F.                                                                       [100%]
=================================== FAILURES ===================================
__________________________________ test_days ___________________________________
>       assert parse("1d") == 1440
E       KeyError: 'd'
=========================== short test summary info ============================
FAILED tests/test_durations.py::test_days - KeyError: 'd'
1 failed, 1 passed in 0.02s
"""
PYTEST_NOT_COLLECTED = """\
==================================== ERRORS ====================================
____________________ ERROR collecting tests/test_durations.py __________________
ImportError while importing test module '/w/tests/test_durations.py'.
E   ImportError: cannot import name 'show' from 'durations' (/w/durations.py)
=========================== short test summary info ============================
ERROR tests/test_durations.py
1 error in 0.05s
"""
PYTEST_IMPORTS_LATE = PYTEST_FAILED.replace("KeyError: 'd'", "ImportError: cannot import name 'x' from 'y'")
UNITTEST_FAILED = """\
F.
======================================================================
FAIL: test_days (tests.test_durations.Days.test_days)
----------------------------------------------------------------------
AssertionError: 0 != 1440
----------------------------------------------------------------------
Ran 2 tests in 0.001s

FAILED (failures=1)
"""
UNITTEST_NOT_IMPORTED = """\
E
======================================================================
ERROR: tests.test_durations (unittest.loader._FailedTest.tests.test_durations)
----------------------------------------------------------------------
ImportError: Failed to import test module: tests.test_durations
Ran 1 test in 0.000s

FAILED (errors=1)
"""
NODE_FAILED = """\
TAP version 13
# Subtest: days
not ok 1 - days
  ---
  error: '1 == 2'
  ...
ok 2 - hours
# tests 2
# pass 1
# fail 1
"""
NODE_NOT_FOUND = """\
# Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/w/x.mjs' imported from /w/m.test.mjs
not ok 1 - /w/m.test.mjs
# tests 1
# pass 0
"""
NODE_SPEC_FAILED = """\
▶ durations
  ✔ hours (0.987103ms)
  ✖ days (0.175422ms)
✖ durations (1.916741ms)
ℹ tests 2
ℹ suites 1
ℹ pass 1
ℹ fail 1

✖ failing tests:

test at src/ok.test.ts:6:3
✖ days (0.175422ms)
  RangeError: 1d is not a duration
      at parse (file:///c/src/durations.ts:7:36)
"""
NODE_NOT_EXPORTED = """\
Error [ERR_PACKAGE_PATH_NOT_EXPORTED]: Package subpath './reads' is not defined by "exports" in /c/package.json \
imported from /c/src/exports.test.ts
    at exportsNotFound (node:internal/modules/esm/resolve:314:10)

✖ src/exports.test.ts (111.703336ms)
ℹ tests 1
ℹ pass 0

✖ failing tests:

test at src/exports.test.ts:1:1
✖ src/exports.test.ts (111.703336ms)
  'test failed'
"""
NODE_NO_TYPESCRIPT = """\
file:///c/src/syntax.test.ts:2
test('a', () => {

SyntaxError [ERR_INVALID_TYPESCRIPT_SYNTAX]: Expected ',', got '<eof>'
✖ src/syntax.test.ts (77.753162ms)
ℹ tests 1
ℹ pass 0
"""
NODE_SPEC_NOTHING = """\
ℹ tests 0
ℹ suites 0
ℹ pass 0
"""
VITEST_FAILED = """\
 ❯ src/v.spec.ts (4 tests | 2 failed | 1 skipped) 9ms
   ❯ durations (4)
     × hours 5ms
     × snap 2ms
     ↓ later
     ✓ fails 1ms

⎯⎯⎯⎯⎯⎯⎯ Failed Tests 2 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/v.spec.ts > durations > hours
AssertionError: expected 120 to be 121 // Object.is equality

 ❯ src/v.spec.ts:4:43

 FAIL  src/v.spec.ts > durations > snap
Error: Snapshot `durations > snap 1` mismatched

 Test Files  1 failed (1)
      Tests  2 failed | 1 expected fail | 1 skipped (4)
"""
VITEST_NOT_THERE = """\
 ❯ src/vname.spec.ts (1 test | 1 failed) 4ms
   × reads 2ms

⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/vname.spec.ts > reads
TypeError: read is not a function
 ❯ src/vname.spec.ts:4:28
    2| import { read } from './durations.ts'
     |                            ^

 Test Files  1 failed (1)
      Tests  1 failed (1)
"""
VITEST_CALLS = VITEST_NOT_THERE.replace("❯ src/vname.spec.ts:4:28", "❯ parse src/durations.ts:7:3")
VITEST_NOT_COLLECTED = """\
 ❯ src/vfile.spec.ts (0 test)

⎯⎯⎯⎯⎯⎯ Failed Suites 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/vfile.spec.ts [ src/vfile.spec.ts ]
Error: Cannot find module './reads.ts' imported from /c/src/vfile.spec.ts
 ❯ src/vfile.spec.ts:2:1

 Test Files  1 failed (1)
      Tests  no tests
"""
VITEST_OBSOLETE = """\
 ❯ src/table.spec.ts (1 test) 3ms
   ✓ table (1)
     ✓ two entries 0ms

⎯⎯⎯⎯⎯⎯ Failed Suites 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/table.spec.ts [ src/table.spec.ts ]
Error: Obsolete snapshots found when no snapshot update is expected.
· table > one entry 1

 Test Files  1 failed (1)
      Tests  1 passed (1)
"""
VITEST_NOTHING = """\
No test files found, exiting with code 1

filter: src/nothing
"""
GO_FAILED = """\
--- FAIL: TestDays (0.00s)
    d_test.go:9: got 0
FAIL
FAIL\texample.org/d\t0.003s
ok  \texample.org/e\t0.002s
"""
GO_NOT_BUILT = """\
# example.org/d [example.org/d.test]
./d_test.go:5:2: undefined: Show
FAIL\texample.org/d [build failed]
FAIL
"""
CARGO_FAILED = """\
running 2 tests
test hours ... ok
test days ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored
"""
CARGO_NOT_BUILT = """\
error[E0425]: cannot find function `days` in this scope
error: could not compile `d` (test "d") due to 1 previous error
"""

OUTPUTS: Mapping[str, tuple[int, str, TrialOutcome, tuple[str, ...]]] = {
    "pytest: passed": (0, "2 passed in 0.01s\n", TrialOutcome.PASSED, ()),
    "pytest: failed": (1, PYTEST_FAILED, TrialOutcome.FAILED, ("test_days",)),
    "pytest: an import fails in a test": (1, PYTEST_IMPORTS_LATE, TrialOutcome.FAILED, ("test_days",)),
    "pytest: not collected": (2, PYTEST_NOT_COLLECTED, TrialOutcome.NOT_BUILT, ("tests/test_durations.py",)),
    "pytest: no test": (5, "no tests ran in 0.00s\n", TrialOutcome.NOTHING_RAN, ()),
    "unittest: failed": (1, UNITTEST_FAILED, TrialOutcome.FAILED, ("test_days",)),
    "unittest: not imported": (1, UNITTEST_NOT_IMPORTED, TrialOutcome.NOT_BUILT, ("tests.test_durations",)),
    "unittest: no test": (0, "Ran 0 tests in 0.000s\n\nOK\n", TrialOutcome.NOTHING_RAN, ()),
    "node: failed": (1, NODE_FAILED, TrialOutcome.FAILED, ("days",)),
    "node: not found": (1, NODE_NOT_FOUND, TrialOutcome.NOT_BUILT, ()),
    "node: a suite": (1, NODE_SPEC_FAILED, TrialOutcome.FAILED, ("days",)),
    "node: not exported": (1, NODE_NOT_EXPORTED, TrialOutcome.NOT_BUILT, ()),
    "node: not TypeScript": (1, NODE_NO_TYPESCRIPT, TrialOutcome.NOT_BUILT, ()),
    "node: no test": (0, NODE_SPEC_NOTHING, TrialOutcome.NOTHING_RAN, ()),
    "tsc: a wrong type": (
        *(1, "src/a.test.ts(3,7): error TS2322: Type 'string' is not assignable to type 'number'.\n"),
        *(TrialOutcome.NOT_BUILT, ()),
    ),
    "vitest: failed": (1, VITEST_FAILED, TrialOutcome.FAILED, ("durations > hours", "durations > snap")),
    "vitest: a name that is not there": (1, VITEST_NOT_THERE, TrialOutcome.NOT_BUILT, ("reads",)),
    "vitest: a call that fails in the code": (1, VITEST_CALLS, TrialOutcome.FAILED, ("reads",)),
    "vitest: one of two names is not there": (
        *(1, VITEST_NOT_THERE + VITEST_FAILED, TrialOutcome.FAILED),
        ("reads", "durations > hours", "durations > snap"),
    ),
    "vitest: not collected": (1, VITEST_NOT_COLLECTED, TrialOutcome.NOT_BUILT, ()),
    "vitest: a snapshot of no test": (1, VITEST_OBSOLETE, TrialOutcome.FAILED, ()),
    "vitest: no test": (1, VITEST_NOTHING, TrialOutcome.NOTHING_RAN, ()),
    "go: failed": (1, GO_FAILED, TrialOutcome.FAILED, ("TestDays",)),
    "go: not built": (1, GO_NOT_BUILT, TrialOutcome.NOT_BUILT, ()),
    "go: some packages have no tests": (
        *(0, "?   \texample.org/e\t[no test files]\nok  \texample.org/d\t0.002s\n"),
        *(TrialOutcome.PASSED, ()),
    ),
    "go: no package has tests": (0, "?   \texample.org/e\t[no test files]\n", TrialOutcome.NOTHING_RAN, ()),
    "cargo: failed": (101, CARGO_FAILED, TrialOutcome.FAILED, ("days",)),
    "cargo: not built": (101, CARGO_NOT_BUILT, TrialOutcome.NOT_BUILT, ()),
    "a script without a word": (1, "", TrialOutcome.FAILED, ()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_says_what_came_of_the_tests(name: str) -> None:
    code, output, outcome, tests = OUTPUTS[name]
    trial = read_trial(CommandResult(exit_code=code, stdout=output))
    assert (trial.outcome, trial.tests) == (outcome, tests)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/test_a.py", True),
        ("pkg/a_test.go", True),
        ("src/a.test.ts", True),
        ("src/__snapshots__/a.snap", True),
        ("spec/models/user_spec.rb", True),
        ("src/test/java/ATest.java", True),
        ("conftest.py", True),
        ("src/latest.py", False),
        ("contest.py", False),
        ("src/testing.go", False),
        ("attest/main.rs", False),
    ],
)
def test_tests_are_known_by_convention(path: str, *, expected: bool) -> None:
    assert is_test(path) is expected


def test_a_runner_is_given_test_files_and_not_what_they_use() -> None:
    files = ("tests/conftest.py", "tests/data/a.json", "tests/test_a.py", "src/b.test.ts")
    assert runnable_tests(files) == ("tests/test_a.py", "src/b.test.ts")
    assert runnable_tests(("tests/run.sh",)) == ("tests/run.sh",)
    assert runnable_tests(("src/a.test.ts", "src/__snapshots__/b.test.ts.snap")) == ("src/a.test.ts", "src/b.test.ts")


def hunk(name: str, exempt: str = "") -> Hunk:
    return Hunk(file=f"{name}.py", lines=(3, 4), tree=f"without {name}", exempt=exempt)


def change(*hunks: Hunk, tests: tuple[str, ...] = ("test_a.py",), old_tests: str = "") -> ChangeTrees:
    return ChangeTrees(tests=tests, after="after", before="before", old_tests=old_tests, hunks=hunks)


class Trials:
    """Answers for trees: exit codes, one after the other, the last one again."""

    def __init__(self, **codes: int | list[int]) -> None:
        self.codes = {
            name.replace("_", " "): code if isinstance(code, list) else [code] for name, code in codes.items()
        }
        self.tried: list[str] = []
        self.seconds = 1.0

    def __call__(self, trees: Sequence[str], limits: TrialLimits) -> list[CommandResult | None]:
        """Try one after the other."""
        left, results = limits.together, list[CommandResult | None]()
        for tree in trees:
            results.append(self.run(tree) if left > 0 else None)
            left -= self.seconds
        return results

    def run(self, tree: str) -> CommandResult:
        self.tried.append(tree)
        codes = self.codes[tree]
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        return CommandResult(
            exit_code=code,
            stdout=f"FAILED t.py::{tree.replace(' ', '_')}" if code else "1 passed",
            seconds=self.seconds,
        )

    def prove(self, *hunks: Hunk, old_tests: str = "", **options: Any) -> Proof:
        return prove_change(change(*hunks, old_tests=old_tests), self, ProofSettings(**options))


@pytest.mark.parametrize(
    ("after", "before", "verdict", "reason", "tried"),
    [
        (0, 1, "proven", "fail without the change and pass with it", 4),
        (0, 0, "unproven", "pass without the change too", 4),
        (1, 1, "unproven", "fail with the change", 2),
        ([0, 1], 1, "unproven", "flaky: two runs with the", 2),
        (0, [1, 0], "unproven", "flaky: two runs without", 4),
    ],
)
def test_failing_before_and_passing_after_decide(
    after: int | list[int], before: int | list[int], verdict: str, reason: str, tried: int
) -> None:
    trials = Trials(after=after, before=before)
    proof = trials.prove()
    assert (proof.verdict, len(trials.tried)) == (verdict, tried)
    assert reason in proof.reason


def test_a_run_without_time_left_is_one_that_did_not_end() -> None:
    proof = prove_change(change(), lambda trees, _limits: [None for _ in trees], ProofSettings())
    assert (proof.verdict, proof.reason) == (ProofVerdict.UNPROVEN, "The tests do not end in time with the change.")


def test_without_tests_nothing_is_tried() -> None:
    assert prove_change(change(hunk("x"), tests=()), Trials(), ProofSettings()).verdict is ProofVerdict.NO_TESTS


def test_each_hunk_is_taken_back_by_itself() -> None:
    trials = Trials(after=0, before=1, without_x=1, without_y=0)
    proof = trials.prove(hunk("x"), hunk("y"), hunk("z", exempt="comments or formatting"))
    assert [(each.held_by, each.tried) for each in proof.hunks] == [
        *((("without_x",), True), (None, True), (None, False)),
    ]
    assert describe_proof(proof) == (
        "1 test fails without the change and passes with it. 1 of 2 changes is held by a test; y.py:3-4 is not."
    )


def test_a_version_that_was_tried_is_not_tried_again() -> None:
    trials = Trials(after=0, before=1)
    (only,) = trials.prove(replace(hunk("a"), tree="before")).hunks
    assert (only.tried, only.held_by is not None, len(trials.tried)) == (True, True, 4)


def test_hunks_beyond_the_limit_and_the_time_are_named() -> None:
    trials = Trials(after=0, before=1, without_x=1, without_y=1)
    proof = trials.prove(hunk("x"), hunk("y"), most_hunks=1)
    assert proof.notes == ("1 change was not tried: at most 1 is tried.",)
    slow = Trials(after=0, before=1, **{f"without_{name}": 1 for name in "abcde"})
    slow.seconds = 20.0
    proof = slow.prove(*map(hunk, "abcde"))
    assert [each.tried for each in proof.hunks] == [True, True, True, False, False]
    assert proof.notes == ("2 changes were not tried: there was no time left.",)


def test_tests_of_the_base_that_fail_now_are_named() -> None:
    failing = WeakenedTest(name="old", how=Weakening.FAILS)
    assert Trials(after=0, before=1, old=1).prove(old_tests="old").weakened == (failing,)
    assert Trials(after=0, before=1, old=0).prove(old_tests="old").weakened == ()
    assert Trials(after=0, before=1).prove().weakened == ()


def test_tests_of_the_base_that_were_not_tried_are_noted() -> None:
    slow = Trials(after=0, before=1, old=0)
    assert slow.prove(old_tests="old").notes == ()
    proof = prove_change(
        change(old_tests="old"),
        lambda trees, limits: slow(trees, limits) if limits.together > 999 else [None],
        ProofSettings(),
    )
    assert proof.notes == ("There was no time left for the tests of the base.",)


def test_fewer_passing_tests_than_with_those_of_the_base_are_noted_unless_the_text_explains_it() -> None:
    def answer(trees: Sequence[str], _: TrialLimits) -> list[CommandResult]:
        passed = {"after": "2 passed, 1 skipped", "old": "3 passed", "before": "1 failed"}
        return [CommandResult(exit_code=int(tree == "before"), stdout=passed[tree]) for tree in trees]

    skipped = ChangedTestFile(file="t.py", before="def test_a():", after="@pytest.mark.skip\ndef test_a():")
    plain = change(old_tests="old")
    assert prove_change(plain, answer, ProofSettings()).notes == (
        "Fewer tests pass than with the test files of the base: 2 instead of 3.",
        "More tests are skipped than with the test files of the base: 1 instead of 0.",
    )
    assert prove_change(replace(plain, test_files=(skipped,)), answer, ProofSettings()).notes == ()


@pytest.mark.parametrize(
    ("output", "passed", "skipped"),
    [
        ("3 passed, 1 skipped, 1 xfailed in 0.01s\n", 3, 2),
        ("Ran 5 tests in 0.001s\n\nOK (skipped=1, expected failures=1)\n", None, 2),
        ("Ran 5 tests in 0.001s\n\nOK\n", 5, 0),
        ("# tests 3\n# pass 2\n# skipped 1\n", 2, 1),
        ("ℹ tests 3\nℹ pass 2\nℹ skipped 0\n", 2, 0),
        ("Tests:       1 skipped, 2 passed, 3 total\n", 2, 1),
        ("  4 passing (3ms)\n  1 pending\n", 4, 1),
        ("--- PASS: TestA (0.00s)\n--- SKIP: TestB (0.00s)\n--- PASS: TestC (0.00s)\nPASS\n", 2, 1),
        ("test result: ok. 2 passed; 0 failed; 1 ignored\ntest result: ok. 1 passed; 0 failed\n", 3, 1),
        ("ok  \texample.org/d\t0.002s\n", None, 0),
    ],
)
def test_outputs_say_how_many_tests_passed(output: str, passed: int | None, skipped: int) -> None:
    trial = read_trial(CommandResult(exit_code=0, stdout=output))
    assert (trial.passed, trial.skipped) == (passed, skipped)
