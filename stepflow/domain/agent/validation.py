"""The validators of an agent: shell commands that must succeed before a run can complete (definition.md §5.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, Strict, model_validator

from stepflow.domain.agent.agent_settings import Code, FileModel, Items, PathPart, refuse
from stepflow.domain.proof import MOST_HUNKS, HunkPolicy, ProofSettings


@dataclass(frozen=True, kw_only=True)
class OutputEmpty:
    """Passes on exit code 0 and blank stdout."""


@dataclass(frozen=True, kw_only=True)
class ExitCode:
    """Passes on exactly this exit code."""

    code: int


@dataclass(frozen=True, kw_only=True)
class OutputContains:
    """Passes if stdout contains the text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class OutputMatches:
    """Passes if the regular expression matches anywhere in stdout."""

    pattern: str


SuccessRule = OutputEmpty | ExitCode | OutputContains | OutputMatches


class PatternEntry(FileModel):
    """One value of `failurePatterns`."""

    description: str
    edition: PathPart
    adaptation: PathPart | None = None
    params: Items[str] | None = None


#: The type of a validator whose command proves the change.
PROOF = "proof"
#: The keys of a validator that only one of the two types has.
KEYS_OF_PROOF = ("tests", "hunks", "maxHunks")
KEYS_OF_COMMAND = ("successWhen", "guards", "guard")


def _demand_by_type(schema: dict[str, Any]) -> None:
    """Let an editor demand `successWhen` of a command only, and refuse the keys of the other type."""
    del schema["properties"]["successWhen"]["default"]
    schema["if"] = {"properties": {"type": {"const": PROOF}}}
    schema["then"] = {"properties": dict.fromkeys(KEYS_OF_COMMAND, False)}
    schema["else"] = {"required": ["successWhen"], "properties": dict.fromkeys(KEYS_OF_PROOF, False)}


def check_pattern(guard: str) -> str:
    """Return a path pattern; refuse one that leads nowhere in the repository."""
    if not guard.strip("/") or ".." in guard.split("/"):
        message = f'"{guard}" is not a path pattern inside the repository'
        raise refuse("SF109", message, "Write a pattern such as `tsconfig.json`.")
    return guard


def read_success_rule(rule: str) -> SuccessRule | None:
    """Return what `successWhen` says; None for what is not understood."""
    word, colon, rest = rule.partition(":")
    match word:
        case "empty" if not colon:
            return OutputEmpty()
        case "exitCode" if re.fullmatch(r"-?[0-9]{1,5}", rest):
            return ExitCode(code=int(rest))
        case "contains" if rest:
            return OutputContains(text=rest)
        case "matches" if rest:
            return OutputMatches(pattern=rest)
        case _:
            return None


def _check_success_rule(rule: str) -> str:
    if rule.strip() and read_success_rule(rule) is None:
        fix = 'Write "empty", "exitCode:N", "contains:TEXT" or "matches:REGEX".'
        raise refuse("SF602", f'"successWhen" is "{rule}", which is not understood', fix)
    return rule


class ValidatorEntry(FileModel):
    """One value of `validators`; `timeout` in seconds. A `proof` has no `successWhen`."""

    model_config = ConfigDict(json_schema_extra=_demand_by_type)

    type: Annotated[Literal["command", "proof"], Code("SF601", "SF601")]
    command: Annotated[str, Code("SF601")]
    success_when: Annotated[str, Code("SF601", "SF602"), AfterValidator(_check_success_rule)] = ""
    failure_pattern: Annotated[str, Code("SF601")]
    extract_params: dict[str, str] = Field(default_factory=dict)
    recoverable_by_default: bool = True
    timeout: Annotated[float, Field(gt=0)] = 600
    guards: Items[Annotated[str, AfterValidator(check_pattern)]] = ()
    guard: Literal["report", "block"] = "report"
    tests: Items[str] = ()
    hunks: Annotated[HunkPolicy, Strict(False)] = HunkPolicy.TELL
    max_hunks: Annotated[int, Field(ge=1)] = MOST_HUNKS

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        if self.type != PROOF and not self.success_when.strip():
            state = "empty" if "success_when" in self.model_fields_set else "missing"
            fix = 'Write "successWhen": "empty", for example.'
            raise refuse("SF601", f'the required key "successWhen" is {state}', fix)
        return self


#: `git status` without paths, without options that leave something out, and without a filter after it.
_ASKS_FOR_ALL = re.compile(
    r"(?:(?P<read>\$\(|`) *)?\bgit +(?:--no-optional-locks +)?status"
    r"(?: +(?:--porcelain(?:=v?[12])?|--short|-s|-z|-b|--branch|--no-renames"
    r"|-u(?:all|normal)?|--untracked-files(?:=(?:all|normal))?))*"
    r" *(?:$|[\n)\"'`;&]|2?>)"
)


def _asks_for_clean_tree(command: str, success: SuccessRule) -> bool:
    """Return whether the command can pass only if nothing differs from HEAD."""
    whole = _ASKS_FOR_ALL.search(command)
    # The exit code of `git status` says nothing about the tree; that of a command which reads its output may.
    return bool(whole and (whole["read"] or not isinstance(success, ExitCode)) and "|" not in command.replace("||", ""))


class FailurePattern(PatternEntry):
    """A named kind of failure, which selects the retry prompt (definition.md §5.7)."""

    name: str


class Validator(ValidatorEntry):
    """A validator with its name and the pattern of its failures."""

    name: str
    pattern: FailurePattern

    @property
    def success(self) -> SuccessRule:
        """What a passing result looks like."""
        return read_success_rule(self.success_when) or ExitCode(code=0)

    @property
    def guard_blocks(self) -> bool:
        """Whether a change to a guarded path fails the validator."""
        return self.guard == "block"

    @property
    def clean_tree(self) -> bool:
        """Whether a pass means that nothing differs from HEAD."""
        return self.type != PROOF and _asks_for_clean_tree(self.command, self.success)

    @property
    def proof(self) -> ProofSettings | None:
        """Set if the command is to prove the change: it then runs on versions of the change, not in the workspace."""
        if self.type != PROOF:
            return None
        return ProofSettings(tests=self.tests, most_hunks=self.max_hunks, hunks=self.hunks)
