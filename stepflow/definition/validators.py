"""Validators, failure patterns and validation entries (registry.md §5.6 and §5.7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import (
    Registry,
    ValidationStepEntry,
    ValidatorEntry,
)
from stepflow.definition.folder import beside
from stepflow.definition.gate_steps import check_c3_style, check_key, check_part
from stepflow.definition.json_text import Pointer
from stepflow.definition.prompt_files import Address, PromptFiles
from stepflow.definition.schemas import SchemaResolver
from stepflow.domain.definition import (
    Condition,
    ExitCode,
    FailurePattern,
    OutputContains,
    OutputEmpty,
    OutputMatches,
    SourceText,
    SuccessRule,
    ValidationEntry,
    Validator,
)
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.words import VerdictType
from stepflow.engine.completion.extract import EXTRACTORS
from stepflow.engine.patterns import PatternFault, check_pattern
from stepflow.engine.prompt.template import parse_retry_template

#: `git status` without paths and without options that leave something out, and nothing after it that filters.
_ASKS_FOR_ALL = re.compile(
    r"(?P<read>\$\(|`)? *\bgit +(?:--no-optional-locks +)?status"
    r"(?: +(?:--porcelain(?:=v?[12])?|--short|-s|-z|-b|--branch|--no-renames"
    r"|-u(?:all|normal)?|--untracked-files(?:=(?:all|normal))?))*"
    r" *(?:$|[\n)\"'`;&]|2?>)"
)


def clean_tree(command: str, success: SuccessRule) -> bool:
    """Whether the command's green can only mean that nothing differs from HEAD."""
    whole = _ASKS_FOR_ALL.search(command)
    # The exit code of `git status` says nothing about the tree; that of a command which reads its output may.
    return bool(whole and (whole["read"] or not isinstance(success, ExitCode)) and "|" not in command.replace("||", ""))


@dataclass(frozen=True, kw_only=True)
class ValidatorBuilder:
    """Builds the validators and reports what is wrong with them and with their failure patterns."""

    registry: Registry
    problems: FileProblems

    def validators(self) -> dict[str, Validator]:
        """All validators by name; one with a problem is left out."""
        patterns = self._patterns()
        validators: dict[str, Validator] = {}
        for name, entry in self.registry.validators.items():
            at = Pointer("/validators") / name
            success = self._success(name, entry.success_when, at / "successWhen")
            self._check_pattern(name, entry, at)
            self._check_extractors(name, entry, at)
            self._check_guards(name, entry, at)
            pattern = patterns.get(entry.failure_pattern or "")
            if success is not None and pattern is not None and entry.command:
                validators[name] = Validator(
                    name=name,
                    command=entry.command,
                    success=success,
                    pattern=pattern,
                    extract=entry.extract_params,
                    recoverable=entry.recoverable_by_default,
                    timeout=entry.timeout,
                    guards=tuple(entry.guards),
                    guard_blocks=entry.guard == "block",
                    clean_tree=clean_tree(entry.command, success),
                )
        return validators

    def _patterns(self) -> dict[str, FailurePattern]:
        patterns: dict[str, FailurePattern] = {}
        for name, entry in self.registry.failure_patterns.items():
            at = Pointer("/failurePatterns") / name
            parts = {"edition": entry.edition, "adaptation": entry.adaptation}
            safe = [check_part(at, key, part, self.problems) for key, part in parts.items()]
            if all(safe) and entry.edition:
                patterns[name] = FailurePattern(
                    name=name,
                    description=entry.description or "",
                    edition=entry.edition,
                    adaptation=entry.adaptation or None,
                )
        return patterns

    def _success(self, name: str, rule: str | None, at: Pointer) -> SuccessRule | None:
        if not rule or not rule.strip():
            return None
        try:
            success = _read_rule(rule)
        except PatternFault as exc:
            message = f'validator "{name}": "successWhen" is "{rule}", whose pattern is no regular expression ({exc})'
            self.problems.add("SF602", at, message, 'Write a valid regular expression after "matches:".')
            return None
        if success is None:
            message = f'validator "{name}": "successWhen" is "{rule}", which is not understood'
            fix = 'Write "empty", "exitCode:N", "contains:TEXT" or "matches:REGEX".'
            self.problems.add("SF602", at, message, fix)
        return success

    def _check_pattern(self, name: str, entry: ValidatorEntry, at: Pointer) -> None:
        pattern = entry.failure_pattern
        known = self.registry.failure_patterns
        if pattern and pattern not in known:
            message = f'validator "{name}": there is no failure pattern "{pattern}"{did_you_mean(pattern, known)}'
            place = at / "failurePattern"
            self.problems.add("SF604", place, message, f"The patterns are {listed(known)}.")

    def _check_extractors(self, name: str, entry: ValidatorEntry, at: Pointer) -> None:
        for parameter, extractor in entry.extract_params.items():
            if extractor not in EXTRACTORS:
                message = f'validator "{name}": there is no extractor "{extractor}" for "{parameter}"'
                message += did_you_mean(extractor, EXTRACTORS)
                place = at / "extractParams" / parameter
                self.problems.add("SF605", place, message, f"The extractors are {listed(sorted(EXTRACTORS))}.")

    def _check_guards(self, name: str, entry: ValidatorEntry, at: Pointer) -> None:
        for index, guard in enumerate(entry.guards):
            if not guard.strip("/") or ".." in guard.split("/"):
                message = f'validator "{name}": the guard "{guard}" is no path pattern inside the repository'
                self.problems.add("SF109", at / "guards" / index, message, "Write a pattern such as `tsconfig.json`.")


def _read_rule(rule: str) -> SuccessRule | None:
    word, colon, rest = rule.partition(":")
    match word:
        case "empty" if not colon:
            return OutputEmpty()
        case "exitCode" if re.fullmatch(r"-?[0-9]{1,5}", rest):
            return ExitCode(code=int(rest))
        case "contains" if rest:
            return OutputContains(text=rest)
        case "matches" if rest:
            check_pattern(rest)
            return OutputMatches(pattern=rest)
        case _:
            return None


#: flow.md §8.2.
_MAPPED_ID = {
    VerdictType.POLL_STATE: "closure.polling",
    VerdictType.COUNT_ITERATION: "closure.iteration",
    VerdictType.COUNT_CHECK: "closure.check",
    VerdictType.DETECT_KEYWORD: "closure.keyword",
    VerdictType.DETECT_STRUCTURED: "closure.structured",
    VerdictType.DETECT_GRAPH: "closure.graph",
    VerdictType.META_COMPOSITE: "closure.composite",
    VerdictType.META_CUSTOM: "closure.custom",
}

#: prompts.md §9.1: the retry prompt for any failure.
_ANY_EDITION = "failed"


def entry_of(
    step_id: str, entries: Mapping[str, ValidationEntry], verdict: VerdictType | None
) -> ValidationEntry | None:
    """The validation entry of a closure step: of its own id, else the verdict's."""
    return entries.get(step_id) or entries.get(_MAPPED_ID[verdict or VerdictType.COUNT_ITERATION])


@dataclass(frozen=True, kw_only=True)
class ValidationBuilder:
    """Builds the validation entries and reports what is wrong with them. `closures` are the ids of closure steps."""

    registry: Registry
    closures: tuple[str, ...]
    verdict: VerdictType | None
    problems: FileProblems
    schemas: SchemaResolver | None
    prompts: PromptFiles | None

    def entries(self) -> dict[str, ValidationEntry]:
        """All validation entries by id; parts with a problem are left out."""
        validators = ValidatorBuilder(registry=self.registry, problems=self.problems).validators()
        entries: dict[str, ValidationEntry] = {}
        for key, entry in self.registry.validation_steps.items():
            at = Pointer("/validationSteps") / key
            check_key(key, entry.step_id, at, self.problems)
            self._check_owner(key, at)
            conditions = self._conditions(key, entry, at, validators)
            entries[key] = self._entry(key, entry, at, conditions)
        return entries

    def _check_owner(self, key: str, at: Pointer) -> None:
        closures = self.closures
        mapped = self.verdict is None or (bool(closures) and key == _MAPPED_ID[self.verdict])
        if key not in closures and not mapped:
            message = f'the validation entry "{key}" belongs to no closure step{did_you_mean(key, closures)}'
            fix = f"Name it like a closure step; there are {listed(closures)}."
            self.problems.add("SF606", at, message, fix)

    def _conditions(
        self, key: str, entry: ValidationStepEntry, at: Pointer, validators: Mapping[str, Validator]
    ) -> tuple[Condition, ...]:
        conditions: list[Condition] = []
        known = self.registry.validators
        for index, one in enumerate(entry.validation_conditions or ()):
            name = one.validator or ""
            if name and name not in known:
                place = at / "validationConditions" / index / "validator"
                message = f'validation step "{key}": there is no validator "{name}"{did_you_mean(name, known)}'
                self.problems.add("SF603", place, message, f"The validators are {listed(known)}.")
            elif name in validators:
                params = {key: value if isinstance(value, str) else compact(value) for key, value in one.params.items()}
                conditions.append(Condition(validator=validators[name], params=params))
        return tuple(conditions)

    def _entry(
        self, key: str, entry: ValidationStepEntry, at: Pointer, conditions: tuple[Condition, ...]
    ) -> ValidationEntry:
        parts = {"c2": entry.c2, "c3": entry.c3}
        safe = [check_part(at, name, part, self.problems) for name, part in parts.items()]
        check_c3_style(at, entry.c3, self.problems)
        patterns = {one.validator.pattern.name: one.validator.pattern for one in conditions}
        c2, c3 = entry.c2, entry.c3
        located = all(safe) and c2 and c3 and self.prompts is not None
        return ValidationEntry(
            id=key,
            conditions=conditions,
            action=entry.on_failure.action,
            max_attempts=entry.on_failure.max_attempts,
            schema=self._schema(entry, at),
            retry_prompts=self._retry_prompts(key, at, c2 or "", c3 or "", patterns) if located else {},
            any_retry_prompt=self._any_retry_prompt(key, at, c2 or "", c3 or "") if located else None,
        )

    def _schema(self, entry: ValidationStepEntry, at: Pointer) -> JsonObject | None:
        if self.schemas is None:
            return None
        if entry.output_schema_ref is not None:
            return self.schemas.by_ref(entry.output_schema_ref, at / "outputSchemaRef")
        if entry.output_schema is not None:
            return self.schemas.inline(entry.output_schema, at / "outputSchema")
        return None

    def _retry_prompts(
        self, key: str, at: Pointer, c2: str, c3: str, patterns: Mapping[str, FailurePattern]
    ) -> dict[str, SourceText]:
        prompts: dict[str, SourceText] = {}
        for name, pattern in patterns.items():
            path = self._path(Address(c2=c2, c3=c3, edition=pattern.edition), pattern.adaptation)
            source, fault = self._usable(path)
            if source is None:
                near = beside(self.prompts.folder, path) if self.prompts and fault == _MISSING else ""
                message = f'validation step "{key}", failure pattern "{name}": the retry prompt "{path}" {fault}{near}'
                self.problems.add("SF513", at, message, f'Write "{path}", or leave it to the general text.')
            else:
                prompts[name] = source
        return prompts

    def _any_retry_prompt(self, key: str, at: Pointer, c2: str, c3: str) -> SourceText | None:
        path = self._path(Address(c2=c2, c3=c3, edition=_ANY_EDITION), None)
        source, fault = self._usable(path)
        if source is None and fault != _MISSING:
            message = f'validation step "{key}": the retry prompt "{path}" {fault}'
            self.problems.add("SF513", at, message, "Correct it, or leave it to the general text.")
        return source

    def _path(self, address: Address, adaptation: str | None) -> str:
        return self.prompts.path(address, adaptation) if self.prompts else ""

    def _usable(self, path: str) -> tuple[SourceText | None, str]:
        prompt = self.prompts.read(path) if self.prompts else None
        if prompt is None:
            return None, _MISSING
        fault = parse_retry_template(prompt.source.text)
        return (prompt.source, "") if fault is None else (None, f"cannot be parsed ({fault})")


_MISSING = "is missing or empty"
