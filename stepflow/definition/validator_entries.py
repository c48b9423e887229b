"""Validators and failure patterns by themselves (registry.md §5.6 and §5.7).

Takes: the registry as a model. Gives: a `Validator` per name, or problems SF601, SF602, SF604, SF605 and SF109.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.clean_tree import clean_tree
from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.json_text import child
from stepflow.definition.steps import check_part
from stepflow.domain.definition import (
    ExitCode,
    FailurePattern,
    OutputContains,
    OutputEmpty,
    OutputMatches,
    Validator,
)
from stepflow.engine.completion.extract import EXTRACTORS
from stepflow.patterns import PatternFault, check_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.check_file import CheckRegistry
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.registry_file import GateRegistry, PatternEntry, ValidationStepEntry, ValidatorEntry
    from stepflow.domain.definition import SuccessRule


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a registry of either dialect declares about validation."""

    patterns: Mapping[str, PatternEntry]
    validators: Mapping[str, ValidatorEntry]
    steps: Mapping[str, ValidationStepEntry]

    @classmethod
    def of(cls, registry: GateRegistry | CheckRegistry) -> Declared:
        """The three tables of a registry."""
        return cls(patterns=registry.failure_patterns, validators=registry.validators, steps=registry.validation_steps)


@dataclass(frozen=True, kw_only=True)
class ValidatorDesk:
    """Builds the validators and reports what is wrong with them and with their failure patterns."""

    declared: Declared
    found: FileFindings

    def validators(self) -> dict[str, Validator]:
        """All validators by name; one with a problem is left out."""
        patterns = self._patterns()
        validators: dict[str, Validator] = {}
        for name, entry in self.declared.validators.items():
            at = child("/validators", name)
            success = self._success(name, entry.success_when, child(at, "successWhen"))
            self._check_pattern(name, entry, at)
            self._check_extractors(name, entry, at)
            self._check_guards(name, entry, at)
            pattern = patterns.get(entry.failure_pattern or "")
            if success is not None and pattern is not None and entry.command:
                validators[name] = _validator(name, entry, entry.command, success, pattern)
        return validators

    def _patterns(self) -> dict[str, FailurePattern]:
        patterns: dict[str, FailurePattern] = {}
        for name, entry in self.declared.patterns.items():
            at = child("/failurePatterns", name)
            parts = {"edition": entry.edition, "adaptation": entry.adaptation}
            safe = [check_part(at, key, part, self.found) for key, part in parts.items()]
            if all(safe) and entry.edition:
                patterns[name] = _pattern(name, entry, entry.edition)
        return patterns

    def _success(self, name: str, rule: str | None, at: str) -> SuccessRule | None:
        if not rule or not rule.strip():
            return None
        try:
            success = _read_rule(rule)
        except PatternFault as exc:
            message = f'validator "{name}": "successWhen" is "{rule}", whose pattern is no regular expression ({exc})'
            self.found.add("SF602", at, message, 'Write a valid regular expression after "matches:".')
            return None
        if success is None:
            message = f'validator "{name}": "successWhen" is "{rule}", which is not understood'
            fix = 'Write "empty", "exitCode:N", "contains:TEXT" or "matches:REGEX".'
            self.found.add("SF602", at, message, fix)
        return success

    def _check_pattern(self, name: str, entry: ValidatorEntry, at: str) -> None:
        pattern = entry.failure_pattern
        known = self.declared.patterns
        if pattern and pattern not in known:
            message = f'validator "{name}": there is no failure pattern "{pattern}"{did_you_mean(pattern, known)}'
            place = child(at, "failurePattern")
            self.found.add("SF604", place, message, f"The patterns are {listed(known)}.")

    def _check_extractors(self, name: str, entry: ValidatorEntry, at: str) -> None:
        for parameter, extractor in entry.extract_params.items():
            if extractor not in EXTRACTORS:
                message = f'validator "{name}": there is no extractor "{extractor}" for "{parameter}"'
                message += did_you_mean(extractor, EXTRACTORS)
                place = child(child(at, "extractParams"), parameter)
                self.found.add("SF605", place, message, f"The extractors are {listed(sorted(EXTRACTORS))}.")

    def _check_guards(self, name: str, entry: ValidatorEntry, at: str) -> None:
        for index, guard in enumerate(entry.guards):
            if not guard.strip("/") or ".." in guard.split("/"):
                message = f'validator "{name}": the guard "{guard}" is no path pattern inside the repository'
                self.found.add("SF109", f"{at}/guards/{index}", message, "Write a pattern such as `tsconfig.json`.")


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


def _pattern(name: str, entry: PatternEntry, edition: str) -> FailurePattern:
    adaptation = entry.adaptation or None
    return FailurePattern(name=name, description=entry.description or "", edition=edition, adaptation=adaptation)


def _validator(
    name: str, entry: ValidatorEntry, command: str, success: SuccessRule, pattern: FailurePattern
) -> Validator:
    return Validator(
        name=name,
        command=command,
        success=success,
        pattern=pattern,
        extract=entry.extract_params,
        recoverable=entry.recoverable_by_default,
        timeout=entry.timeout,
        guards=tuple(entry.guards),
        guard_blocks=entry.guard == "block",
        clean_tree=clean_tree(command, success),
    )
