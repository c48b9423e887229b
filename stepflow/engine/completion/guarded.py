"""What a validator's guards make of its result (security.md cases 14 and 15).

Takes: a validator, its result, and what was found beside it. Gives: `Checked`.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.guard import named

if TYPE_CHECKING:
    from stepflow.domain.command import CommandResult
    from stepflow.domain.definition import Validator
    from stepflow.domain.guard import GuardFindings

HIDDEN = (
    "the validator found the tree clean, but these files are only hidden from git: by .git/info/exclude, git's "
    "configuration, flags in the index, or a changed .gitignore or .gitattributes. Commit them or remove them, and "
    "take back what hides them"
)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A result with the guards' words in it. Any of the `faults` fails the validator; `warnings` are for people."""

    result: CommandResult
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_guards(validator: Validator, result: CommandResult, findings: GuardFindings) -> Checked:
    """Hidden files fail a validator, and so does a git that cannot tell; changed files do with `guard: block`."""
    faults, warnings, words = [], list(findings.notes), []
    if findings.changed:
        warnings.append(f"files this validator depends on were changed: {named(findings.changed)}")
        if validator.guard_blocks:
            faults.append(f"files it depends on were changed: {named(findings.changed)}")
            words.append(_put_back(findings.changed))
    if findings.problem:
        warnings.append(findings.problem)
        faults.append(findings.problem)
        words.append(f"{findings.problem}.")
    if findings.hidden:
        warnings.append(f"files were hidden from git: {named(findings.hidden)}")
        faults.append("files are hidden from git")
        words.append(f"{HIDDEN}:")
        result = replace(result, stdout="".join(f"{line}\n" for line in findings.hidden), stderr="")
    said = [result.error, *words] if result.error else words
    return Checked(result=replace(result, error="\n".join(said)), faults=tuple(faults), warnings=tuple(warnings))


def _put_back(changed: tuple[str, ...]) -> str:
    listed = "\n".join(changed)
    return f"files this validator depends on were changed; put them back as they were when the run began:\n{listed}"
