"""Validation entries (registry.md §5.7).

Takes: the registry as a model. Gives: a `ValidationEntry` per id, or problems SF603, SF606, SF607 and SF513.
May touch: reads retry prompts through `PromptFiles`, answer schemas through `SchemaDesk`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.documents import beside
from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.json_text import child
from stepflow.definition.prompt_files import Address
from stepflow.definition.steps import check_c3_style, check_key, check_part
from stepflow.definition.validator_entries import Declared, ValidatorDesk
from stepflow.domain.definition import Condition, FailurePattern, ValidationEntry, Validator
from stepflow.domain.json import compact
from stepflow.domain.words import VerdictType
from stepflow.engine.prompt.template import parse_retry_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.findings import FileFindings
    from stepflow.definition.prompt_files import PromptFiles
    from stepflow.definition.registry_file import ConditionEntry, ValidationStepEntry
    from stepflow.definition.schemas import SchemaDesk
    from stepflow.domain.definition import SourceText
    from stepflow.domain.json import JsonObject, JsonValue

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


def entry_of(step_id: str, entries: Mapping[str, ValidationEntry], verdict: VerdictType) -> ValidationEntry | None:
    """The validation entry of a closure step: of its own id, else the verdict's."""
    return entries.get(step_id) or entries.get(_MAPPED_ID[verdict])


@dataclass(frozen=True, kw_only=True)
class ValidationDesk:
    """Builds the validation entries and reports what is wrong with them. `closures` are the ids of closure steps."""

    declared: Declared
    closures: tuple[str, ...]
    verdict: VerdictType | None
    found: FileFindings
    schemas: SchemaDesk | None
    prompts: PromptFiles | None

    def entries(self) -> dict[str, ValidationEntry]:
        """All validation entries by id; parts with a problem are left out."""
        validators = ValidatorDesk(declared=self.declared, found=self.found).validators()
        entries: dict[str, ValidationEntry] = {}
        for key, entry in self.declared.steps.items():
            at = child("/validationSteps", key)
            check_key(key, entry.step_id, at, self.found)
            self._check_owner(key, at)
            conditions = self._conditions(key, entry, at, validators)
            entries[key] = self._entry(key, entry, at, conditions)
        return entries

    def _check_owner(self, key: str, at: str) -> None:
        closures = self.closures
        mapped = self.verdict is None or (bool(closures) and key == _MAPPED_ID[self.verdict])
        if key not in closures and not mapped:
            message = f'the validation entry "{key}" belongs to no closure step{did_you_mean(key, closures)}'
            fix = f"Name it like a closure step; there are {listed(closures)}."
            self.found.add("SF606", at, message, fix)

    def _conditions(
        self, key: str, entry: ValidationStepEntry, at: str, validators: Mapping[str, Validator]
    ) -> tuple[Condition, ...]:
        conditions: list[Condition] = []
        known = self.declared.validators
        for index, one in enumerate(entry.validation_conditions or ()):
            name = one.validator or ""
            if name and name not in known:
                place = f"{at}/validationConditions/{index}/validator"
                message = f'validation step "{key}": there is no validator "{name}"{did_you_mean(name, known)}'
                self.found.add("SF603", place, message, f"The validators are {listed(known)}.")
            elif name in validators:
                conditions.append(_condition(one, validators[name]))
        return tuple(conditions)

    def _entry(
        self, key: str, entry: ValidationStepEntry, at: str, conditions: tuple[Condition, ...]
    ) -> ValidationEntry:
        parts = {"c2": entry.c2, "c3": entry.c3}
        safe = [check_part(at, name, part, self.found) for name, part in parts.items()]
        check_c3_style(at, entry.c3, self.found)
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

    def _schema(self, entry: ValidationStepEntry, at: str) -> JsonObject | None:
        if self.schemas is None:
            return None
        if entry.output_schema_ref is not None:
            return self.schemas.by_ref(entry.output_schema_ref, child(at, "outputSchemaRef"))
        if entry.output_schema is not None:
            return self.schemas.inline(entry.output_schema, child(at, "outputSchema"))
        return None

    def _retry_prompts(
        self, key: str, at: str, c2: str, c3: str, patterns: Mapping[str, FailurePattern]
    ) -> dict[str, SourceText]:
        prompts: dict[str, SourceText] = {}
        for name, pattern in patterns.items():
            path = self._path(Address(c2=c2, c3=c3, edition=pattern.edition), pattern.adaptation)
            source, fault = self._usable(path)
            if source is None:
                near = beside(self.prompts.folder, path) if self.prompts and fault == _MISSING else ""
                message = f'validation step "{key}", failure pattern "{name}": the retry prompt "{path}" {fault}{near}'
                self.found.add("SF513", at, message, f'Write "{path}", or leave it to the general text.')
            else:
                prompts[name] = source
        return prompts

    def _any_retry_prompt(self, key: str, at: str, c2: str, c3: str) -> SourceText | None:
        path = self._path(Address(c2=c2, c3=c3, edition=_ANY_EDITION), None)
        source, fault = self._usable(path)
        if source is None and fault != _MISSING:
            message = f'validation step "{key}": the retry prompt "{path}" {fault}'
            self.found.add("SF513", at, message, "Correct it, or leave it to the general text.")
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


def _condition(entry: ConditionEntry, validator: Validator) -> Condition:
    return Condition(validator=validator, params={key: _text(value) for key, value in entry.params.items()})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else compact(value)
