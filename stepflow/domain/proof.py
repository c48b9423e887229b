"""Proof of fix: whether the tests of a change fail without it, pass with it, and notice when a part of it is gone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

#: Where the changed test files go in the command of a proof.
TESTS_PLACEHOLDER = "{tests}"
#: Parts of a change that are tried by themselves.
MOST_HUNKS = 20


class ProofVerdict(StrEnum):
    """The verdict on a change."""

    #: Its tests fail without the change and pass with it.
    PROVEN = "proven"
    #: They do not.
    UNPROVEN = "unproven"
    #: It contains no test file.
    NO_TESTS = "no_tests"
    #: The command could not be run.
    NOT_TRIED = "not_tried"


class HunkPolicy(StrEnum):
    """Whether a part of a change that no test holds fails its proof, or is only reported."""

    REQUIRE = "require"
    TELL = "tell"


class TrialOutcome(StrEnum):
    """The result of running the command on one version of the files."""

    PASSED = "passed"
    FAILED = "failed"
    #: The tests could not be compiled, imported or collected.
    NOT_BUILT = "not_built"
    NOTHING_RAN = "nothing_ran"
    TIMED_OUT = "timed_out"
    #: Two runs on the same files had different results.
    FLAKY = "flaky"
    #: The command could not be started.
    NOT_STARTED = "not_started"


#: A trial names at most so many failed tests.
MOST_TESTS = 20
#: Outcomes that show that a command noticed something.
RED = frozenset({TrialOutcome.FAILED, TrialOutcome.NOT_BUILT})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One version of the files, tried. `tests` names those that failed, as far as the output does."""

    outcome: TrialOutcome
    tests: tuple[str, ...] = ()
    #: The end of the output of a trial that did not pass.
    output: str = ""
    seconds: float = 0.0
    #: How many tests passed, None where the output does not say; and how many it says were skipped.
    passed: int | None = None
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class TrialLimits:
    """Seconds that each command of some trials may take, and all of these trials together, with what prepares them."""

    each: float = math.inf
    together: float = math.inf


@dataclass(frozen=True, kw_only=True)
class ChangedLines:
    """A part of the change outside of its tests that can be reverted by itself.

    `lines` are the first and the last one in the file as changed; both are 0 for lines or files that the change only
    removes.
    """

    file: str
    lines: tuple[int, int]
    #: Why no test can notice it: it changes comments or formatting only. Empty otherwise.
    exempt: str = ""

    @property
    def place(self) -> str:
        """File and lines, as people write them: `a.py:3-5`, or `a.py` if there are no lines."""
        first, last = self.lines
        lines = f"{first}" if first == last else f"{first}-{last}"
        return f"{self.file}:{lines}" if first else self.file


@dataclass(frozen=True, kw_only=True)
class Hunk(ChangedLines):
    """A hunk with the tree of the change without it, and the lines that it adds."""

    tree: str
    added: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangedTestFile:
    """A test file of the change, by its later name, with its text before and after: None where it did not exist."""

    file: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class ChangeTrees:
    """A change as trees of git. `tests` are its test files that exist in its last version."""

    tests: tuple[str, ...]
    #: The last version of everything.
    after: str
    #: The base with the change's test files.
    before: str
    #: The last version where its test files have the text of the base; empty if none of them existed there.
    old_tests: str
    hunks: tuple[Hunk, ...]
    test_files: tuple[ChangedTestFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TriedHunk(ChangedLines):
    """A hunk, and the tests that failed without it: None if it was not tried or no test noticed."""

    held_by: tuple[str, ...] | None
    tried: bool


class Weakening(StrEnum):
    """How a change may weaken a test."""

    #: As it was in the base, it fails with the change.
    FAILS = "fails"
    #: It is gone, or has another name.
    REMOVED = "removed"
    SKIPPED = "skipped"
    #: Skipped under a condition.
    MAY_BE_SKIPPED = "may_be_skipped"
    EXPECTED_FAILURE = "expected_failure"
    #: Fewer of its lines assert something.
    ASSERTS_LESS = "asserts_less"
    #: What it expects was written anew, as by a flag of the test runner.
    REWRITTEN = "rewritten"


@dataclass(frozen=True, kw_only=True)
class WeakenedTest:
    """A test that the change may weaken. Without a name of its own, it is named by its file, which may be unknown."""

    name: str
    file: str = ""
    how: Weakening


@dataclass(frozen=True, kw_only=True)
class ProofSettings:
    """How to prove a change, besides the command."""

    #: Globs of the test files; empty means those that follow the conventions of their language.
    tests: tuple[str, ...] = ()
    most_hunks: int = MOST_HUNKS
    hunks: HunkPolicy = HunkPolicy.TELL


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The verdict with everything that it is based on."""

    verdict: ProofVerdict
    #: One sentence that explains the verdict.
    reason: str
    tests: tuple[str, ...] = ()
    before: Trial | None = None
    after: Trial | None = None
    hunks: tuple[TriedHunk, ...] = ()
    #: By the text of the test files, and by the tests of the base where these were tried.
    weakened: tuple[WeakenedTest, ...] = ()
    #: What was not tried, and why; what looks suspicious.
    notes: tuple[str, ...] = ()
    #: What it was asked to show of the parts.
    policy: HunkPolicy = HunkPolicy.TELL

    @property
    def not_held(self) -> tuple[TriedHunk, ...]:
        """The parts of the change that were tried and that no test holds."""
        return tuple(each for each in self.hunks if each.tried and each.held_by is None)

    @property
    def is_accepted(self) -> bool:
        """Return whether the change is proven as its policy demands."""
        return self.verdict is ProofVerdict.PROVEN and (self.policy is HunkPolicy.TELL or not self.not_held)
