"""Validators, failure patterns and validation entries."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, hint, list_words
from stepflow.definition.file_models import Registry, ValidationStepEntry
from stepflow.definition.folder import beside
from stepflow.definition.parsing import Pointer, last_key
from stepflow.definition.prompts import Supply, TagReporter, closest_variable
from stepflow.definition.schemas import SchemaFolder
from stepflow.definition.steps import check_c3_style, check_key
from stepflow.definition.texts import Address, Prompt, PromptFiles
from stepflow.domain.agent.definition import Condition, SourceText, ValidationEntry
from stepflow.domain.agent.validation import (
    KEYS_OF_COMMAND,
    KEYS_OF_PROOF,
    PROOF,
    FailurePattern,
    Validator,
    ValidatorEntry,
)
from stepflow.domain.json import JsonObject, as_text
from stepflow.domain.words import VerdictType
from stepflow.engine.extract import EXTRACTORS
from stepflow.engine.gate import PatternFault, check_pattern
from stepflow.engine.prompt.render import RETRY_VALUES
from stepflow.engine.prompt.template import Use
from stepflow.errors import Severity

#: How similar to another program's name a missing one must be, from 0 to 1, to count as that name misspelled.
LIKE_PROGRAMS = 0.8
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PROGRAM = re.compile(r"[A-Za-z0-9_+.-]+")
#: Words that bash itself understands; programs of these names need not exist.
_SHELL_WORDS = frozenset(
    {"!", ".", ":", "[", "[[", "break", "case", "cd", "command", "declare", "do", "done", "echo", "else", "eval"}
    | {"exec", "exit", "export", "false", "fi", "for", "function", "if", "let", "local", "printf", "pushd", "read"}
    | {"return", "select", "set", "shopt", "source", "test", "then", "time", "trap", "true", "type", "ulimit", "umask"}
    | {"unset", "until", "wait", "while"}
)


def first_program(command: str) -> str | None:
    """Return the program that a shell command starts; None for a builtin of bash, and when only bash could tell."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    word = next((word for word in words if not _ASSIGNMENT.match(word)), "")
    return word if _PROGRAM.fullmatch(word) and word not in _SHELL_WORDS else None


#: The validation entry for each verdict, used by a closure step that has none of its own.
MAPPED_ENTRIES = {
    VerdictType.POLL_STATE: "closure.polling",
    VerdictType.COUNT_ITERATION: "closure.iteration",
    VerdictType.COUNT_CHECK: "closure.check",
    VerdictType.DETECT_KEYWORD: "closure.keyword",
    VerdictType.DETECT_STRUCTURED: "closure.structured",
    VerdictType.DETECT_GRAPH: "closure.graph",
    VerdictType.META_COMPOSITE: "closure.composite",
}

#: The edition of the retry prompt for any failure.
_ANY_EDITION = "failed"


def _is_named_after(program: str, other: str) -> bool:
    """Return whether one name is the other with something before it or a version behind it: pnpm, cmake, pip3."""
    more = program.removeprefix(other)
    return program.endswith(other) or other.endswith(program) or (more != program and not more.isalpha())


def entry_of(
    step_id: str, entries: Mapping[str, ValidationEntry], verdict: VerdictType | None
) -> ValidationEntry | None:
    """Return the validation entry of a closure step: the one with its id, else the verdict's."""
    return entries.get(step_id) or entries.get(MAPPED_ENTRIES[verdict or VerdictType.COUNT_ITERATION])


@dataclass(frozen=True, kw_only=True)
class ValidationBuilder:
    """Builds what is checked at a closing, and reports what is wrong with it; a part with a problem is left out.

    `closures` are the ids of closure steps.
    """

    registry: Registry
    closures: tuple[str, ...]
    verdict: VerdictType | None
    problems: FileProblems
    schemas: SchemaFolder
    prompts: PromptFiles
    supply: Supply
    programs: Collection[str] | None = None

    def entries(self) -> dict[str, ValidationEntry]:
        """Return all validation entries by id."""
        validators = self._validators()
        entries: dict[str, ValidationEntry] = {}
        for key, entry in self.registry.validation_steps.items():
            at = Pointer("/validationSteps") / key
            check_key(key, entry.step_id, at, self.problems)
            self._check_owner(key, at)
            entries[key] = self._entry(key, entry, at, self._conditions(entry, at, validators))
        if not self.problems.diagnostics.failed:
            self._check_unused()
        self._check_unvalidated(entries)
        return entries

    def _check_unused(self) -> None:
        """Report validators and failure patterns that nothing runs or names (SF609)."""
        registry = self.registry
        steps = registry.validation_steps.values()
        run = {one.validator for entry in steps for one in entry.validation_conditions}
        named = {entry.failure_pattern for entry in registry.validators.values()}
        for name in registry.validators.keys() - run:
            fix = 'Name it in "validationConditions" of a validation step, or remove it.'
            self.problems.report("SF609", Pointer("/validators") / name, "no validation step runs it", fix)
        for name in registry.failure_patterns.keys() - named:
            fix = 'Name it as "failurePattern" of a validator, or remove it.'
            self.problems.report("SF609", Pointer("/failurePatterns") / name, "no validator names it", fix)

    def _check_unvalidated(self, entries: Mapping[str, ValidationEntry]) -> None:
        """Report closure steps that close without checks while another one is checked (SF610)."""
        checked = [step_id for step_id in self.closures if entry_of(step_id, entries, self.verdict)]
        if self.problems.broken("validationSteps"):
            return  # they may be what checks it
        misspelled = {closest_match(key, self.closures) for key in entries if key not in self.closures}
        for step_id in self.closures:
            if checked and step_id not in checked and step_id not in misspelled:
                message = f'nothing is validated when "{step_id}" closes, while {list_words(checked)} is checked'
                fix = f'Add an entry "{step_id}" to "validationSteps".'
                self.problems.report("SF610", Pointer("/steps") / step_id, message, fix)

    def _validators(self) -> dict[str, Validator]:
        patterns = {
            name: FailurePattern.model_construct(**dict(entry), name=name)
            for name, entry in self.registry.failure_patterns.items()
        }
        validators: dict[str, Validator] = {}
        for name, entry in self.registry.validators.items():
            at = Pointer("/validators") / name
            self._check_pattern(entry, at / "successWhen")
            self._check_keys(entry, at)
            self._check_names(entry, at)
            self._check_program(entry.command, at / "command")
            if pattern := patterns.get(entry.failure_pattern):
                validators[name] = Validator.model_construct(**dict(entry), name=name, pattern=pattern)
        return validators

    def _check_pattern(self, entry: ValidatorEntry, at: Pointer) -> None:
        word, _, pattern = entry.success_when.partition(":")
        try:
            if word == "matches":
                check_pattern(pattern)
        except PatternFault as exc:
            message = (
                f'"successWhen" is "{entry.success_when}", whose pattern is not a valid regular expression ({exc})'
            )
            self.problems.report("SF602", at, message, 'Write a valid regular expression after "matches:".')

    def _check_keys(self, entry: ValidatorEntry, at: Pointer) -> None:
        """Report keys that this type of validator does not have (SF611)."""
        keys = KEYS_OF_COMMAND if entry.type == PROOF else KEYS_OF_PROOF
        for key, value in entry.model_dump(by_alias=True, include=entry.model_fields_set).items():
            if key in keys and value:
                message = f'"{key}" has no meaning for a validator of the type "{entry.type}"'
                self.problems.report("SF611", at / key, message, f'Leave "{key}" out, or change the type.')

    def _check_program(self, command: str, at: Pointer) -> None:
        """Note a program that is not on this machine (SF608), as a warning if its name is probably misspelled."""
        program = first_program(command)
        if self.programs is None or program is None or program in self.programs:
            return
        others = (name for name in self.programs if not _is_named_after(program, name))
        near = closest_match(program, others, LIKE_PROGRAMS)
        message = f'there is no program "{program}" on this machine{hint(near)}'
        fix = "Correct its name, or install it where the agent runs: by `setup` or `apt-packages`."
        self.problems.report("SF608", at, message, fix, severity=Severity.WARNING if near else None)

    def _check_names(self, entry: ValidatorEntry, at: Pointer) -> None:
        pattern, known = entry.failure_pattern, self.registry.failure_patterns
        if pattern not in known and pattern not in self.problems.broken("failurePatterns"):
            message = f'there is no failure pattern "{pattern}"{did_you_mean(pattern, known)}'
            self.problems.report("SF604", at / "failurePattern", message, f"The patterns are {list_words(known)}.")
        for parameter, extractor in entry.extract_params.items():
            if extractor not in EXTRACTORS:
                message = f'there is no extractor "{extractor}" for "{parameter}"{did_you_mean(extractor, EXTRACTORS)}'
                fix = f"The extractors are {list_words(sorted(EXTRACTORS))}."
                self.problems.report("SF605", at / "extractParams" / parameter, message, fix)

    def _check_owner(self, key: str, at: Pointer) -> None:
        closures, broken = self.closures, self.problems.broken("steps")
        mapped = self.verdict is None or (bool(closures or broken) and key == MAPPED_ENTRIES[self.verdict])
        if key not in closures and key not in broken and not mapped:
            message = f'the validation entry "{key}" belongs to no closure step{did_you_mean(key, closures)}'
            self.problems.add("SF606", at, message, f"Name it like a closure step; there are {list_words(closures)}.")

    def _conditions(
        self, entry: ValidationStepEntry, at: Pointer, validators: Mapping[str, Validator]
    ) -> tuple[Condition, ...]:
        conditions: list[Condition] = []
        known = self.registry.validators
        for index, one in enumerate(entry.validation_conditions):
            name = one.validator
            if name not in known and name not in self.problems.broken("validators"):
                validator_at = at / "validationConditions" / index / "validator"
                message = f'there is no validator "{name}"{did_you_mean(name, known)}'
                self.problems.report("SF603", validator_at, message, f"The validators are {list_words(known)}.")
            elif name in validators:
                params = {key: as_text(value) for key, value in one.params.items()}
                conditions.append(Condition(validator=validators[name], params=params))
        return tuple(conditions)

    def _entry(
        self, key: str, entry: ValidationStepEntry, at: Pointer, conditions: tuple[Condition, ...]
    ) -> ValidationEntry:
        check_c3_style(at, entry.c3, self.problems)
        schema: JsonObject | None = None
        if entry.output_schema_ref is not None:
            schema = self.schemas.by_ref(entry.output_schema_ref, at / "outputSchemaRef")
        elif entry.output_schema is not None:
            schema = self.schemas.inline(entry.output_schema, at / "outputSchema")
        retry_prompts: dict[str, SourceText] = {}
        address = Address(c2=entry.c2, c3=entry.c3, edition=_ANY_EDITION)
        every = [one.validator for one in conditions]
        for pattern in dict.fromkeys(validator.pattern for validator in every):
            served = [validator for validator in every if validator.pattern == pattern]
            if prompt := self._retry_prompt(replace(address, edition=pattern.edition), pattern, served, at):
                retry_prompts[pattern.name] = prompt
        # Last: what was read is no longer named as a file that could have been meant.
        any_retry_prompt = self._retry_prompt(address, None, every, at)
        return ValidationEntry(
            id=key,
            conditions=conditions,
            action=entry.on_failure.action,
            max_attempts=entry.on_failure.max_attempts,
            schema=schema,
            retry_prompts=retry_prompts,
            any_retry_prompt=any_retry_prompt,
        )

    def _is_sound(self, prompt: Prompt, extracted: Collection[str]) -> bool:
        """Return whether a retry prompt can be used. Warns about names that no failure and no run has (SF515)."""
        own_values = {*RETRY_VALUES, *extracted}
        known = own_values | self.supply.names
        tags = prompt.tags(known, is_open=True)
        plain = self.supply.plain - own_values
        reporter = TagReporter(
            prompt=prompt, owner="the retry prompt: ", names=known, plain=plain, problems=self.problems
        )
        reporter.report(tags)
        reported = {"this", "@index"}
        for tag in tags:
            if tag.use is Use.VALUE and not tag.is_asked and tag.name not in known | reported:
                reported.add(tag.name)
                near = closest_variable(tag.path, known)
                message = f'the retry prompt names "{tag.name}", which no failure has{hint(near)}'
                fix = f"Write one of {list_words(sorted(own_values))}."
                prompt.report("SF515", tag, message, fix, self.problems, word=tag.name)
        return all(tag.use is not Use.FAULT for tag in tags)

    def _retry_prompt(
        self,
        address: Address,
        pattern: FailurePattern | None,
        validators: Iterable[Validator],
        at: Pointer,
    ) -> SourceText | None:
        """Return the retry prompt of a failure pattern, or the one for any failure, which may be missing.
        `validators` are those whose failures it is for."""
        path = self.prompts.path(address, pattern.adaptation if pattern else None)
        prompt = self.prompts.read(path)
        if prompt is not None:
            is_sound = self._is_sound(prompt, {name for one in validators for name in one.extract_params})
            return prompt.source if is_sound else None
        if pattern is not None:
            message = f'validation step "{last_key(at)}", failure pattern "{pattern.name}": '
            message += f'the retry prompt "{path}" is missing or empty{beside(self.prompts.folder, path)}'
            self.problems.add("SF513", at, message, f'Write "{path}", or leave it to the general text.')
        return None
