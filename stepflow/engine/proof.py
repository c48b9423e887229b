"""Proves a change by running its tests on versions of the files: without the change, with it, and without single parts
of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from stepflow.domain.checkout import CommandResult, glob_expression
from stepflow.domain.proof import (
    RED,
    ChangeTrees,
    Hunk,
    Proof,
    ProofVerdict,
    Trial,
    TrialLimits,
    TrialOutcome,
    TriedHunk,
)
from stepflow.domain.text import count, excerpt, readable_output
from stepflow.engine.completion.tool_output import find_failed_tests

#: Files that are tests by the conventions of Python, JavaScript and TypeScript, Go, Rust, Java and Ruby.
TEST_FILES = (
    *("**/test_*.py", "**/*_test.py", "**/conftest.py", "**/tests/**", "**/test/**"),
    *("**/*.test.*", "**/*.spec.*", "**/__tests__/**", "**/__snapshots__/**", "**/__mocks__/**"),
    *("**/*_test.go", "**/testdata/**", "**/src/test/**", "**/spec/**", "**/*_spec.rb", "**/*_test.rb"),
)
#: Of these a test runner can be given the names; the others are what such files use.
_RUNNABLE = re.compile(
    r"(?:.*/)?(?:test_[^/]*\.py|[^/]*_test\.(?:py|go|rb)|[^/]*_spec\.rb|[^/]*\.(?:test|spec)\.\w+|[^/]*Tests?\.java)"
)
#: How tools say that tests were not even built.
_NOT_BUILT = re.compile(
    r"errors? during collection|^ERROR collecting |^_+ ERROR collecting |ImportError while (?:importing|loading)"
    r"|Failed to import test module|unittest\.loader\._FailedTest"
    r"|\[(?:build|setup) failed\]|ERR_MODULE_NOT_FOUND|does not provide an export named"
    r"|^SyntaxError: |Test suite failed to run|error TS\d+:|^error(?:\[E\d+\])?: could not compile|COMPILATION ERROR"
    r"|cannot load such file|file or directory not found:|ERROR: not found:",
    re.MULTILINE,
)
#: How tools say that there was no test to run.
_NOTHING_RAN = re.compile(
    r"no tests ran|NO TESTS RAN|collected 0 items|no tests to run|\[no test files\]|^# tests 0$|^Ran 0 tests"
    r"|No tests? (?:files )?found|running 0 tests",
    re.MULTILINE,
)
#: Node's own runner, jest, vitest and mocha, whose lines the check patterns do not read.
_FAILED_IN_NODE = re.compile(
    r"^\s*(?:✖|✕|×|not ok \d+ -|FAIL +\S+ >|●) *(?P<name>\S.*?)(?: \(?[\d.]+ ?m?s\)?)?(?: # .*)?$", re.MULTILINE
)
_NO_NAMES = re.compile(r"failing tests:|.*\.(?:test|spec)\.\w+|\S+\.[cm]?[jt]s", re.IGNORECASE)
_OUTPUT_SHOWN = 2000
_MOST_NAMES = 20
#: All trials of parts together may take this many times what the tests take once, and at least so many seconds.
TIME_FACTOR = 3.0
LEAST_SECONDS = 30.0
#: A part without which the tests take this many times as long, and at least so many seconds, makes them endless.
HANGS_FACTOR = 2.0
HANGS_SECONDS = 10.0
MOST_HUNKS = 20


def is_test(path: str, patterns: Iterable[str] = TEST_FILES) -> bool:
    """Return whether a file is a test file."""
    return any(re.fullmatch(glob_expression(pattern), path, re.DOTALL) for pattern in patterns)


def runnable_tests(tests: Iterable[str]) -> tuple[str, ...]:
    """Return the test files that a test runner can be given by name; all of them if none looks like that."""
    tests = tuple(tests)
    return tuple(path for path in tests if _RUNNABLE.fullmatch(path)) or tests


def is_same_code(path: str, text: str, without: str) -> bool:
    """Return whether two versions of a file certainly mean the same, because they differ in comments, blank lines or
    formatting only. Known for Python."""
    if not path.endswith((".py", ".pyi")):
        return False
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(without))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def read_trial(result: CommandResult) -> Trial:
    """Return what a command's result says about the tests."""
    output = readable_output(result.output)
    if not result.started or result.timed_out:
        outcome = TrialOutcome.TIMED_OUT if result.timed_out else TrialOutcome.NOT_STARTED
        return Trial(outcome=outcome, output=excerpt(result.error or output, _OUTPUT_SHOWN), seconds=result.seconds)
    if _NOTHING_RAN.search(output) and not _passed_some(output):
        outcome = TrialOutcome.NOTHING_RAN
    elif result.exit_code == 0:
        return Trial(outcome=TrialOutcome.PASSED, seconds=result.seconds)
    else:
        outcome = TrialOutcome.NOT_BUILT if _NOT_BUILT.search(output) else TrialOutcome.FAILED
    return Trial(
        outcome=outcome,
        tests=_failed_tests(output),
        output=excerpt(output, _OUTPUT_SHOWN).strip(),
        seconds=result.seconds,
    )


def _passed_some(output: str) -> bool:
    """Return whether some tests ran although others had none, as with packages of Go."""
    return bool(
        re.search(
            r"^(?:ok  \t(?!.*\[no tests to run\])|--- FAIL|# pass [1-9])|\b[1-9]\d* (?:passed|failed)",
            output,
            re.MULTILINE,
        )
    )


def _failed_tests(output: str) -> tuple[str, ...]:
    lines = output.splitlines()
    names = [str(found["name"]) for found in find_failed_tests(lines)]
    in_node = (match["name"].strip() for match in _FAILED_IN_NODE.finditer(output))
    names += [name for name in in_node if not _NO_NAMES.fullmatch(name)]
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]


#: Runs the command on trees: a result for each, in their order, None where there was no time left.
Try = Callable[[Sequence[str], TrialLimits], Sequence[CommandResult | None]]


def prove_change(change: ChangeTrees, try_trees: Try, *, most_hunks: int = MOST_HUNKS) -> Proof:
    """Run the trials that decide, in the order in which each makes the next worthwhile."""
    if not change.tests:
        return Proof(verdict=ProofVerdict.NO_TESTS, reason="The change has no test file.")
    after = _try_twice(change.after, try_trees)
    if problem := _problem_after(after):
        verdict = ProofVerdict.NOT_TRIED if after.outcome is TrialOutcome.NOT_STARTED else ProofVerdict.UNPROVEN
        return Proof(verdict=verdict, reason=problem, tests=change.tests, after=after)
    before = _try_twice(change.before, try_trees)
    proof = Proof(
        verdict=ProofVerdict.PROVEN if before.outcome in RED else ProofVerdict.UNPROVEN,
        reason=_WITHOUT[before.outcome],
        tests=change.tests,
        before=before,
        after=after,
    )
    if proof.verdict is not ProofVerdict.PROVEN:
        return proof
    return _try_parts(proof, change, try_trees, most_hunks)


def _try_twice(tree: str, try_trees: Try) -> Trial:
    first, second = (read_trial(result) for result in try_trees((tree, tree), TrialLimits()) if result)
    if first.outcome is second.outcome:
        common = tuple(name for name in first.tests if name in second.tests)
        return replace(first, tests=common or first.tests, seconds=max(first.seconds, second.seconds))
    if {first.outcome, second.outcome} <= RED:
        return replace(first, outcome=TrialOutcome.FAILED)
    return replace(first if first.output else second, outcome=TrialOutcome.FLAKY)


def _problem_after(after: Trial) -> str:
    return {
        TrialOutcome.PASSED: "",
        TrialOutcome.FAILED: "The tests fail with the change.",
        TrialOutcome.NOT_BUILT: "The tests cannot be built or collected with the change.",
        TrialOutcome.NOTHING_RAN: "The command runs no test.",
        TrialOutcome.TIMED_OUT: "The tests do not end in time with the change.",
        TrialOutcome.FLAKY: "The tests are flaky: two runs with the change ended differently.",
        TrialOutcome.NOT_STARTED: f"The command cannot be run: {after.output.rstrip('.')}.",
    }[after.outcome]


_WITHOUT = {
    TrialOutcome.PASSED: "The tests pass without the change too.",
    TrialOutcome.FAILED: "The tests fail without the change and pass with it.",
    TrialOutcome.NOT_BUILT: (
        "The tests cannot be built or collected without the change, and pass with it. That is natural for a new "
        "function, but says little about a fix."
    ),
    TrialOutcome.NOTHING_RAN: "Without the change the command runs no test.",
    TrialOutcome.TIMED_OUT: "The tests do not end in time without the change.",
    TrialOutcome.FLAKY: "The tests are flaky: two runs without the change ended differently.",
    TrialOutcome.NOT_STARTED: "The command cannot be run without the change.",
}


def _try_parts(proof: Proof, change: ChangeTrees, try_trees: Try, most: int) -> Proof:
    """Try the change with the tests of the base and without each part, within the time for all of that."""
    once = proof.after.seconds if proof.after else 0.0
    limits = TrialLimits(each=max(HANGS_FACTOR * once, HANGS_SECONDS), together=max(TIME_FACTOR * once, LEAST_SECONDS))
    chosen = [hunk for hunk in change.hunks if not hunk.exempt][:most]
    old = (change.old_tests,) if change.old_tests else ()
    results = try_trees((*old, *(hunk.tree for hunk in chosen)), limits)
    trials = [read_trial(result) if result else None for result in results]
    tried = {hunk: trial for hunk, trial in zip(chosen, trials[len(old) :], strict=True) if trial}
    return replace(
        proof,
        hunks=tuple(_tried(hunk, tried.get(hunk)) for hunk in change.hunks),
        weakened=_weakened(trials[0], change) if old else None,
        notes=tuple(_untried(change, chosen, tried)),
    )


def _weakened(old: Trial | None, change: ChangeTrees) -> tuple[str, ...] | None:
    if old is None:
        return None
    return () if old.outcome is TrialOutcome.PASSED else old.tests or change.tests


def _untried(change: ChangeTrees, chosen: Sequence[Hunk], tried: Collection[Hunk]) -> Iterator[str]:
    beyond = sum(not hunk.exempt for hunk in change.hunks) - len(chosen)
    late = len(chosen) - len(tried)
    why = (f"at most {len(chosen)} {'is' if len(chosen) == 1 else 'are'} tried", "there was no time left")
    for number, reason in zip((beyond, late), why, strict=True):
        if number:
            yield f"{count(number, 'change')} {'was' if number == 1 else 'were'} not tried: {reason}."


def _tried(hunk: Hunk, trial: Trial | None) -> TriedHunk:
    held_by = _held_by(trial) if trial else None
    return TriedHunk(file=hunk.file, lines=hunk.lines, exempt=hunk.exempt, held_by=held_by, tried=trial is not None)


def _held_by(trial: Trial) -> tuple[str, ...] | None:
    """Return the tests that noticed; None if all passed. An endless test has noticed as well."""
    if trial.outcome in RED or trial.outcome is TrialOutcome.TIMED_OUT:
        return trial.tests
    return None
