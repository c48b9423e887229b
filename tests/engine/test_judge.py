"""A closing counts only when its validators say so."""

from __future__ import annotations

import time

import pytest

from stepflow.domain.agent.definition import Condition, ValidationEntry
from stepflow.domain.agent.validation import ExitCode, OutputContains, OutputEmpty, OutputMatches
from stepflow.domain.checkout import CommandResult, TreeState
from stepflow.domain.end import End
from stepflow.domain.event import ValidatorRan
from stepflow.domain.flow import Done, NotDone, Verdict
from stepflow.domain.words import FailureAction, Outcome, Stage
from stepflow.engine.judge import has_passed, judge_completion
from tests.build import make_entry, make_validator
from tests.fakes import CLOSING, TableChecks, TableCommands


def result(exit_code: int = 0, stdout: str = "", **more: object) -> CommandResult:
    return CommandResult(exit_code=exit_code, stdout=stdout, **more)


@pytest.mark.parametrize(
    ("success", "given", "passes"),
    [
        (OutputEmpty(), result(0, " \n"), True),
        (OutputEmpty(), result(0, "x"), False),
        (OutputEmpty(), result(1, ""), False),
        (ExitCode(code=3), result(3), True),
        (ExitCode(code=3), result(0), False),
        (OutputContains(text="ok"), result(7, "all ok"), True),
        (OutputContains(text="ok"), result(0, "no"), False),
        (OutputMatches(pattern=r"^\d+ passed$"), result(1, "12 passed"), True),
        (OutputMatches(pattern=r"^\d+ passed$"), result(0, "12 passed, 1 failed"), False),
        (OutputMatches(pattern="^(a+)+$"), result(0, "a" * 100 + "!"), False),
        (OutputContains(text=""), result(-1, timed_out=True), False),
        (ExitCode(code=-1), result(-1, started=False), False),
    ],
)
def test_each_success_rule_looks_at_what_the_spec_names(success, given: CommandResult, passes: bool) -> None:
    assert has_passed(success, given) is passes


def test_a_pattern_that_takes_too_long_is_red_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepflow.engine.gate.SECONDS", 0.3)
    monkeypatch.setattr("stepflow.engine.judge.SECONDS", 0.3)
    validator = make_validator("slow", "check", success_when="matches:^(?:a|a?)+$")
    begun = time.monotonic()
    verdict, ran = judge(
        make_entry("c", validator, action=FailureAction.ABORT),
        TableCommands({"check": [result(0, "a" * 100_000 + "!")]}),
    )
    assert time.monotonic() - begun < 60
    assert verdict == End(
        outcome=Outcome.VALIDATION_FAILED,
        stage=Stage.COMPLETION,
        reason='validator "slow" failed (slow fails; its output has no match for "^(?:a|a?)+$", '
        "or none that is found within 0.3 s)",
    )
    assert [event.passed for event in ran] == [False]


def judge(
    entry: ValidationEntry, commands: TableCommands, failures: int = 0, *, closing: TreeState = CLOSING
) -> tuple[Verdict, list[ValidatorRan]]:
    ran: list[ValidatorRan] = []
    verdict = judge_completion(
        entry,
        iteration=4,
        failures=failures,
        root="/repo",
        checks=TableChecks(commands, closing).opened,
        record=ran.append,
    )
    return verdict, ran


def test_parameters_of_a_condition_are_put_into_the_command_once_and_unknown_ones_stay() -> None:
    validator = make_validator("v", "check ${dir} ${other} ${dir}")
    entry = ValidationEntry(id="c", conditions=(Condition(validator=validator, params={"dir": "${other}"}),))
    commands = TableCommands()
    judge(entry, commands)
    assert commands.ran[0].argv == ("sh", "-c", "check ${other} ${other} ${other}")


def test_the_branch_is_asked_for_only_when_an_extractor_needs_it() -> None:
    validator = make_validator("pushed", "git rev-parse @{u}", extract_params={"branch": "parseBranchName"})
    commands = TableCommands(
        {
            "git rev-parse @{u}": [result(128, "a b\n", stderr="fatal: no upstream")],
            "--show-current": [result(0, "topic\n")],
        }
    )
    verdict, _ran = judge(make_entry("c", validator), commands)
    assert isinstance(verdict, NotDone)
    assert verdict.failure.values == {"branch": "topic"}


def test_the_error_text_is_both_streams_with_the_engines_own_words_first() -> None:
    def error_of(given: CommandResult) -> str:
        verdict, _ran = judge(make_entry("c", make_validator("v", "x")), TableCommands({"x": [given]}))
        assert isinstance(verdict, NotDone)
        return verdict.failure.error

    assert error_of(result(1, "out", stderr="err")) == "out\nerr"
    assert error_of(result(1, "out\n", stderr="err\n", combined="err\n\x1b[31mout\x1b[0m\n")) == "err\nout\n"
    assert error_of(result(1, "out", stderr="")) == "out"
    assert error_of(result(-1, "out", timed_out=True, error="timed out after 5 s")) == "timed out after 5 s\nout"


def test_the_journal_keeps_the_tail_of_a_long_output() -> None:
    long = result(1, "x" * 10_000 + "END")
    _verdict, (ran,) = judge(make_entry("c", make_validator("v", "x")), TableCommands({"x": [long]}))
    assert 3900 < len(ran.output_tail) <= 4000
    assert ran.output_tail.endswith("END")
    assert (ran.iteration, ran.attempt, ran.max_attempts, ran.action) == (4, 1, 3, FailureAction.RETRY)


def test_the_first_red_validator_stops_the_list_and_skip_goes_on() -> None:
    first, second = make_validator("a", "red"), make_validator("b", "green")
    table = {"red": [result(1)]}
    stopped, ran = judge(make_entry("c", first, second), TableCommands(table))
    assert isinstance(stopped, NotDone)
    assert [event.name for event in ran] == ["a"]
    skipped, ran = judge(make_entry("c", first, second, action=FailureAction.SKIP), TableCommands(table))
    assert skipped == Done(validated=False, closing=CLOSING)
    assert [(event.name, event.action) for event in ran] == [("a", FailureAction.SKIP), ("b", None)]


def test_the_last_attempt_fails_the_run_and_says_which_it_was() -> None:
    verdict, _ran = judge(make_entry("c", make_validator("v", "x")), TableCommands({"x": [result(1)]}), failures=2)
    assert isinstance(verdict, End)
    assert "attempt 3 of 3" in verdict.reason
