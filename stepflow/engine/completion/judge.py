"""Run a closing's validators in order and judge whether the work is really done."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from stepflow.domain.checkout import CommandRequest, CommandResult, GuardDiagnostics
from stepflow.domain.decision import (
    Done,
    Failed,
    NotDone,
    Unproven,
    ValidatorFailure,
    Verdict,
)
from stepflow.domain.definition import (
    AgentDefinition,
    Condition,
    ExitCode,
    OutputContains,
    OutputEmpty,
    OutputMatches,
    SuccessRule,
    ValidationEntry,
    Validator,
)
from stepflow.domain.event import BaseChecked, ValidatorRan
from stepflow.domain.text import excerpt, name_some, readable_output, telling_line
from stepflow.domain.words import FailureAction
from stepflow.engine.completion.extract import extract
from stepflow.engine.patterns import SECONDS, PatternTooSlow, Search
from stepflow.errors import BaseCheckError, InputError
from stepflow.ports import Commands, Guards

#: Exit codes of a shell that could not run the command, and what a person should do then.
NOT_RUNNABLE = {
    126: "A file that it starts cannot be executed: give it the right to be, and commit that",
    127: "A program that it starts is not there: install it with the input setup or apt-packages, or fix the command",
}


NO_PERMISSION = ("EACCES", "Permission denied")


REWRITES = "This check changes files that git tracks"


LEAVE_AS_IT_IS = (
    "A run cannot complete with it, since the checks must see what is pushed: commit what it writes, or let it only "
    "look (such as `npm ci` or a `--locked` or `--check` option)."
)


#: How many characters of a validator's output the journal keeps.
TAIL = 4000


#: How many of its most telling line a reason shows.
LINE = 300


def judge_completion(
    entry: ValidationEntry,
    *,
    iteration: int,
    failures: int,
    root: str,
    commands: Commands,
    guards: Guards,
    record: Callable[[ValidatorRan], None],
) -> Verdict:
    """Run the entry's validators; the first red one decides, except under `skip`. `failures` are earlier attempts."""
    if not entry.conditions:
        return Done(validated=False)
    skipped, closing = False, guards.closing()
    for condition in entry.conditions:
        validator, result = condition.validator, run_validator(condition, commands)
        passed = has_passed(validator.success, result)
        diagnostics = guards.look_again(validator, passed=passed)
        run = ConditionRun(entry=entry, validator=validator, attempt=failures + 1, result=result, green=passed)
        run = _apply_guards(run, diagnostics)
        action = None if passed and not run.faults else _action(run)
        record(_event(run, validator_command(condition), iteration, action))
        closing = replace(closing, created=diagnostics.created, problem=closing.problem or diagnostics.problem)
        if diagnostics.moved and (passed or action is FailureAction.SKIP):
            return Unproven(
                reason=f'while validator "{validator.name}" ran, the checkout did not stay what was to be pushed: '
                f"{name_some(diagnostics.moved)}. Checks must leave tracked files and HEAD as they are."
            )
        match action:
            case None:
                continue
            case FailureAction.SKIP:
                skipped = True
            case FailureAction.RETRY:
                return NotDone(failure=_describe_failure(run, root, commands))
            case FailureAction.ABORT:
                return Failed(reason=_reason(run))
            case _:
                assert_never(action)
    if closing.problem:
        return Unproven(reason=f"it cannot be shown that the checks saw what would be pushed: {closing.problem}")
    return Done(validated=not skipped, closing=closing)


@dataclass(frozen=True, kw_only=True)
class ConditionRun:
    """One run of a validator: which, for which entry, in which attempt, what came out, and whether that alone is
    `green`. Any of the guards' `faults` fails it all the same; `warnings` are for people."""

    entry: ValidationEntry
    validator: Validator
    attempt: int
    result: CommandResult
    green: bool
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validator_command(condition: Condition) -> str:
    """A validator's command, with `${key}` replaced from the condition's parameters."""
    params = condition.params
    return re.sub(r"\$\{([^}]*)\}", lambda match: params.get(match[1], match[0]), condition.validator.command)


def run_validator(condition: Condition, commands: Commands) -> CommandResult:
    """Run one validator's command in a shell."""
    argv = ("sh", "-c", validator_command(condition))
    return commands.run_command(CommandRequest(argv=argv, timeout=condition.validator.timeout, checks=True))


def has_passed(rule: SuccessRule, result: CommandResult) -> bool:
    """Whether a result fits `successWhen`. A command that timed out or did not start never does."""
    if result.timed_out or not result.started:
        return False
    match rule:
        case OutputEmpty():
            return result.exit_code == 0 and not result.stdout.strip()
        case ExitCode(code=code):
            return result.exit_code == code
        case OutputContains(text=text):
            return text in result.stdout
        case OutputMatches(pattern=pattern):
            return bool(_search(pattern, result.stdout))
        case _:
            assert_never(rule)


def _search(pattern: str, output: str) -> bool | None:
    """Whether the output matches; None where that cannot be decided in time."""
    try:
        return Search()(pattern, output)
    except PatternTooSlow:
        return None


def _action(run: ConditionRun) -> FailureAction:
    if _is_final(run):
        return FailureAction.ABORT
    if run.entry.action is FailureAction.RETRY and run.attempt >= run.entry.max_attempts:
        return FailureAction.ABORT
    return run.entry.action


def _is_final(run: ConditionRun) -> bool:
    """Whether trying again cannot help. What a command said that passed by its own words is no sign."""
    validator, result = run.validator, run.result
    return not validator.recoverable or (
        not run.green
        and (
            not result.started
            or result.exit_code in NOT_RUNNABLE
            or any(word in result.stderr for word in NO_PERMISSION)
        )
    )


def _reason(run: ConditionRun) -> str:
    validator, result = run.validator, run.result
    red = "; ".join(run.faults) if run.green else _why_red(validator, result)
    why = f"{validator.pattern.description.rstrip('.')}; {red}"
    what = f'validator "{validator.name}" failed ({why})'
    if _is_final(run):
        hint = NOT_RUNNABLE.get(result.exit_code or 0)
        return f"{what}, and trying again cannot help: {_telling_line(result)}{f'. {hint}' if hint else ''}"
    if run.entry.action is FailureAction.RETRY:
        return f"{what} in attempt {run.attempt} of {run.entry.max_attempts}"
    return what


def _why_red(validator: Validator, result: CommandResult) -> str:
    """What did not fit `successWhen`, in a few words."""
    if result.timed_out:
        return f"it took longer than {validator.timeout:g} s"
    if not result.started:
        return "it could not be started"
    match validator.success:
        case OutputEmpty() if result.exit_code == 0:
            return "its output is not empty"
        case OutputContains(text=text):
            return f'its output lacks "{text[:100]}"'
        case OutputMatches(pattern=pattern):
            slow = f", or none that is found within {SECONDS:g} s" if _search(pattern, result.stdout) is None else ""
            return f'its output has no match for "{pattern[:100]}"{slow}'
        case OutputEmpty() | ExitCode():
            return f"exit code {result.exit_code}"
        case _:
            assert_never(validator.success)


def error_text(result: CommandResult) -> str:
    """What went wrong, in the engine's words and in the command's."""
    return "\n".join(text for text in (result.error, readable_output(result.output)) if text.strip())


def _telling_line(result: CommandResult) -> str:
    """The line that says most of what went wrong."""
    words = result.error.strip().partition("\n")[0] or _missing_program(result)
    return words[:LINE] or telling_line(readable_output(result.output), LINE) or "no output"


def _describe_failure(run: ConditionRun, root: str, commands: Commands) -> ValidatorFailure:
    validator, result = run.validator, run.result

    def current_branch() -> str | None:
        request = CommandRequest(argv=("git", "branch", "--show-current"), timeout=30)
        return commands.run_command(request).stdout.strip() or None

    return ValidatorFailure(
        validator=validator.name,
        pattern=validator.pattern.name,
        description=validator.pattern.description,
        error=error_text(result),
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        attempt=run.attempt,
        max_attempts=run.entry.max_attempts,
        values=extract(validator.extract, result, root=root, current_branch=current_branch),
    )


def _event(run: ConditionRun, command: str, iteration: int, action: FailureAction | None) -> ValidatorRan:
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
        warnings=list(run.warnings),
        restored=list(result.restored),
        output_tail=output_tail(result),
    )


def output_tail(result: CommandResult) -> str:
    """What a command printed, shortened for people."""
    # Only line breaks go: the blank that a line of `git status --porcelain` may begin with has a meaning.
    text = f"{readable_output(result.output)}\n{result.error}".strip("\n")
    return excerpt(text, TAIL)[-TAIL:]


PUT_BACK = "files this validator depends on were changed; put them back as they were when the run began"


HIDDEN = (
    "the validator found the tree clean, but these files are only hidden from git: by .git/info/exclude, git's "
    "configuration, flags in the index, or a .gitignore or .gitattributes that is not committed. Commit "
    "them or remove them, and take back what hides them; a file that goes through a git filter has to stay as it was"
)


def _apply_guards(run: ConditionRun, diagnostics: GuardDiagnostics) -> ConditionRun:
    """The run with the guards' words in it. Hidden files fail a validator, and so does a git that cannot tell; changed
    files do with `guard: block`."""
    result, faults, warnings = run.result, [], list(diagnostics.notes)
    words = [result.error] if result.error else []
    if diagnostics.changed:
        changed = f"were changed: {name_some(diagnostics.changed)}"
        warnings.append(f"files this validator depends on {changed}")
        if run.validator.guard_blocks:
            faults.append(f"files it depends on {changed}")
            words.append("\n".join((f"{PUT_BACK}:", *diagnostics.changed)))
    if diagnostics.problem:
        warnings.append(diagnostics.problem)
        faults.append(diagnostics.problem)
        words.append(f"{diagnostics.problem}.")
    if diagnostics.hidden:
        warnings.append(f"files were hidden from git: {name_some(diagnostics.hidden)}")
        faults.append("files are hidden from git")
        words.append(f"{HIDDEN}:")
        hidden = "".join(f"{line}\n" for line in diagnostics.hidden)
        result = replace(result, stdout=hidden, stderr="", combined=hidden)
    result = replace(result, error="\n".join(words))
    return replace(run, result=result, faults=tuple(faults), warnings=tuple(warnings))


#: How a shell, Python and make say on stderr that a program is not there, when the exit code does not.
MISSING = re.compile(
    r"^(?:\S*sh: (?:line )?(?:\d+: )?.+: (?:command )?not found"
    r"|\S*python[\d.]*(?:\.exe)?: No module named \S+"
    r"|make(?:\[\d+\])?: \*\*\* .* Error 127)$",
    re.MULTILINE,
)


def run_on_base(
    agent: AgentDefinition, commands: Commands, guards: Guards, *, known: Container[str] = ()
) -> Iterator[BaseChecked]:
    """Run each validator of the agent once, before the first call of the model: what cannot run or is red already is
    known before a token is spent (input `base-checks`). One that changes tracked files is red as well, as
    every closing would be. Those of the `known` commands are left out.

    Raises `InputError` for one whose program is missing or cannot be started.
    """
    entries = [step.validation for step in agent.steps.values() if step.validation]
    conditions = {validator_command(each): each for entry in entries for each in entry.conditions}
    for command, condition in conditions.items():
        if command in known:
            continue
        guards.closing()
        validator, result = condition.validator, run_validator(condition, commands)
        passed = has_passed(validator.success, result)
        if not passed and (missing := _missing_program(result)):
            raise InputError(
                f'The check "{validator.name}" cannot run: {missing}. Its command is `{command}`.',
                hint="Install what is missing (in a workflow with the inputs setup or apt-packages) or correct the "
                "command. Where the agent itself is to make it, set base-checks to skip.",
            )
        moved = guards.look_again(validator, passed=passed).moved
        changes = f"{REWRITES}: {name_some(moved)}. {LEAVE_AS_IT_IS}" if moved else ""
        yield BaseChecked(
            name=validator.name,
            command=command,
            passed=passed and not moved,
            exit_code=result.exit_code,
            seconds=result.seconds,
            output_tail="\n".join(filter(None, (output_tail(result), changes))),
        )


def demand_green(checks: Iterable[BaseChecked]) -> None:
    """Raises `BaseCheckError` where one of the checks is red."""
    if red := ", ".join(check.name for check in checks if not check.passed):
        raise BaseCheckError(f"these checks are already red: {red}.")


def _missing_program(result: CommandResult) -> str:
    """What a command said of a program that is not there or cannot be started; empty where it says nothing of it."""
    match = MISSING.search(result.stderr)
    if match:
        return match[0].strip()
    if result.exit_code in NOT_RUNNABLE:
        return next((line.strip() for line in reversed(error_text(result).splitlines()) if line.strip()), "no output")
    return ""
