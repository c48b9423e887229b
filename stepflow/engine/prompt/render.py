"""The prompts that come from templates: a step's own, the fallback in its place, and the retry prompt after a red
validator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from stepflow.domain.conversation import Substitution
from stepflow.domain.decision import ValidatorFailure
from stepflow.domain.definition import AgentDefinition, SourceText, Step, StepPrompt, ValidationEntry
from stepflow.domain.json import JsonObject, JsonValue, as_text
from stepflow.domain.text import code_block, excerpt
from stepflow.engine.prompt.template import Filled, fill_template, parse_template
from stepflow.engine.prompt.variables import Variables

#: The closed list of the prompt texts that the package ships; the text of key K is `templates/K.md`.
TEMPLATE_KEYS: tuple[str, ...] = (
    *("system", "initial_iterate", "continuation_iterate", "initial_issue", "continuation_issue"),
    *("initial_issue_label_only", "continuation_issue_label_only", "initial_project", "continuation_project"),
    *("initial_keyword", "continuation_keyword", "initial_manual", "continuation_manual"),
    *("initial_structured_signal", "continuation_structured_signal"),
    *("continuation_project_preparation", "continuation_project_processing", "continuation_project_review"),
    *("issue_closure_default", "project_closure_default", "polling_closure_default", "review_closure_default"),
    *("iteration_closure_default", "facilitation_closure_default", "project_continuation_closure_default"),
    "statuscheck_continuation_default",
)


#: The name of the run's input text in prompts of steps with `usesStdin`.
INPUT_TEXT = "input_text"

#: Stands in a shipped template for a variable without a value: a fallback can never fail.
NOT_GIVEN = "(not given)"


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """A prompt ready to send. `source` is the file it came from. `used_fallback` is the key of the template that was
    rendered because the step's own text could not be, and `cause` says why that was."""

    text: str
    source: str
    substitutions: tuple[Substitution, ...] = field(default=(), compare=False)
    used_fallback: str | None = None
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class PromptFailure:
    """A prompt that cannot be rendered; `message` names variable, step and file."""

    message: str


def render_prompt(
    agent: AgentDefinition, step: Step, variables: Variables, input_text: str | None = None
) -> RenderedPrompt | PromptFailure:
    """The step's prompt with its sections and variables put in; its fallback template where a value is missing."""
    if step.prompt is None:
        return PromptFailure(message=f'Step "{step.id}" runs a command and has no prompt to render.')
    prompt, texts = step.prompt, dict(variables.texts)
    if prompt.source.template:
        return _of_shipped(prompt.source, variables)
    if prompt.uses_stdin and input_text:
        texts[INPUT_TEXT] = input_text
    sections = {section_id: section.text for section_id, section in agent.sections.items()}
    known = {*prompt.names, INPUT_TEXT} if prompt.uses_stdin else prompt.names
    template = parse_template(prompt.source.text, known, is_open=False, sections=sections)
    filled = fill_template(template, variables.scope, texts)
    cause = "; ".join(_faults(prompt, filled, variables, input_text))
    if not cause:
        return RenderedPrompt(text=filled.text, source=prompt.source.file, substitutions=filled.substitutions)
    if prompt.fallback:
        rendered = _of_shipped(prompt.fallback, variables)
        return replace(rendered, used_fallback=prompt.fallback.template or prompt.fallback_key, cause=cause)
    message = f'The prompt of step "{step.id}" ({prompt.source.file}) cannot be rendered: {cause}. '
    message += "Supply the value as a run argument, an extra variable or a handoff field"
    if key := prompt.fallback_key:
        return PromptFailure(message=f'{message}. No fallback prompt found for key: "{key}" (step: {step.id})')
    return PromptFailure(message=f'{message}, or give the step a "fallbackKey".')


def fill_shipped(text: str, variables: Variables) -> Filled:
    """A shipped template with its variables put in; what is missing or empty reads `(not given)`."""
    texts = {name: value or NOT_GIVEN for name, value in variables.texts.items()}
    return fill_template(parse_template(text, is_open=False), variables.scope, texts, NOT_GIVEN)


def _of_shipped(source: SourceText, variables: Variables) -> RenderedPrompt:
    filled = fill_shipped(source.text, variables)
    return RenderedPrompt(text=filled.text, source=source.file, substitutions=filled.substitutions)


def _faults(prompt: StepPrompt, filled: Filled, variables: Variables, input_text: str | None) -> tuple[str, ...]:
    declared = [
        f'declared variable "{name}" has no value' for name in prompt.variables if not variables.texts.get(name)
    ]
    used = [
        f'variable "{name}" is used but nothing supplies it' for name in filled.missing if name not in prompt.variables
    ]
    inputs = [f'required input "{name}" has no value' for name in variables.missing_inputs]
    stdin = ['"usesStdin" is set but the run was given no input text'] if prompt.uses_stdin and not input_text else []
    return tuple(dict.fromkeys([*declared, *used, *inputs, *stdin]))


#: Of a longer text an excerpt is shown.
LONGEST_TEXT = 20_000
MOST_DETAILS = 50
#: The generic text lists no more items of one parameter.
MOST_ITEMS = 100
GENERIC = "generic"


def _details(failure: ValidatorFailure) -> list[JsonValue]:
    said = "\n".join(line for line in failure.error.splitlines() if line.strip())
    return [*excerpt(said, LONGEST_TEXT, lines=MOST_DETAILS).splitlines()]


#: What a retry prompt knows of a failure, with how it is read.
_OF_FAILURE: dict[str, Callable[[ValidatorFailure], JsonValue]] = {
    "validator": lambda failure: failure.validator,
    "pattern": lambda failure: failure.pattern,
    "description": lambda failure: failure.description,
    "error": lambda failure: failure.error,
    "details": _details,
    "exitCode": lambda failure: failure.exit_code,
    "stdout": lambda failure: failure.stdout,
    "stderr": lambda failure: failure.stderr,
    "attempt": lambda failure: failure.attempt,
    "maxAttempts": lambda failure: failure.max_attempts,
    "attemptsLeft": lambda failure: failure.max_attempts - failure.attempt,
}
#: What a retry prompt may name beside what the validator extracts.
RETRY_VALUES = frozenset({*_OF_FAILURE, "stepId", "uv"})


@dataclass(frozen=True, kw_only=True)
class RetryText:
    """A retry prompt. `source` is its file, or `generic`."""

    text: str
    source: str


def render_retry(entry: ValidationEntry, failure: ValidatorFailure, step_id: str, variables: Variables) -> RetryText:
    """The most special retry prompt that there is for this failure; `step_id` is the closure step that said closing."""
    values = _values(failure, step_id, variables)
    own = {*RETRY_VALUES, *failure.values}
    texts = {name: _cut(text) for name, text in variables.texts.items() if name not in own}
    for source in (entry.retry_prompts.get(failure.pattern), entry.any_retry_prompt):
        template = parse_template(source.text, values) if source else None
        if source and template and not template.faults:  # the loader has reported them (SF516)
            return RetryText(text=fill_template(template, values, texts).text, source=source.file)
    return RetryText(text="\n\n".join(_generic(failure)), source=GENERIC)


def _values(failure: ValidatorFailure, step_id: str, variables: Variables) -> JsonObject:
    known = {name: read(failure) for name, read in _OF_FAILURE.items()}
    values: JsonObject = {**variables.scope, **known, "stepId": step_id, **failure.values}
    return {name: _shorten(value) for name, value in values.items()}


def _shorten(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _cut(value)
        case list():
            return [_shorten(item) for item in value]
        case dict():
            return {key: _shorten(item) for key, item in value.items()}
        case _:
            return value


def _cut(text: str) -> str:
    return excerpt(text, LONGEST_TEXT)[:LONGEST_TEXT]


def _generic(failure: ValidatorFailure) -> Iterator[str]:
    yield "## The closing check did not pass"
    yield f"Validator `{failure.validator}` failed: {failure.description}"
    if failure.error.strip():
        yield code_block(_cut(failure.error.rstrip("\n")))
    listed = [_bullet(name, value) for name, value in failure.values.items() if value not in (None, "", [], {})]
    if listed:
        yield "What was found:\n\n" + "\n".join(listed)
    left = failure.max_attempts - failure.attempt
    yield f"This was attempt {failure.attempt} of {failure.max_attempts}; {left or 'none'} left."
    yield "Fix the cause, then close again."


def _bullet(name: str, value: JsonValue) -> str:
    if isinstance(value, list):
        items = [f"  - {_one_line(item)}" for item in value[:MOST_ITEMS]]
        more = [f"  - … and {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else []
        return "\n".join((f"- {name}:", *items, *more))
    if isinstance(value, str) and "\n" in value.strip():
        fenced = code_block(_cut(value.strip("\n")))
        return f"- {name}:\n\n" + "\n".join(f"  {line}" for line in fenced.splitlines()) + "\n"
    return f"- {name}: {_one_line(value)}"


def _one_line(value: JsonValue) -> str:
    return _cut(" ".join(as_text(value).split()))
