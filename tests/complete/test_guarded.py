"""What is found beside a validator's own words fails it, or is told to people (security.md cases 14 and 15)."""

from __future__ import annotations

from stepflow.complete import judge_completion
from stepflow.domain.command import CommandResult
from stepflow.domain.decision import Done, Failed, NotDone, Verdict
from stepflow.domain.definition import Validator
from stepflow.domain.event import ValidatorRan
from stepflow.domain.guard import GuardFindings
from stepflow.domain.words import CleanTree
from tests.build import make_entry, make_validator
from tests.fakes import EMPTY_TREE, TableCommands, TableGuards

CLEAN = make_validator(
    "clean",
    "git status --porcelain",
    empty=True,
    clean_tree=CleanTree.WHOLE,
    extract={"changed": "parseChangedFiles", "new": "parseUntrackedFiles"},
)
HIDDEN = GuardFindings(hidden=(" M a.py", "?? b.py"))
CHANGED = GuardFindings(changed=("tsconfig.json (changed)", "x.json (added)"))
GREEN = CommandResult(exit_code=0, stderr="warning: Permission denied somewhere")


def judge(
    validator: Validator, findings: GuardFindings, result: CommandResult = GREEN, failures: int = 0
) -> tuple[Verdict, ValidatorRan]:
    ran: list[ValidatorRan] = []
    verdict = judge_completion(
        make_entry("c", validator),
        iteration=1,
        failures=failures,
        root="/repo",
        commands=TableCommands({validator.command: [result]}),
        guards=TableGuards({validator.name: [findings]}),
        record=ran.append,
    )
    return verdict, ran[0]


def test_files_that_are_hidden_from_git_make_a_green_validator_red_and_are_named_to_the_model() -> None:
    verdict, ran = judge(CLEAN, HIDDEN)
    assert isinstance(verdict, NotDone)
    assert verdict.failure.values == {"changed": ["a.py"], "new": ["b.py"]}
    assert verdict.failure.stdout == " M a.py\n?? b.py\n"
    assert "only hidden from git" in verdict.failure.error
    assert "?? b.py" in verdict.failure.error
    assert not ran.passed
    assert ran.warnings == ["files were hidden from git: M a.py, ?? b.py"]
    assert ran.output_tail.startswith(" M a.py\n?? b.py\n")


def test_hidden_files_use_up_attempts_like_any_failure() -> None:
    verdict, _ = judge(CLEAN, HIDDEN, failures=2)
    assert isinstance(verdict, Failed)
    assert verdict.reason == 'validator "clean" failed (clean is red; files are hidden from git) in attempt 3 of 3'


def test_a_git_that_cannot_be_asked_again_fails_the_validator() -> None:
    verdict, ran = judge(CLEAN, GuardFindings(problem="git could not be asked a second time: `.git` is gone"))
    assert isinstance(verdict, NotDone)
    assert verdict.failure.error.startswith("git could not be asked a second time: `.git` is gone.")
    assert ran.warnings == ["git could not be asked a second time: `.git` is gone"]


def test_a_changed_file_is_reported_and_passes() -> None:
    verdict, ran = judge(make_validator("types", "tsc", guards=("*.json",)), CHANGED)
    assert verdict == Done(validated=True, tree=EMPTY_TREE)
    assert ran.passed
    assert ran.warnings == ["files this validator depends on were changed: tsconfig.json (changed), x.json (added)"]


def test_a_changed_file_fails_a_validator_that_blocks_and_the_model_is_told_to_put_it_back() -> None:
    verdict, ran = judge(make_validator("types", "tsc", guards=("*.json",), guard_blocks=True), CHANGED)
    assert isinstance(verdict, NotDone)
    assert "put them back as they were when the run began:\ntsconfig.json (changed)\nx.json (added)" in (
        verdict.failure.error
    )
    assert not ran.passed
    verdict, _ = judge(make_validator("types", "tsc", guard_blocks=True, recoverable=False), CHANGED)
    assert isinstance(verdict, Failed)
    assert "files it depends on were changed: tsconfig.json (changed), x.json (added)" in verdict.reason


def test_a_red_validator_tells_of_changed_files_too() -> None:
    red = CommandResult(exit_code=1, stderr="a.ts: error")
    verdict, ran = judge(make_validator("types", "tsc", guards=("*.json",), guard_blocks=True), CHANGED, red)
    assert isinstance(verdict, NotDone)
    assert "put them back" in verdict.failure.error
    assert verdict.failure.error.endswith("a.ts: error")
    assert len(ran.warnings) == 1


def test_notes_are_for_people_only_and_many_files_are_counted() -> None:
    many = GuardFindings(notes=("look here",), changed=tuple(f"{number} (added)" for number in range(30)))
    verdict, ran = judge(make_validator("types", "tsc"), many)
    assert isinstance(verdict, Done)
    assert ran.warnings[0] == "look here"
    assert ran.warnings[1].endswith("19 (added) and 10 more")


def test_the_tree_is_the_one_before_the_first_validator_and_none_without_any() -> None:
    class MovingTree(TableGuards):
        trees = ("first", "second")

        def head_tree(self) -> str:
            return self.trees[len(self.asked)]

    guards = MovingTree()
    entry = make_entry("c", make_validator("a", "a"))
    verdict = judge_completion(
        entry, iteration=1, failures=0, root="/", commands=TableCommands(), guards=guards, record=lambda _: None
    )
    assert verdict == Done(validated=True, tree="first")
    assert guards.asked == [("a", True)]
