"""What is found beside a validator's own words fails it, or is told to people."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.definition import ValidationEntry
from stepflow.domain.agent.validation import Validator
from stepflow.domain.checkout import Closing, CommandResult, GuardDiagnostics
from stepflow.domain.event import ValidatorRan
from stepflow.domain.flow import Done, NotDone, Stop, Verdict
from stepflow.domain.words import FailureAction, Outcome
from tests.build import make_entry, make_validator
from tests.engine.test_judge import judge
from tests.fakes import CLOSING, TableCommands, TableGuards

CLEAN = make_validator(
    "clean",
    "git status --porcelain",
    empty=True,
    extract_params={"changed": "parseChangedFiles", "new": "parseUntrackedFiles"},
)
HIDDEN = GuardDiagnostics(hidden=(" M a.py", "?? b.py"))
CHANGED = GuardDiagnostics(changed=("tsconfig.json (changed)", "x.json (added)"))
GREEN = CommandResult(exit_code=0, stderr="warning: Permission denied somewhere")


def judge_guarded(
    validator: Validator, diagnostics: GuardDiagnostics, result: CommandResult = GREEN, failures: int = 0
) -> tuple[Verdict, ValidatorRan]:
    commands, guards = TableCommands({validator.command: [result]}), TableGuards({validator.name: [diagnostics]})
    verdict, ran = judge(make_entry("c", validator), commands, failures, guards=guards)
    return verdict, ran[0]


def test_files_that_are_hidden_from_git_make_a_green_validator_red_and_are_named_to_the_model() -> None:
    verdict, ran = judge_guarded(CLEAN, HIDDEN)
    assert isinstance(verdict, NotDone)
    assert verdict.failure.values == {"changed": ["a.py"], "new": ["b.py"]}
    assert verdict.failure.stdout == " M a.py\n?? b.py\n"
    assert "only hidden from git" in verdict.failure.error
    assert "a file that goes through a git filter has to stay as it was" in verdict.failure.error
    assert "?? b.py" in verdict.failure.error
    assert not ran.passed
    assert ran.warnings == ["files were hidden from git: M a.py, ?? b.py"]
    assert ran.output_tail.startswith(" M a.py\n?? b.py\n")


def test_hidden_files_use_up_attempts_like_any_failure() -> None:
    verdict, _ = judge_guarded(CLEAN, HIDDEN, failures=2)
    assert isinstance(verdict, Stop)
    assert verdict.outcome is Outcome.VALIDATION_FAILED
    assert verdict.reason == 'validator "clean" failed (clean fails; files are hidden from git) in attempt 3 of 3'


def test_a_git_that_cannot_be_asked_again_fails_the_validator() -> None:
    verdict, ran = judge_guarded(
        CLEAN, GuardDiagnostics(problem="git could not be asked a second time: `.git` is gone")
    )
    assert isinstance(verdict, NotDone)
    assert verdict.failure.error.startswith("git could not be asked a second time: `.git` is gone.")
    assert ran.warnings == ["git could not be asked a second time: `.git` is gone"]


def test_a_changed_file_is_reported_and_passes() -> None:
    verdict, ran = judge_guarded(make_validator("types", "tsc", guards=("*.json",)), CHANGED)
    assert verdict == Done(validated=True, closing=CLOSING)
    assert ran.passed
    assert ran.warnings == ["files this validator depends on were changed: tsconfig.json (changed), x.json (added)"]


def test_a_changed_file_fails_a_validator_that_blocks_and_the_model_is_told_to_put_it_back() -> None:
    verdict, ran = judge_guarded(make_validator("types", "tsc", guards=("*.json",), guard="block"), CHANGED)
    assert isinstance(verdict, NotDone)
    assert "put them back as they were when the run began:\ntsconfig.json (changed)\nx.json (added)" in (
        verdict.failure.error
    )
    assert not ran.passed
    verdict, _ = judge_guarded(make_validator("types", "tsc", guard="block", recoverable_by_default=False), CHANGED)
    assert isinstance(verdict, Stop)
    assert verdict.outcome is Outcome.VALIDATION_FAILED
    assert "files it depends on were changed: tsconfig.json (changed), x.json (added)" in verdict.reason


def test_a_red_validator_tells_of_changed_files_too() -> None:
    red = CommandResult(exit_code=1, stderr="a.ts: error")
    verdict, ran = judge_guarded(make_validator("types", "tsc", guards=("*.json",), guard="block"), CHANGED, red)
    assert isinstance(verdict, NotDone)
    assert "put them back" in verdict.failure.error
    assert verdict.failure.error.endswith("a.ts: error")
    assert len(ran.warnings) == 1


def test_notes_are_for_people_only_and_many_files_are_counted() -> None:
    many = GuardDiagnostics(notes=("look here",), changed=tuple(f"{number} (added)" for number in range(30)))
    verdict, ran = judge_guarded(make_validator("types", "tsc"), many)
    assert isinstance(verdict, Done)
    assert ran.warnings[0] == "look here"
    assert ran.warnings[1].endswith("19 (added) and 10 more")


class TestWhatWouldBePushed:
    """Green validators speak for the commit only when they saw nothing else, from the first to the last."""

    TWO = make_entry("c", make_validator("a", "a"), make_validator("b", "b"))

    def judge(self, entry: ValidationEntry, guards: TableGuards, commands: TableCommands | None = None) -> Verdict:
        return judge(entry, commands or TableCommands(), guards=guards)[0]

    def test_the_closing_is_the_one_before_the_first_validator_with_what_the_validators_made(self) -> None:
        guards = TableGuards({"b": [GuardDiagnostics(created=("report.xml",))]})
        verdict = self.judge(self.TWO, guards)
        assert verdict == Done(validated=True, closing=replace(CLOSING, created=("report.xml",)))
        assert guards.compared == [("a", True), ("b", True)]

    def test_a_path_that_moves_below_a_green_validator_refuses_and_no_other_validator_runs(self) -> None:
        guards = TableGuards({"a": [GuardDiagnostics(moved=("HEAD (from 1 to 2)", "src/size.py"))]})
        verdict = self.judge(self.TWO, guards)
        assert isinstance(verdict, Stop)
        assert verdict.outcome is Outcome.REFUSED
        assert 'while validator "a" ran' in verdict.reason
        assert "HEAD (from 1 to 2), src/size.py" in verdict.reason
        assert guards.compared == [("a", True)]

    def test_a_red_validator_below_which_a_path_moves_is_red(self) -> None:
        guards = TableGuards({"a": [GuardDiagnostics(moved=("src/size.py",))]})
        commands = TableCommands({"a": [CommandResult(exit_code=1)]})
        assert isinstance(self.judge(self.TWO, guards, commands), NotDone)

    def test_a_red_validator_that_is_skipped_does_not_hide_that_a_path_moved(self) -> None:
        entry = make_entry("c", make_validator("a", "a"), action=FailureAction.SKIP)
        guards = TableGuards({"a": [GuardDiagnostics(moved=("src/size.py",))]})
        verdict = self.judge(entry, guards, TableCommands({"a": [CommandResult(exit_code=1)]}))
        assert isinstance(verdict, Stop)
        assert verdict.outcome is Outcome.REFUSED

    def test_tracked_files_that_differ_from_the_commit_are_handed_on_when_all_is_green(self) -> None:
        closing = replace(CLOSING, changed=("src/size.py",))
        guards = TableGuards(closes_at=closing)
        assert self.judge(self.TWO, guards) == Done(validated=True, closing=closing)
        assert len(guards.compared) == 2

    def test_a_checkout_that_cannot_be_looked_at_refuses_when_all_is_green(self) -> None:
        verdict = self.judge(self.TWO, TableGuards(closes_at=Closing(problem="there is no commit yet")))
        assert isinstance(verdict, Stop)
        assert verdict.outcome is Outcome.REFUSED
        assert "there is no commit yet" in verdict.reason
