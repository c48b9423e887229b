"""Proves a change by running its tests on versions of the files: without the change, with it, and without single parts
of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from stepflow.domain.checkout import CommandResult, glob_expression
from stepflow.domain.proof import (
    RED,
    ChangeTrees,
    Hunk,
    Proof,
    ProofVerdict,
    Trial,
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
#: All trials of single hunks together may take this many times what the tests take once, and at least so many seconds.
TIME_FACTOR = 3.0
LEAST_SECONDS = 30.0
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


#: Runs the command on a tree.
Try = Callable[[str], CommandResult]


def prove_change(change: ChangeTrees, try_tree: Try, *, most_hunks: int = MOST_HUNKS) -> Proof:
    """Run the trials that decide, in the order in which each makes the next worthwhile."""
    if not change.tests:
        return Proof(verdict=ProofVerdict.NO_TESTS, reason="The change has no test file.")
    after = _try_twice(change.after, try_tree)
    if problem := _problem_after(after):
        verdict = ProofVerdict.NOT_TRIED if after.outcome is TrialOutcome.NOT_STARTED else ProofVerdict.UNPROVEN
        return Proof(verdict=verdict, reason=problem, tests=change.tests, after=after)
    before = _try_twice(change.before, try_tree)
    proof = Proof(
        verdict=ProofVerdict.PROVEN if before.outcome in RED else ProofVerdict.UNPROVEN,
        reason=_WITHOUT[before.outcome],
        tests=change.tests,
        before=before,
        after=after,
    )
    if proof.verdict is not ProofVerdict.PROVEN:
        return proof
    tried = _Hunks(change, try_tree, seconds=TIME_FACTOR * after.seconds, most=most_hunks)
    hunks = tuple(tried.each())
    old = read_trial(try_tree(change.old_tests)) if change.old_tests else None
    return replace(
        proof,
        hunks=hunks,
        weakened=None if old is None else () if old.outcome is TrialOutcome.PASSED else old.tests or change.tests,
        notes=tuple(tried.notes),
    )


def _try_twice(tree: str, try_tree: Try) -> Trial:
    first, second = read_trial(try_tree(tree)), read_trial(try_tree(tree))
    if first.outcome is second.outcome:
        common = tuple(name for name in first.tests if name in second.tests)
        return replace(first, tests=common or first.tests)
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


class _Hunks:
    """Tries hunk by hunk, within the time for all of them."""

    def __init__(self, change: ChangeTrees, try_tree: Try, *, seconds: float, most: int) -> None:
        self._hunks, self._try = change.hunks, try_tree
        self._left, self._most = max(seconds, LEAST_SECONDS), most
        self.notes: list[str] = []

    def each(self) -> Iterator[TriedHunk]:
        """Yield every hunk of the change in its order."""
        tried = untried = 0
        for hunk in self._hunks:
            if hunk.exempt:
                yield _tried(hunk)
            elif tried == self._most or self._left <= 0:
                untried += 1
                yield _tried(hunk)
            else:
                tried += 1
                trial = read_trial(self._try(hunk.tree))
                self._left -= trial.seconds
                yield _tried(hunk, trial)
        if untried:
            is_are, was = "is" if self._most == 1 else "are", "was" if untried == 1 else "were"
            why = f"at most {self._most} {is_are} tried" if tried == self._most else "there was no time left"
            self.notes.append(f"{count(untried, 'change')} {was} not tried: {why}.")


def _tried(hunk: Hunk, trial: Trial | None = None) -> TriedHunk:
    held_by = _held_by(trial) if trial else None
    return TriedHunk(file=hunk.file, lines=hunk.lines, exempt=hunk.exempt, held_by=held_by, tried=trial is not None)


def _held_by(trial: Trial) -> tuple[str, ...] | None:
    """Return the tests that noticed; None if all passed. An endless test has noticed as well."""
    if trial.outcome in RED or trial.outcome is TrialOutcome.TIMED_OUT:
        return trial.tests
    return None
