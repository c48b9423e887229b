"""What guards find about the files of a closing is told to people, or fails a validator."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.validation import Validator
from stepflow.domain.checkout import CommandResult, TreeState
from stepflow.domain.end import End
from stepflow.domain.event import ValidatorRan
from stepflow.domain.flow import Done, NotDone, Verdict
from stepflow.domain.words import FailureAction, Outcome
from tests.build import make_entry, make_validator
from tests.engine.test_judge import judge
from tests.fakes import CLOSING, TableCommands

CHANGED = replace(CLOSING, touched={"tsconfig.json": "changed", "src/a.ts": "changed", "x.json": "added"})
GREEN = CommandResult(exit_code=0, stderr="warning: Permission denied somewhere")
GUARDED = make_validator("types", "tsc", guards=("*.json",))
BLOCKING = make_validator("types", "tsc", guards=("*.json",), guard="block")


def judge_guarded(
    validator: Validator, closing: TreeState = CHANGED, result: CommandResult = GREEN
) -> tuple[Verdict, ValidatorRan]:
    verdict, ran = judge(make_entry("c", validator), TableCommands({validator.command: [result]}), closing=closing)
    return verdict, ran[0]


def test_a_changed_file_is_reported_and_passes() -> None:
    verdict, ran = judge_guarded(GUARDED)
    assert verdict == Done(validated=True, closing=CHANGED)
    assert ran.passed
    assert ran.warnings == ("files this validator depends on were changed: tsconfig.json (changed), x.json (added)",)


def test_a_changed_file_fails_a_validator_that_blocks_and_the_model_is_told_to_put_it_back() -> None:
    verdict, ran = judge_guarded(BLOCKING)
    assert isinstance(verdict, NotDone)
    assert "put them back as they were when the run began:\ntsconfig.json (changed)\nx.json (added)" in (
        verdict.failure.error
    )
    assert not ran.passed
    verdict, _ = judge_guarded(BLOCKING.model_copy(update={"recoverable_by_default": False}))
    assert isinstance(verdict, End)
    assert verdict.outcome is Outcome.VALIDATION_FAILED
    assert "files it depends on were changed: tsconfig.json (changed), x.json (added)" in verdict.reason


def test_a_red_validator_tells_of_changed_files_too() -> None:
    verdict, ran = judge_guarded(BLOCKING, result=CommandResult(exit_code=1, stderr="a.ts: error"))
    assert isinstance(verdict, NotDone)
    assert "put them back" in verdict.failure.error
    assert verdict.failure.error.endswith("a.ts: error")
    assert len(ran.warnings) == 1


def test_many_files_are_counted() -> None:
    many = replace(CLOSING, touched={f"{number:02}.json": "added" for number in range(30)})
    verdict, ran = judge_guarded(GUARDED, many)
    assert isinstance(verdict, Done)
    assert ran.warnings[0].endswith("19.json (added) and 10 more")


def test_tracked_files_that_differ_from_the_commit_are_handed_on_when_all_is_green() -> None:
    closing = replace(CLOSING, changed=("src/size.py",))
    entry = make_entry("c", make_validator("a", "a"), make_validator("b", "b"))
    assert judge(entry, TableCommands(), closing=closing)[0] == Done(validated=True, closing=closing)


def test_files_that_cannot_be_taken_out_of_the_workspace_fail_a_validator_whatever_it_says() -> None:
    broken = TreeState(problem="there is no commit yet")
    verdict, ran = judge(make_entry("c", make_validator("a", "a")), TableCommands(), closing=broken)
    assert isinstance(verdict, NotDone)
    assert not ran[0].passed


def test_files_that_cannot_be_taken_out_of_the_workspace_refuse_even_where_validators_may_fail() -> None:
    entry = make_entry("c", make_validator("a", "a"), action=FailureAction.SKIP)
    verdict, _ = judge(entry, TableCommands(), closing=TreeState(problem="there is no commit yet"))
    assert isinstance(verdict, End)
    assert verdict.outcome is Outcome.REFUSED
    assert "there is no commit yet" in verdict.reason
