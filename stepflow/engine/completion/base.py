"""The validators, run before the first call of the model: what cannot run or is red already is known before a token is
spent (action.md, input `base-checks`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.domain.event import BaseChecked
from stepflow.engine.completion.judge import (
    NOT_RUNNABLE,
    error_text,
    has_passed,
    output_tail,
    run_validator,
    validator_command,
)
from stepflow.errors import BaseCheckError, InputError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from stepflow.domain.checkout import CommandResult
    from stepflow.domain.definition import AgentDefinition, Condition
    from stepflow.ports import Commands

#: How a shell, Python and make say on stderr that a program is not there, when the exit code does not.
MISSING = re.compile(
    r"^(?:\S*sh: (?:line )?(?:\d+: )?.+: (?:command )?not found"
    r"|\S*python[\d.]*(?:\.exe)?: No module named \S+"
    r"|make(?:\[\d+\])?: \*\*\* .* Error 127)$",
    re.MULTILINE,
)


def run_on_base(agent: AgentDefinition, commands: Commands, *, known: Container[str] = ()) -> Iterator[BaseChecked]:
    """Run each validator of the agent once; those of the `known` commands are left out.

    Raises `InputError` for one whose program is missing or cannot be started.
    """
    for command, condition in {validator_command(each): each for each in _conditions(agent)}.items():
        if command in known:
            continue
        validator, result = condition.validator, run_validator(condition, commands)
        passed = has_passed(validator.success, result)
        if not passed and (missing := _missing_program(result)):
            raise InputError(
                f'The check "{validator.name}" cannot run: {missing}. Its command is `{command}`.',
                hint="Install what is missing (in a workflow with the inputs setup or apt-packages) or correct the "
                "command. Where the agent itself is to make it, set base-checks to skip.",
            )
        yield BaseChecked(
            name=validator.name,
            command=command,
            passed=passed,
            exit_code=result.exit_code,
            seconds=result.seconds,
            output_tail=output_tail(result),
        )


def demand_green(checks: Iterable[BaseChecked]) -> None:
    """Raises `BaseCheckError` where one of the checks is red."""
    if red := ", ".join(check.name for check in checks if not check.passed):
        raise BaseCheckError(f"these checks are already red: {red}.")


def _conditions(agent: AgentDefinition) -> Iterator[Condition]:
    for step in agent.steps.values():
        if step.validation:
            yield from step.validation.conditions


def _missing_program(result: CommandResult) -> str:
    """What a command said of a program that is not there or cannot be started; empty where it says nothing of it."""
    found = MISSING.search(result.stderr)
    if found:
        return found[0].strip()
    if result.exit_code in NOT_RUNNABLE:
        return next((line.strip() for line in reversed(error_text(result).splitlines()) if line.strip()), "no output")
    return ""
