"""Proves a change by running its tests on versions of the files: without the change, with it, and without single parts
of it. Compares the versions by text as well: what a change takes away from its tests, what looks written for their
input, and where only comments or formatting differ. It knows the usual words of Python, JavaScript and TypeScript, Go,
Rust, Java and Ruby."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from stepflow.domain.checkout import CommandResult, glob_expression
from stepflow.domain.proof import (
    MOST_TESTS,
    RED,
    ChangedTestFile,
    ChangeTrees,
    Hunk,
    Proof,
    ProofSettings,
    ProofVerdict,
    Trial,
    TrialLimits,
    TrialOutcome,
    TriedHunk,
    WeakenedTest,
    Weakening,
)
from stepflow.domain.text import count, excerpt, readable_output
from stepflow.engine.extract import find_failed_tests

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
#: Where jest and vitest keep the snapshots of a test file.
_SNAPSHOTS = re.compile(r"__snapshots__/(?P<test>[^/]+)\.snap$")
#: How tools say that tests were not even built.
_NOT_BUILT = re.compile(
    r"errors? during collection|^ERROR collecting |^_+ ERROR collecting |ImportError while (?:importing|loading)"
    r"|Failed to import test module|unittest\.loader\._FailedTest"
    r"|\[(?:build|setup) failed\]|ERR_MODULE_NOT_FOUND|ERR_PACKAGE_(?:PATH_NOT_EXPORTED|IMPORT_NOT_DEFINED)"
    r"|does not provide an export named|^SyntaxError(?: \[\w+\])?: |Test suite failed to run"
    r"|^ *❯ \S+ \(0 tests?\)|error TS\d+:|^error(?:\[E\d+\])?: could not compile|COMPILATION ERROR"
    r"|cannot load such file|file or directory not found:|ERROR: not found:",
    re.MULTILINE,
)
#: A failed test in vitest, and one that calls what is not there: there, importing a missing name is no error.
_FAILED_IN_VITEST = re.compile(r"^ *FAIL +\S+ > ", re.MULTILINE)
_NOT_THERE = re.compile(
    r"^ *FAIL +\S+ > .*\n+TypeError: \S+ is not a function\n+ *❯ \S+\.(?:test|spec)\.\w+:", re.MULTILINE
)
#: How tools say that there was no test to run.
_NOTHING_RAN = re.compile(
    r"no tests ran|NO TESTS RAN|collected 0 items|no tests to run|\[no test files\]|^[#ℹ] tests 0$|^Ran 0 tests"
    r"|No tests? (?:files )?found|running 0 tests",
    re.MULTILINE,
)
#: Node's own runner, jest, vitest and mocha, whose lines the check patterns do not read.
_FAILED_IN_NODE = re.compile(
    r"^[ \t]*+(?:✖|✕|×|not ok \d+ -|FAIL +\S+ >|●) *+(?P<name>\S.*?)(?: \(?[\d.]+ ?m?s\)?)?(?: # .*)?$", re.MULTILINE
)
_NO_NAMES = re.compile(r"failing tests:|.*\.(?:test|spec)\.\w+|\S+\.[cm]?[jt]s", re.IGNORECASE)
_OUTPUT_SHOWN = 2000
#: All trials of parts together may take this many times what the tests take once, and at least so many seconds.
TIME_FACTOR = 3.0
LEAST_SECONDS = 30.0
#: A part without which the tests take this many times as long, and at least so many seconds, makes them endless.
HANGS_FACTOR = 2.0
HANGS_SECONDS = 10.0


def is_test(path: str, patterns: Iterable[str] = TEST_FILES) -> bool:
    """Return whether a file is a test file."""
    return any(re.fullmatch(glob_expression(pattern), path, re.DOTALL) for pattern in patterns)


def runnable_tests(tests: Iterable[str]) -> tuple[str, ...]:
    """Return the test files that a test runner can be given by name, for a snapshot the one that has written it; all of
    them if none looks like that."""
    tests = tuple(dict.fromkeys(_SNAPSHOTS.sub(r"\g<test>", path) for path in tests))
    return tuple(path for path in tests if _RUNNABLE.fullmatch(path)) or tests


def read_trial(result: CommandResult) -> Trial:
    """Return what a command's result says about the tests."""
    output = readable_output(result.output)
    if result.timed_out:
        shown = excerpt(result.error or output, _OUTPUT_SHOWN)
        return Trial(outcome=TrialOutcome.TIMED_OUT, output=shown, seconds=result.seconds)
    if not result.started:
        shown = excerpt(": ".join(filter(None, (result.error, output.strip()))), _OUTPUT_SHOWN)
        return Trial(outcome=TrialOutcome.NOT_STARTED, output=shown, seconds=result.seconds)
    if _NOTHING_RAN.search(output) and not _passed_some(output):
        outcome = TrialOutcome.NOTHING_RAN
    elif result.exit_code == 0:
        return _passed_trial(output, result.seconds)
    else:
        # A test in vitest that calls a missing name was not built; if all that fail are, none was.
        not_there = len(_NOT_THERE.findall(output))
        is_missing = not_there and not_there == len(_FAILED_IN_VITEST.findall(output))
        outcome = TrialOutcome.NOT_BUILT if _NOT_BUILT.search(output) or is_missing else TrialOutcome.FAILED
    return Trial(
        outcome=outcome,
        tests=_failed_tests(output),
        output=excerpt(output, _OUTPUT_SHOWN).strip(),
        seconds=result.seconds,
    )


def _passed_some(output: str) -> bool:
    """Return whether some tests ran although others had none, as with packages of Go."""
    some = r"^(?:ok  \t(?!.*\[no tests to run\])|--- FAIL|[#ℹ] pass [1-9])|\b[1-9]\d* (?:passed|failed)"
    return bool(re.search(some, output, re.MULTILINE))


#: How runners count what passed and what was skipped.
_PASSED = re.compile(r"\b(\d+) (?:passed|passing)\b|^[#ℹ] pass (\d+)$|^(--- PASS)", re.MULTILINE)
_SKIPPED = re.compile(
    r"\b(\d+) (?:skipped|ignored|pending|xfailed)\b|^[#ℹ] skipped (\d+)$|\b(?:skipped|failures)=(\d+)|(--- SKIP)",
    re.MULTILINE,
)
#: unittest counts what ran; whether what was skipped is part of it depends on the version of Python.
_RAN = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)


def _passed_trial(output: str, seconds: float) -> Trial:
    ran, passed, skipped = (_count(pattern, output) for pattern in (_RAN, _PASSED, _SKIPPED))
    if passed is None and not skipped:
        passed = ran
    return Trial(outcome=TrialOutcome.PASSED, seconds=seconds, passed=passed, skipped=skipped or 0)


def _count(pattern: re.Pattern[str], output: str) -> int | None:
    """Return the sum of what the pattern finds: a number, or one for a name; None if it finds nothing."""
    found = [next(filter(None, match.groups())) for match in pattern.finditer(output)]
    return sum(int(text) if text.isdigit() else 1 for text in found) if found else None


def _failed_tests(output: str) -> tuple[str, ...]:
    lines = output.splitlines()
    names = [str(found["name"]) for found in find_failed_tests(lines)]
    # Node lists what failed once more, then without the suites.
    listed = output.partition("✖ failing tests:\n")[2] or output
    in_node = (match["name"].strip() for match in _FAILED_IN_NODE.finditer(listed))
    names += [name for name in in_node if not _NO_NAMES.fullmatch(name)]
    # Others name a test twice, the second time with its suites.
    short = {name.rpartition(sign)[2] for name in names for sign in (" > ", " › ") if sign in name}
    return tuple(dict.fromkeys(name for name in names if name not in short))[:MOST_TESTS]


#: Runs the command on trees: a result for each, in their order, None where there was no time left.
Try = Callable[[Sequence[str], TrialLimits], Sequence[CommandResult | None]]


def prove_change(change: ChangeTrees, try_trees: Try, settings: ProofSettings) -> Proof:
    """Run the trials that decide, in the order in which each makes the next worthwhile."""
    proof = Proof(
        verdict=ProofVerdict.NO_TESTS,
        reason="The change has no test file.",
        tests=change.tests,
        weakened=find_weakened(change.test_files),
        policy=settings.hunks,
    )
    if not change.tests:
        return proof
    after = _try_twice(change.after, try_trees)
    if problem := _problem_after(after):
        verdict = ProofVerdict.NOT_TRIED if after.outcome is TrialOutcome.NOT_STARTED else ProofVerdict.UNPROVEN
        return replace(proof, verdict=verdict, reason=problem, after=after)
    before = _try_twice(change.before, try_trees)
    verdict = ProofVerdict.PROVEN if before.outcome in RED else ProofVerdict.UNPROVEN
    proof = replace(proof, verdict=verdict, reason=_WITHOUT[before.outcome], before=before, after=after)
    return _try_parts(proof, change, try_trees, settings.most_hunks) if verdict is ProofVerdict.PROVEN else proof


def _try_twice(tree: str, try_trees: Try) -> Trial:
    late = Trial(outcome=TrialOutcome.TIMED_OUT)
    results = try_trees((tree, tree), TrialLimits())
    first, second = (read_trial(result) if result else late for result in results)
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
    # Without its only part, the change is the base.
    trials = {change.before: proof.before}
    trees = [tree for tree in (*old, *(hunk.tree for hunk in chosen)) if tree not in trials]
    for tree, result in zip(trees, try_trees(trees, limits), strict=True):
        trials[tree] = read_trial(result) if result else None
    tried = {hunk: trial for hunk in chosen if (trial := trials[hunk.tree])}
    return replace(
        proof,
        hunks=tuple(_tried_hunk(hunk, tried.get(hunk)) for hunk in change.hunks),
        weakened=(*(_failing(trials[old[0]], change) if old else ()), *proof.weakened),
        notes=(
            *_name_untried(change, chosen, tried),
            *(_passing_less(trials[old[0]], proof) if old else ()),
            *(
                f"{hunk.place} may be written for the input of a test: it compares with a literal of that test."
                for hunk in find_special_cases(change.test_files, change.hunks)
            ),
        ),
    )


def _failing(old: Trial | None, change: ChangeTrees) -> Iterator[WeakenedTest]:
    """Yield the tests that fail as they were in the base."""
    if old and old.outcome is not TrialOutcome.PASSED:
        yield from (WeakenedTest(name=name, how=Weakening.FAILS) for name in old.tests or change.tests)


def _passing_less(old: Trial | None, proof: Proof) -> Iterator[str]:
    """Say that fewer tests pass than before, or more are skipped, where the text of the test files does not explain
    it."""
    now, than = proof.after, "than with the test files of the base"
    if old is None:
        yield "There was no time left for the tests of the base."
    elif now and old.outcome is TrialOutcome.PASSED and not proof.weakened:
        if old.passed is not None and now.passed is not None and now.passed < old.passed:
            yield f"Fewer tests pass {than}: {now.passed} instead of {old.passed}."
        if now.skipped > old.skipped:
            yield f"More tests are skipped {than}: {now.skipped} instead of {old.skipped}."


def _name_untried(change: ChangeTrees, chosen: Sequence[Hunk], tried: Collection[Hunk]) -> Iterator[str]:
    beyond = sum(not hunk.exempt for hunk in change.hunks) - len(chosen)
    late = len(chosen) - len(tried)
    why = (f"at most {len(chosen)} {'is' if len(chosen) == 1 else 'are'} tried", "there was no time left")
    for number, reason in zip((beyond, late), why, strict=True):
        if number:
            yield f"{count(number, 'change')} {'was' if number == 1 else 'were'} not tried: {reason}."


def _tried_hunk(hunk: Hunk, trial: Trial | None) -> TriedHunk:
    """Return the part with the tests that noticed, None if all passed. An endless test has noticed as well, and so have
    tests that cannot be started."""
    noticed = {*RED, TrialOutcome.TIMED_OUT, TrialOutcome.NOT_STARTED}
    held_by = trial.tests if trial and trial.outcome in noticed else None
    return TriedHunk(file=hunk.file, lines=hunk.lines, exempt=hunk.exempt, held_by=held_by, tried=trial is not None)


#: A line that begins a test, or what contains tests.
_BEGINS = re.compile(
    r"""^[ \t]*(?:
      (?:async[ ])?def[ ](?P<function>test\w*)
    | func[ ](?P<go>(?:Test|Fuzz|Example)\w*)\(
    | [xf]?(?:it|test|specify)(?:\.\w+)*(?:\(\s*|[ ])(?P<quote>["'`])(?P<title>.+?)(?P=quote)
    | (?:\#\[(?:\w+::)*test\b.*|@(?:Parameterized|Repeated)?Test\b.*)\n(?:[ \t]*+(?:\#\[|@).*\n){0,30}
      [ \t]*(?:pub[ ]|public[ ]|async[ ]|final[ ])*(?:fn|void)[ ](?P<annotated>\w+)
    | class[ ](?P<class>\w+)
    | [xf]?(?:describe|context)(?:\.\w+)*(?:\(\s*|[ ])(?P<mark>["'`])(?P<group>.+?)(?P=mark)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_TESTS = ("function", "go", "title", "annotated")
_ANY = (*_TESTS, "class", "group")
#: What marks a test, the first that a line has.
_MARKS = (
    (
        Weakening.EXPECTED_FAILURE,
        re.compile(r"\bexpectedFailure\b|\bmark\.xfail\b|\bpytest\.xfail\(|\b(?:it|test)\.(?:fails|failing)\("),
    ),
    (
        Weakening.MAY_BE_SKIPPED,
        re.compile(
            r"\bskip(?:if|If|Unless)\(|\bpytest\.(?:skip|importorskip)\(|\.skipTest\(|\b[tb]\.Skip(?:f|Now)?\("
            r"|@(?:Disabled|Enabled)\w+\(|^\s*(?:skip|pending)\b.* (?:if|unless) "
        ),
    ),
    (
        Weakening.SKIPPED,
        re.compile(
            r"\bmark\.skip\b|\bunittest\.skip\(|\b(?:it|test|describe|context|suite)\.(?:skip|todo)\b|#\[ignore\b"
            r"|\bx(?:it|test|describe|context|specify)(?:\.\w+)*(?:\(\s*| )[\"'`]|@(?:Disabled|Ignore)\b"
            r"|\b(?:skip|todo): ?true\b|^\s*(?:skip|pending)(?:$|\(| [\"'(])"
        ),
    ),
)
_COMMENT = re.compile(r"\s*(?:#(?!\[)|//|\*|/\*)")
_DECORATOR = re.compile(r"\s*(?:@|#\[)")
_ASSERTS = re.compile(
    r"\bassert|\bexpect\b|\.should|\b[tb]\.(?:Error|Fatal|Fail)|\brequire\.[A-Z]|\bpytest\.raises\b|\.must_"
)
#: Text in quotes, or a number.
_LITERAL = re.compile(
    r"""(?P<quote>["'`])(?P<text>(?:(?!(?P=quote))[^\\\n]|\\.){1,500})(?P=quote)|\b(?P<number>\d[\d_.]*)\b"""
)
_COMPARES = re.compile(r"[=!]==?|\b(?:is|in|case|when)\b|\.equals\(")
_SHORTEST_INPUT = 2
#: Files with what tests expect, written by the tests themselves.
_SNAPSHOT = re.compile(r"(?:.*/)?(?:__snapshots__|snapshots?|golden|goldens)/.*|.*\.(?:snap|golden|approved(?:\.\w+)?)")


@dataclass(frozen=True, kw_only=True)
class _Test:
    name: str
    file: str
    body: str


def find_weakened(files: Iterable[ChangedTestFile]) -> tuple[WeakenedTest, ...]:
    """Return the tests of the changed test files that are gone, marked, or assert less, in this order."""
    files = tuple(files)
    before = [test for each in files for test in _tests(each.file, each.before or "")]
    after = [test for each in files for test in _tests(each.file, each.after or "")]
    return (
        *_find_removed(files, before, after),
        *_find_marked(files),
        *_asserting_less(before, after),
        *(
            WeakenedTest(name=each.file, file=each.file, how=Weakening.REWRITTEN)
            for each in files
            if _SNAPSHOT.fullmatch(each.file) and None not in (each.before, each.after)
        ),
    )


def _tests(file: str, text: str) -> Iterator[_Test]:
    begins = list(_BEGINS.finditer(text))
    ends = (*(begin.start() for begin in begins[1:]), len(text))
    for begin, end in zip(begins, ends, strict=False):
        if name := _name(begin, _TESTS):
            yield _Test(name=name, file=file, body=text[begin.start() : end])


def _name(begin: re.Match[str], groups: Iterable[str]) -> str:
    return next((begin[group] for group in groups if begin[group]), "")


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if not _COMMENT.match(line))


def _find_removed(
    files: Iterable[ChangedTestFile], before: Iterable[_Test], after: Iterable[_Test]
) -> Iterator[WeakenedTest]:
    left = Counter(test.name for test in after)
    here = Counter((test.name, test.file) for test in after)
    gone = Counter(test.name for test in before) - left
    for test in before:
        if here[test.name, test.file]:
            here[test.name, test.file] -= 1
        elif gone[test.name]:
            gone[test.name] -= 1
            yield WeakenedTest(name=test.name, file=test.file, how=Weakening.REMOVED)
    known = {test.file for test in before}
    for each in files:
        if each.after is None and each.file not in known:
            yield WeakenedTest(name=each.file, file=each.file, how=Weakening.REMOVED)


def _find_marked(files: Sequence[ChangedTestFile]) -> Iterator[WeakenedTest]:
    known = Counter((mark.name, mark.how) for each in files for mark in _marks(each.file, each.before or ""))
    for mark in (mark for each in files for mark in _marks(each.file, each.after or "")):
        if known[mark.name, mark.how]:
            known[mark.name, mark.how] -= 1
        else:
            yield mark


def _marks(file: str, text: str) -> Iterator[WeakenedTest]:
    """Yield the test of each mark: the next one for a decorator, else the one that the line is part of."""
    begins = list(_BEGINS.finditer(text))
    start, decorator = 0, -1
    for line in text.splitlines(keepends=True):
        at, start = start, start + len(line)
        decorator = at if _DECORATOR.match(line) else decorator
        how = None if _COMMENT.match(line) else next((how for how, mark in _MARKS if mark.search(line)), None)
        if how:
            owner = next((begin for begin in reversed(begins) if begin.start() < start), None)
            if decorator > (owner.start() if owner else -1):
                owner = next((begin for begin in begins if begin.end() > at), owner)
            elif owner and owner.start() < at and not line[0].isspace():
                owner = None
            yield WeakenedTest(name=_name(owner, _ANY) if owner else file, file=file, how=how)


def _asserting_less(before: Iterable[_Test], after: Iterable[_Test]) -> Iterator[WeakenedTest]:
    was, is_now = _assertions(before), _assertions(after)
    for (name, file), (tests, number) in was.items():
        tests_now, number_now = is_now.get((name, file), (0, 0))
        if tests == tests_now and number_now < number:
            yield WeakenedTest(name=name, file=file, how=Weakening.ASSERTS_LESS)


def _assertions(tests: Iterable[_Test]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many tests of one name a file has, and how many lines of them assert something."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for test in tests:
        number, assertions = found.get((test.name, test.file), (0, 0))
        more = sum(bool(_ASSERTS.search(line)) for line in _lines(test.body))
        found[test.name, test.file] = number + 1, assertions + more
    return found


def find_special_cases(files: Iterable[ChangedTestFile], hunks: Iterable[Hunk]) -> Iterator[Hunk]:
    """Yield hunks that compare something with a literal of a new or changed test and have another literal of that test
    as well, as `if text == "1d": return 1440` does."""
    tests = [literals for each in files if each.after for literals in _new_literals(each)]
    for hunk in hunks:
        lines = [*_lines(hunk.added)]
        compared = {text for line in lines if _COMPARES.search(line) for text in _literals(line, _SHORTEST_INPUT)}
        known = {text for line in lines for text in _literals(line)}
        if any(test & known - {text} for test in tests for text in compared & test):
            yield hunk


def _new_literals(file: ChangedTestFile) -> Iterator[set[str]]:
    old = set((file.before or "").splitlines())
    for test in _tests(file.file, file.after or ""):
        yield {text for line in _lines(test.body) if line not in old for text in _literals(line)}


def _literals(line: str, shortest: int = 1) -> Iterator[str]:
    for match in _LITERAL.finditer(line):
        text = match["text"] or match["number"]
        if len(text) >= shortest:
            yield text
