"""What outputs say about tests, and which trials of a change decide about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepflow.domain.checkout import CommandResult
from stepflow.domain.proof import (
    ChangedTestFile,
    ChangeTrees,
    Hunk,
    Proof,
    ProofSettings,
    ProofVerdict,
    TrialLimits,
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

OUTPUTS = yaml.safe_load((Path(__file__).parent / "trials.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_says_what_came_of_the_tests(name: str) -> None:
    case = OUTPUTS[name]
    trial = read_trial(CommandResult(exit_code=case["exit_code"], stdout=case["output"]))
    assert (trial.outcome, list(trial.tests)) == (case["outcome"], case["tests"])


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


@pytest.mark.parametrize(
    ("without", "held"),
    [
        (CommandResult(exit_code=0, stdout="1 passed"), False),
        (CommandResult(exit_code=1, stdout="FAILED t.py::x"), True),
        (CommandResult(exit_code=2, stdout="ERROR collecting t.py"), True),
        (CommandResult(exit_code=-1, timed_out=True), True),
        (CommandResult(exit_code=-1, started=False, error="no such program"), True),
        (CommandResult(exit_code=5, stdout="no tests ran"), False),
    ],
    ids=["passes", "fails", "is not built", "hangs", "is not started", "runs nothing"],
)
def test_a_part_is_held_if_the_tests_without_it_do_not_end_well(without: CommandResult, *, held: bool) -> None:
    known = {"after": CommandResult(exit_code=0, stdout="1 passed"), "before": CommandResult(exit_code=1, stdout="1 f")}

    def answer(trees: Sequence[str], _: TrialLimits) -> list[CommandResult]:
        return [known.get(tree, without) for tree in trees]

    (part,) = prove_change(change(hunk("x")), answer, ProofSettings()).hunks
    assert (part.tried, part.held_by is not None) == (True, held)


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
