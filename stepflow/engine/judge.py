"""Runs a closing's validators in order and judges whether the work is really done. If a check fails because
something is missing, names it: a program, the project itself, or a package that it declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from stepflow.domain.agent.definition import AgentDefinition, Condition, ValidationEntry
from stepflow.domain.agent.validation import (
    ExitCode,
    OutputContains,
    OutputEmpty,
    OutputMatches,
    SuccessRule,
    Validator,
)
from stepflow.domain.checkout import CommandRequest, CommandResult, TreeState, fits_one_of
from stepflow.domain.end import End
from stepflow.domain.event import BaseChecked, ValidatorRan
from stepflow.domain.flow import Done, NotDone, ValidatorFailure, Verdict
from stepflow.domain.proof import TESTS_PLACEHOLDER
from stepflow.domain.text import excerpt, name_some, readable_output, telling_line
from stepflow.domain.words import FailureAction, Outcome, Stage
from stepflow.engine.extract import extract
from stepflow.engine.gate import SECONDS, PatternTooSlow, Search
from stepflow.errors import BaseCheckError, InputError
from stepflow.ports import Checks, Commands

#: Exit codes of a shell that could not run the command, and what a person should do then.
NOT_RUNNABLE = {
    126: "A file that it starts is not executable: make it so with `chmod +x`, and commit that",
    127: "A program that it starts is missing: install it with the input setup or apt-packages, or fix the command",
}
#: How a shell, Python, make, uv, Poetry, PDM and Bundler say on stderr that a program is missing, when the exit code
#: does not.
MISSING = re.compile(
    r"^(?:\S*sh: (?:line )?(?:\d+: )?.+: (?:command )?not found"
    r"|\S*python[\d.]*(?:\.exe)?: No module named \S+"
    r"|make(?:\[\d+\])?: \*\*\* .* Error 127"
    r"|error: Failed to spawn: \S+"
    r"|Command not found: \S+"
    r"|\[PdmUsageError\]: Command '.+' is not found in your PATH\."
    r"|.*Could not find .+ \(Bundler::GemNotFound\))$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Uninstalled:
    """How a language says that a module cannot be found, and a script that exits with 0 if the module `$1` is one that
    an installation would have brought."""

    says: re.Pattern[str]
    script: str
    explanation: str


MOST_NAMES = 5
#: A module that the repository does not have and does not declare may be what the agent is to add.
UNINSTALLED = (
    Uninstalled(
        says=re.compile(r"^(?:E +)?ModuleNotFoundError: No module named '(\w+)'$", re.MULTILINE),
        script='test -n "$(git ls-files -- ":(glob)$1/**" "$1.py" ":(glob)**/src/$1/**" ":(glob)**/src/$1.py")"',
        explanation="the project is not installed: Python does not find its own `{}`",
    ),
    Uninstalled(
        says=re.compile(
            r"Cannot find (?:module|package) '((?:@[\w.-]+/)?\w[\w.-]*)'(?: (?:imported )?from .*)?$", re.MULTILINE
        ),
        script='test ! -e "node_modules/$1" && git grep --quiet --fixed-strings "\\"$1\\"" -- ":(glob)**/package.json"',
        explanation="the packages of package.json are not installed: Node.js does not find `{}`",
    ),
)


def find_missing_program(result: CommandResult) -> str:
    """Return a command's message about a program that is missing or cannot be started; empty if there is none."""
    match = MISSING.search(result.stderr)
    if match:
        return match[0].strip()
    if result.exit_code in NOT_RUNNABLE:
        return next((line.strip() for line in reversed(error_text(result).splitlines()) if line.strip()), "no output")
    return ""


def find_uninstalled(result: CommandResult, commands: Commands) -> str:
    """Return which part of the project is not installed, if the output says so and the repository confirms it."""
    output = readable_output(result.output)
    for language in UNINSTALLED:
        for name in list(dict.fromkeys(language.says.findall(output)))[:MOST_NAMES]:
            script = ("sh", "-c", language.script, "sh", name)
            ask = CommandRequest(argv=script, timeout=30, about=f"looking for {name}")
            if commands.run_command(ask).exit_code == 0:
                return language.explanation.format(name)
    return ""


def error_text(result: CommandResult) -> str:
    """Return what went wrong: the engine's error, then the command's output."""
    return "\n".join(text for text in (result.error, readable_output(result.output)) if text.strip())


NO_PERMISSION = ("EACCES", "Permission denied")
#: How many characters of a validator's output the journal keeps.
TAIL = 4000
#: How many characters of its most telling line a reason shows.
LINE = 300


def judge_completion(
    entry: ValidationEntry,
    *,
    iteration: int,
    failures: int,
    root: str,
    checks: Checks,
    record: Callable[[ValidatorRan], object],
) -> Verdict:
    """Run the entry's validators; the first that fails decides, except under `skip`. `failures` counts earlier
    attempts."""
    skipped = False
    with checks() as tree:
        for condition in entry.conditions:
            validator, command = condition.validator, validator_command(condition)
            result = tree.run_command(replace(build_request(command, validator), proof=validator.proof))
            passed = not tree.closing.problem and has_passed(validator.success, result)
            run = ConditionRun(entry=entry, validator=validator, attempt=failures + 1, result=result, passed=passed)
            run = _apply_guards(run, tree.closing)
            action = None if passed and not run.faults else _choose_action(run)
            record(_build_event(run, command, iteration, action))
            match action:
                case None:
                    continue
                case FailureAction.SKIP:
                    skipped = True
                case FailureAction.RETRY:
                    return NotDone(failure=_build_failure(run, root, tree))
                case FailureAction.ABORT:
                    return End(outcome=Outcome.VALIDATION_FAILED, stage=Stage.COMPLETION, reason=_describe_end(run))
                case _:
                    assert_never(action)
    if problem := tree.closing.problem:
        reason = f"what would be pushed cannot be checked: {problem}"
        return End(outcome=Outcome.REFUSED, stage=Stage.COMPLETION, reason=reason)
    return Done(validated=not skipped, closing=tree.closing)


@dataclass(frozen=True, kw_only=True)
class ConditionRun:
    """One run of a validator."""

    entry: ValidationEntry
    validator: Validator
    attempt: int
    result: CommandResult
    #: The result alone passes. Any of the `faults` fails the validator all the same.
    passed: bool
    #: Guarded changes that fail the validator.
    faults: tuple[str, ...] = ()
    #: Guarded changes, for people.
    warnings: tuple[str, ...] = ()


def validator_command(condition: Condition) -> str:
    """Return a validator's command, with `${key}` replaced from the condition's parameters."""
    params = condition.params
    return re.sub(r"\$\{([^{}]*)\}", lambda match: params.get(match[1], match[0]), condition.validator.command)


def build_request(command: str, validator: Validator) -> CommandRequest:
    """Return the request to run a validator's command in a shell."""
    return CommandRequest(argv=("sh", "-c", command), timeout=validator.timeout)


def has_passed(rule: SuccessRule, result: CommandResult) -> bool:
    """Return whether a result meets `successWhen`. A command that timed out, did not start, or was ended by a signal
    never does."""
    if result.timed_out or not result.started or result.exit_code < 0:
        return False
    match rule:
        case OutputEmpty():
            return result.exit_code == 0 and not result.stdout.strip()
        case ExitCode(code=code):
            return result.exit_code == code
        case OutputContains(text=text):
            return text in result.stdout
        case OutputMatches(pattern=pattern):
            return bool(_search_output(pattern, result.stdout))
        case _:
            assert_never(rule)


def _search_output(pattern: str, output: str) -> bool | None:
    """Return whether the output matches; None if the search ran out of time."""
    try:
        return Search()(pattern, output)
    except PatternTooSlow:
        return None


def _choose_action(run: ConditionRun) -> FailureAction:
    if _is_final(run):
        return FailureAction.ABORT
    if run.entry.action is FailureAction.RETRY and run.attempt >= run.entry.max_attempts:
        return FailureAction.ABORT
    return run.entry.action


def _is_final(run: ConditionRun) -> bool:
    """Return whether trying again cannot help. The output of a command that passed is no sign of that."""
    validator, result = run.validator, run.result
    return not validator.recoverable_by_default or (
        not run.passed
        and (
            not result.started
            or result.exit_code in NOT_RUNNABLE
            or any(word in result.stderr for word in NO_PERMISSION)
        )
    )


def _describe_end(run: ConditionRun) -> str:
    validator, result = run.validator, run.result
    problem = "; ".join(run.faults) if run.passed else _describe_unmet(validator, result)
    cause = f"{_describe_failure(run).rstrip('.')}; {problem}"
    summary = f'validator "{validator.name}" failed ({cause})'
    if _is_final(run):
        hint = NOT_RUNNABLE.get(result.exit_code or 0)
        # The line that says most about what went wrong.
        said = (result.error.strip().partition("\n")[0] or find_missing_program(result))[:LINE]
        said = said or telling_line(readable_output(result.output), LINE) or "no output"
        return f"{summary}, and trying again cannot help: {said}{f'. {hint}' if hint else ''}"
    if run.entry.action is FailureAction.RETRY:
        return f"{summary} in attempt {run.attempt} of {run.entry.max_attempts}"
    return summary


def _describe_failure(run: ConditionRun) -> str:
    return "it could not run" if run.result.had_no_files else run.validator.pattern.description


def _describe_unmet(validator: Validator, result: CommandResult) -> str:
    """Say in a few words how the result missed `successWhen`."""
    if result.timed_out:
        return f"it took longer than {validator.timeout:g} s"
    if not result.started or result.had_no_files:
        return result.error.partition("\n")[0].rstrip(".")[:LINE] if result.started else "it could not be started"
    match validator.success:
        case OutputEmpty() if result.exit_code == 0:
            return "its output is not empty"
        case OutputContains(text=text):
            return f'its output lacks "{text[:100]}"'
        case OutputMatches(pattern=pattern):
            slow = (
                f", or none that is found within {SECONDS:g} s"
                if _search_output(pattern, result.stdout) is None
                else ""
            )
            return f'its output has no match for "{pattern[:100]}"{slow}'
        case OutputEmpty() | ExitCode():
            return result.proof.reason.rstrip(".") if result.proof else f"exit code {result.exit_code}"
        case _:
            assert_never(validator.success)


def _build_failure(run: ConditionRun, root: str, commands: Commands) -> ValidatorFailure:
    validator, result = run.validator, run.result

    def current_branch() -> str | None:
        request = CommandRequest(argv=("git", "branch", "--show-current"), timeout=30)
        return commands.run_command(request).stdout.strip() or None

    return ValidatorFailure(
        validator=validator.name,
        # The prompt of the validator's pattern is about what its command has said.
        pattern="" if result.had_no_files else validator.pattern.name,
        description=_describe_failure(run),
        error=error_text(result),
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        attempt=run.attempt,
        max_attempts=run.entry.max_attempts,
        values=extract(validator.extract_params, result, root=root, current_branch=current_branch),
    )


def _build_event(run: ConditionRun, command: str, iteration: int, action: FailureAction | None) -> ValidatorRan:
    validator, result = run.validator, run.result
    return ValidatorRan(
        iteration=iteration,
        entry=run.entry.id,
        name=validator.name,
        command=command,
        passed=action is None,
        exit_code=result.exit_code,
        pattern=validator.pattern.name,
        attempt=run.attempt,
        max_attempts=run.entry.max_attempts,
        action=action,
        recoverable=action is None or not _is_final(run),
        seconds=result.seconds,
        warnings=run.warnings,
        output_tail=output_tail(result),
        proof=result.proof,
    )


def output_tail(result: CommandResult) -> str:
    """Return what a command printed, shortened for people."""
    # Strip line breaks only: a blank at the start of `git status --porcelain` has a meaning.
    text = f"{readable_output(result.output)}\n{result.error}".strip("\n")
    return excerpt(text, TAIL)[-TAIL:]


PUT_BACK = "files this validator depends on were changed; put them back as they were when the run began"


def _apply_guards(run: ConditionRun, closing: TreeState) -> ConditionRun:
    """Add which files that a validator depends on were changed since the run began. They fail it only with
    `guard: block`."""
    is_guarded = fits_one_of(run.validator.guards)
    changed = tuple(f"{path} ({state})" for path, state in closing.touched.items() if is_guarded(path))
    if not changed:
        return run
    named, words = f"were changed: {name_some(changed)}", run.result.error
    faults: tuple[str, ...] = ()
    if run.validator.guard_blocks:
        faults = (f"files it depends on {named}",)
        words = "\n".join(filter(None, (words, f"{PUT_BACK}:", *changed)))
    warnings = (f"files this validator depends on {named}",)
    return replace(run, result=replace(run.result, error=words), faults=faults, warnings=warnings)


def run_on_base(
    agent: AgentDefinition,
    checks: Checks,
    record: Callable[[BaseChecked], object],
    *,
    known: Container[str] = (),
) -> None:
    """Run each validator of the agent once before the first model call, so that one that cannot run, or already fails,
    is known before a token is spent (input `base-checks`). Validators with `known` commands are skipped. There is no
    change to prove yet: the command of a proof only shows whether it can run, and is not reported.

    Raises `InputError` if the program of one is missing or cannot be started, or if the project is not installed.
    """
    entries = [step.validation for step in agent.steps.values() if step.validation]
    every = [each for entry in entries for each in entry.conditions]
    # Where a proof and a check have the same command, the check is run and reported.
    every.sort(key=lambda each: each.validator.proof is None)
    conditions = {command: each for each in every if (command := _base_command(each)) not in known}
    if not conditions:
        return
    with checks() as tree:
        for command, condition in conditions.items():
            validator = condition.validator
            result = tree.run_command(build_request(command, validator))
            passed = has_passed(validator.success, result)
            if not passed and (missing := find_missing_program(result) or find_uninstalled(result, tree)):
                raise InputError(
                    f'The check "{validator.name}" cannot run: {missing}. Its command is `{command}`.',
                    hint="Install what is missing (in a workflow with the inputs setup or apt-packages) or correct the "
                    "command. If the agent itself is to create it, set base-checks to skip.",
                )
            if not validator.proof:
                record(
                    BaseChecked(
                        name=validator.name,
                        command=command,
                        passed=passed,
                        exit_code=result.exit_code,
                        seconds=result.seconds,
                        output_tail=output_tail(result),
                    )
                )


def _base_command(condition: Condition) -> str:
    command = validator_command(condition)
    return command.replace(TESTS_PLACEHOLDER, "").strip() if condition.validator.proof else command


def require_passing(checks: Iterable[BaseChecked]) -> None:
    """Raise `BaseCheckError` if one of the checks failed."""
    if failed := ", ".join(check.name for check in checks if not check.passed):
        raise BaseCheckError(f"these checks already fail: {failed}.")
